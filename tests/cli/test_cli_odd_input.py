"""The command line on odd files: an answer, or one line that says what is wrong; never a defect of its own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.models.zoo.graph_writer import GraphWriter
from tests.support.command_line import CommandLine
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def a_model(path: Path, shape: tuple[int | str, ...] = (1, 4)) -> Path:
    writer = GraphWriter("odd")
    writer.output(writer.op("Exp", [writer.input("x", list(shape))], ""), "y", list(shape))
    path.write_bytes(writer.model().SerializeToString())
    return path


@pytest.mark.parametrize("name", ["with a space.onnx", "größe 重み.onnx", "caf\udce9.onnx"])
def test_any_file_name_is_read_and_written(
    name: str, halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        model = a_model(Path(name))
    except OSError:
        pytest.skip("this file system has no names that are not UTF-8")
    words = ("fix", model, "--out", "out", "--target", "trt-10.9@t4", "--markdown", "summary.md", "--json")
    ended = halfwise_cli(*words)
    assert (ended.code, ended.err) == (0, "")
    script = Path("out", f"{model.stem}.trtexec.sh").read_bytes()
    assert os.fsencode(f"{model.stem}.fp16.onnx") in script
    assert ended.document["model"]["path"] == name
    again = halfwise_cli("fix", model, "--out", "again", "--plan", f"out/{model.stem}.plan.json")
    assert again.code == 0, again.err
    assert halfwise_cli("gate", model, "--plan", f"out/{model.stem}.plan.json", "--sarif", "s.sarif").code == 0


@pytest.mark.parametrize("verb", ["fix", "verify"])
@pytest.mark.parametrize(
    "values",
    [np.full((1, 4), np.nan), np.full((1, 4), 3e38), np.zeros((0, 4))],
    ids=["nan", "too large for FP32", "of no size"],
)
def test_inputs_that_answer_nothing_are_refused(
    verb: str, values: np.ndarray, says: Says, halfwise_cli: CommandLine, tmp_path: Path
) -> None:
    model = a_model(tmp_path / "m.onnx", ("n", 4))
    np.savez(tmp_path / "i.npz", x=values.astype(np.float32))
    words = ("--out", tmp_path / "out") if verb == "fix" else (model,)
    ended = halfwise_cli(verb, model, *words, "--inputs", tmp_path / "i.npz", "--json")
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
    assert not (tmp_path / "out").exists()


def test_a_backend_is_not_asked_about_inputs_that_answer_nothing(
    halfwise_cli: CommandLine, tmp_path: Path, says: Says
) -> None:
    model = a_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "i.npz", x=np.full((1, 4), np.nan, np.float32))
    words = ("bisect", model, "--backend", "ort-cpu", "--out", tmp_path / "out", "--inputs", tmp_path / "i.npz")
    ended = halfwise_cli(*words)
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["trace", "fix", "verify"])
@pytest.mark.parametrize("domain", ["com.example", ""])
def test_an_operator_that_the_runtime_lacks_is_named(
    domain: str, verb: str, halfwise_cli: CommandLine, tmp_path: Path, says: Says
) -> None:
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    node = helper.make_node("Frobnicate", ["x"], ["y"], "/head/frob", domain=domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", [shape], [out]), opset_imports=opsets), path)
    more = {"trace": (), "fix": ("--out", tmp_path / "out"), "verify": (path,)}[verb]
    ended = halfwise_cli(verb, path, *more)
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
    assert domain in ended.told
    assert halfwise_cli("scan", path).code == 0


@pytest.mark.parametrize("verb", ["scan", "trace", "log", "audit"])
def test_a_sarif_file_that_cannot_be_written_is_refused_before_the_work(
    verb: str, halfwise_cli: CommandLine, tmp_path: Path, says: Says
) -> None:
    """The source is not even read."""
    (tmp_path / "garbage").write_bytes(b"garbage")
    ended = halfwise_cli(verb, tmp_path / "garbage", "--sarif", tmp_path / "garbage" / "s.sarif")
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)


@pytest.mark.parametrize(
    "words",
    [
        ("scan", "m.onnx", "--sarif", "m.onnx"),
        ("trace", "m.onnx", "--html", "../{folder}/m.onnx"),
        ("gate", "m.onnx", "--plan", "p.json", "--junit", "p.json"),
        ("fix", "m.onnx", "--out", "out", "--markdown", "m.onnx"),
        ("gate", "m.onnx", "--plan", "p.json", "--junit", "g", "--markdown", "g"),
    ],
)
def test_no_report_takes_the_place_of_what_is_read_or_of_another_report(
    words: tuple[str, ...], halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.onnx", "p.json"):
        Path(name).write_text("as it was")
    ended = halfwise_cli(*(word.format(folder=tmp_path.name) for word in words))
    assert (ended.code, ended.out) == (2, "")
    says(ended.told.replace(tmp_path.name, "FOLDER"))
    assert Path("m.onnx").read_text() == Path("p.json").read_text() == "as it was" and len(list(Path().iterdir())) == 2


def test_outputs_that_were_not_saved_are_told(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    np.savez(tmp_path / "a.npz", y=np.ones(3, np.float32))
    np.savez(tmp_path / "none.npz")
    (tmp_path / "garbage.npz").write_bytes(b"garbage")
    told = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "none.npz").told
    says(told)
    told = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "garbage.npz").told
    says(told)


def test_a_value_out_of_its_range_is_one_sentence_and_the_way_to_help(halfwise_cli: CommandLine) -> None:
    told = halfwise_cli("fix", "m.onnx", "--out", "o", "--time-limit", "0").told
    assert "--time-limit" in told and told.endswith(". See halfwise fix --help.")
