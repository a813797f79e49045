"""Saved outputs in the formats of other tools: read as arrays, in the order of the samples."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halfwise
from halfwise.backends import backend_named
from halfwise.backends.saved_files import saved_samples
from halfwise.core.errors import InputError
from tests.models.zoo import SHAPES
from tests.support.command_line import save
from tests.support.foreign_files import FILES
from tests.support.says import Says

Y = np.array([[1.5, -2.0]], np.float32)


def encoded(array: np.ndarray, lazy: bool = True) -> dict[str, Any]:
    stream = io.BytesIO()
    np.save(stream, array)
    node = {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}
    return {"values": node, "polygraphy_class": "LazyArray"} if lazy else node


def run_results(*runners: tuple[str, list[dict[str, np.ndarray]]]) -> str:
    """As `polygraphy run --save-outputs` writes it."""
    runs = [
        [
            name,
            [
                {
                    "outputs": {key: encoded(array) for key, array in outputs.items()},
                    "runtime": 0.1,
                    "runner_name": name,
                    "polygraphy_class": "IterationResult",
                }
                for outputs in iterations
            ],
        ]
        for name, iterations in runners
    ]
    return json.dumps({"lst": runs, "polygraphy_class": "RunResults"})


def test_polygraphys_outputs_one_iteration_a_sample(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text(run_results(("trt-runner", [{"y": Y}, {"y": 2 * Y}])))
    first, second = saved_samples(tmp_path / "out.json")
    assert first.read()["y"].tolist() == Y.tolist() and second.read()["y"].tolist() == (2 * Y).tolist()
    assert second.label.endswith("out.json[1]")


def test_the_outputs_of_two_runners_are_not_told_apart(tmp_path: Path, says: Says) -> None:
    (tmp_path / "out.json").write_text(run_results(("trt", [{"y": Y}]), ("onnxrt", [{"y": Y}])))
    with says.raises(InputError):
        saved_samples(tmp_path / "out.json")


def test_trtexecs_exported_outputs(tmp_path: Path) -> None:
    """A list of values as C++ prints them, with the words that JSON does not have."""
    (tmp_path / "out.json").write_text(
        '[\n  { "name" : "y", "dimensions" : "1x2x2", "values" : [ 1.5, nan, -inf, -2 ] },\n'
        '  { "name" : "ids", "dimensions" : "2", "values" : [ 3, 4 ] }\n]\n'
    )
    (sample,) = saved_samples(tmp_path / "out.json")
    outputs = sample.read()
    assert outputs["y"].shape == (1, 2, 2) and outputs["y"].dtype == np.float32
    assert np.isnan(outputs["y"][0, 0, 1]) and outputs["y"][0, 1, 0] == -np.inf and outputs["y"][0, 1, 1] == -2
    assert outputs["ids"].tolist() == [3, 4] and outputs["ids"].dtype.kind == "i"


def test_trtexecs_raw_files_one_folder_a_sample(tmp_path: Path) -> None:
    for number in (2, 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        (number * Y.astype(np.float16)).tofile(folder / "y.output.1.2.fp16.raw")
        Y.tofile(folder / "x.input.1.2.fp32.raw")
    found = [sample.read() for sample in saved_samples(tmp_path)]
    assert [list(each) for each in found] == [["y"], ["y"]]
    assert [each["y"][0, 0] for each in found] == [3.0, 15.0] and found[0]["y"].dtype == np.float16


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("none.npz", None),
        ("a.npz", b"garbage"),
        ("a.engine", FILES["engine"][1]),
        ("a.json", b'[{"name": "y", "dimensions": "2x2", "values": [1]}]'),
        ("a.json", b'{"lst": 3, "polygraphy_class": "RunResults"}'),
        ("a.json", b'{"lst": [["r", [{}]]], "polygraphy_class": "RunResults"}'),
    ],
)
def test_what_cannot_be_read_is_one_line(name: str, content: bytes | None, says: Says, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        _ = [sample.read() for sample in saved_samples(tmp_path / name)]
    says(caught.value)
    assert "\n" not in str(caught.value)


def test_a_raw_file_that_is_cut_off(tmp_path: Path, says: Says) -> None:
    Y.tofile(tmp_path / "y.output.1.9.fp32.raw")
    with says.raises(InputError):
        saved_samples(tmp_path)[0].read()


@pytest.mark.parametrize("worse", [0.0, 0.1])
def test_verify_judges_what_an_engine_answered(worse: float, tmp_path: Path) -> None:
    import onnxruntime

    zoo = SHAPES["healthy_mlp"]()
    model, inputs = save(zoo, tmp_path)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    answers = [dict(zip(names, session.run(None, dict(feed)), strict=True)) for feed in zoo.inputs[:6]]
    off = [{name: array * (1 + worse) for name, array in each.items()} for each in answers]
    (tmp_path / "out.json").write_text(run_results(("trt", off)))
    result = halfwise.verify(model, tmp_path / "out.json", inputs)
    assert result.samples == 6 and result.met is (worse == 0.0)


def test_a_plan_is_confirmed_by_what_its_engine_answered(tmp_path: Path, says: Says) -> None:
    zoo = SHAPES["healthy_mlp"]()
    model, inputs = save(zoo, tmp_path)
    made = halfwise.fix(model, inputs, out=tmp_path / "out")
    assert made.typed is not None
    import onnxruntime

    session = onnxruntime.InferenceSession(str(made.typed.path), providers=["CPUExecutionProvider"])
    (tmp_path / "answers").mkdir()
    for index, feed in enumerate(zoo.inputs[:6]):
        values = dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feed)), strict=True))
        np.savez(tmp_path / "answers" / f"{index}.npz", **values)
    again = halfwise.fix(
        model, inputs, plan=made.plan_path, out=tmp_path / "again", confirm=f"saved:{tmp_path / 'answers'}"
    )
    assert again.confirmation is not None and again.confirmation.met
    with says.raises(InputError):
        halfwise.fix(model, inputs, out=tmp_path / "third", confirm=f"saved:{tmp_path / 'answers'}")


def test_saved_outputs_come_in_the_order_of_the_samples(tmp_path: Path) -> None:
    for index in (10, 2):
        np.savez(tmp_path / f"{index}.npz", y=np.array([index]))
    run = backend_named(f"saved:{tmp_path}").run(Path("any"), [{}, {}])
    assert [int(each["y"][0]) for each in run.outputs] == [2, 10]
    assert run.record.library == "saved outputs"


def test_saved_outputs_that_do_not_fit(tmp_path: Path, says: Says) -> None:
    backend = backend_named(f"saved:{tmp_path}")
    with says.raises(InputError):
        backend.run(Path("any"), [{}, {}])
    (tmp_path / "0.npz").write_text("no")
    with says.raises(InputError):
        backend.run(Path("any"), [{}, {}])
    with says.raises(InputError):
        backend.run(Path("any"), [{}])
