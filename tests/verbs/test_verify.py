"""Comparing runners: tolerances, the user's metric, NaN that FP32 has too, and runners of any kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation import weights
from halfwise.model.model import load
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.runners import EmulatedRunner
from halfwise.verbs.verify import verify
from tests.models import build
from tests.models.zoo import SHAPES
from tests.support.messages import kinds
from tests.support.says import Says

Feed = Mapping[str, np.ndarray]


class Fixed:
    """Gives the same outputs whatever it is fed."""

    def __init__(self, **outputs: Any) -> None:
        self.outputs = {name: np.asarray(values) for name, values in outputs.items()}

    def run(self, index: int, feed: Feed) -> dict[str, np.ndarray]:
        return self.outputs


ONES = np.ones(8, np.float32)


def outcome(a: Any, b: Any, *tolerance: str, **options: Any) -> Any:
    return verify(Fixed(y=a), Fixed(y=b), [{}], tolerance=tolerance, **options)


def test_the_default_tolerance() -> None:
    assert outcome(ONES, ONES * np.float32(1.0099)).met
    assert not outcome(ONES, ONES * np.float32(1.0101)).met
    assert outcome(np.arange(2000), np.where(np.arange(2000) < 2, 9, np.arange(2000))).met
    assert not outcome(np.arange(2000), np.where(np.arange(2000) < 3, 9, np.arange(2000))).met


def test_nan_of_fp32_is_no_error_and_a_new_one_always_is() -> None:
    nan = np.array([1.0, np.nan, np.inf, 2.0], np.float32)
    assert outcome(nan, nan).met
    new = outcome(np.ones(4, np.float32), nan, "rel_l2<=1e9")
    assert not new.met
    assert (new.verdict.metric, new.verdict.value) == ("nonfinite", 2.0)


def test_the_worst_sample_decides() -> None:
    class Growing(Fixed):
        def run(self, index: int, feed: Feed) -> dict[str, np.ndarray]:
            return {"y": ONES * np.float32(1 + 0.004 * index)}

    seen: list[tuple[int, int]] = []
    result = verify(Fixed(y=ONES), Growing(), [{}] * 4, notify=lambda done, total: seen.append((done, total)))
    assert not result.met and result.samples == 4
    assert result.outputs["y"].rel_l2 == pytest.approx(0.012, rel=1e-4)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_metric_of_the_user() -> None:
    def error(reference: Feed, other: Feed) -> float:
        return float(np.abs(reference["y"] - other["y"]).max())

    assert outcome(ONES, ONES + 0.5, "metric<=0.6", metric=error).met
    missed = outcome(ONES, ONES + 0.5, "metric<=0.4", metric=error)
    assert not missed.met and missed.verdict.metric == "metric" and missed.verdict.value == 0.5
    stated = Tolerance((Bound.of("*", "metric", 0.4),))
    with pytest.raises(InputError, match="name its function with --metric"):
        verify(Fixed(y=ONES), Fixed(y=ONES), [{}], tolerance=stated)


def test_outputs_that_the_second_lacks_or_has_besides(says: Says) -> None:
    with says.raises(InputError):
        verify(Fixed(y=ONES, z=ONES), Fixed(y=ONES), [{}])
    assert set(verify(Fixed(y=ONES), Fixed(y=ONES, z=ONES), [{}]).outputs) == {"y"}


def test_without_a_model_the_samples_must_be_arrays(says: Says) -> None:
    for inputs in (None, [], "folder", ["a.npz"]):
        with says.raises(InputError):
            verify(Fixed(y=ONES), Fixed(y=ONES), inputs)


def test_what_is_no_model_and_answers_nothing(tmp_path: Path, says: Says) -> None:
    """In a notebook the first that comes to hand is the session, or a function around it."""
    zoo = SHAPES["layer_norm_overflow"]()
    onnx.save(zoo.model, tmp_path / "m.onnx")
    for given in (onnxruntime.InferenceSession(tmp_path / "m.onnx"), lambda feed: feed, 3):
        with says.raises(InputError):
            verify(zoo.model, given, zoo.inputs)  # type: ignore[arg-type]


def test_the_document_is_json() -> None:
    result = outcome(np.zeros(4, np.float32), np.array([1, np.inf, 0, 0], np.float32))
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["schema"] == "halfwise.verify/1" and document["status"] == "not-met"
    assert document["outputs"]["y"]["rel_l2"] == "inf" and document["outputs"]["y"]["nonfinite"] == 1
    assert document["inputs"] == {"origin": "given", "samples": 1}


def test_the_search_and_the_comparison_measure_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The emulation of a decision and the emulation of the typed model that was written for it are one."""
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, out=tmp_path_factory.mktemp("fixed"))
    assert result.typed is not None
    again = verify(zoo.model, result.typed.path, result.samples.all)
    for name, metrics in result.fixed.items():  # there the worst of strict and wide; here strict, which is the worst
        assert again.outputs[name].rel_l2 == metrics.rel_l2


def test_inputs_in_fp16_are_fed_as_such(tmp_path_factory: pytest.TempPathFactory) -> None:
    zoo = SHAPES["healthy_mlp"]()
    folder = tmp_path_factory.mktemp("fixed")
    typed = fix(zoo.model, zoo.inputs, out=folder, io_types=_fp16()).typed
    assert typed is not None
    assert {v.type.tensor_type.elem_type for v in onnx.load(typed.path).graph.input} == {TensorProto.FLOAT16}
    result = verify(zoo.model, typed.path, zoo.inputs)
    assert result.met and all(metrics.rel_l2 > 1e-5 for metrics in result.outputs.values())


def _fp16() -> Any:
    from halfwise.core.formats import Format

    return Format.FP16


def test_the_profile_is_heeded() -> None:
    """Under ort-cuda a convolution is rounded before its bias is added, and the two roundings differ."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])
    rng = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in (("w", (4, 4, 3, 3)), ("b", (4,)))
    ]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")], "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [{"x": rng.normal(size=(1, 4, 8, 8)).astype(np.float32)} for _ in range(4)]
    loaded = load(model)
    narrow = {p: EmulatedRunner(loaded, p, narrow=True) for p in ("strict", "ort-cuda")}
    errors = {p: verify(loaded, runner, feeds).outputs["y"].rel_l2 for p, runner in narrow.items()}
    assert errors["strict"] != errors["ort-cuda"]
    with pytest.raises(InputError, match="there is no profile 'loose'"):
        verify(loaded, loaded, feeds, profile="loose")


def test_made_up_inputs_are_said() -> None:
    zoo = SHAPES["healthy_mlp"]()
    result = verify(zoo.model, zoo.model)
    assert result.met and result.inputs == "synthetic" and kinds(result.notes)[0] is NoteKind.SYNTHETIC


def test_both_judges_of_a_model_hold_its_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = list[tuple[int, ...]]()
    make = weights.cast_fast

    def counted(stored: np.ndarray, kept: np.ndarray) -> bool:
        rounded.append(stored.shape)
        return make(stored, kept)

    monkeypatch.setattr(weights, "cast_fast", counted)
    x, y = (build.value(name, TensorProto.FLOAT16, (2, 64)) for name in "xy")
    table = build.weight("w", np.ones((64, 64), np.float16))
    runner = EmulatedRunner(load(build.model([build.node("MatMul", "x w", "y")], [x], [y], [table])))
    assert list(runner.judges) == ["strict", "wide"]
    assert rounded == [(64 * 64,)]
