"""The command line on odd files: an answer, or one line that says what is wrong; never a defect of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine

from benchmarks.zoo.graph_writer import GraphWriter


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
    ended = halfwise_cli("fix", model, "--out", "out", "--markdown", "summary.md", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["model"]["path"] == name
    again = halfwise_cli("fix", model, "--out", "again", "--plan", f"out/{model.stem}.plan.json")
    assert again.code == 0, again.err
    assert halfwise_cli("gate", model, "--plan", f"out/{model.stem}.plan.json", "--sarif", "s.sarif").code == 0


@pytest.mark.parametrize("verb", ["fix", "verify"])
@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.full((1, 4), np.nan), "hold no finite value for any input: check the inputs"),
        (np.full((1, 4), 3e38), "hold no finite value for any input: check the inputs"),
        (np.zeros((0, 4)), "are empty for every input: nothing can be compared; give others"),
    ],
    ids=["nan", "too large for FP32", "of no size"],
)
def test_inputs_that_answer_nothing_are_refused(
    verb: str, values: np.ndarray, told: str, halfwise_cli: CommandLine, tmp_path: Path
) -> None:
    model = a_model(tmp_path / "m.onnx", ("n", 4))
    np.savez(tmp_path / "i.npz", x=values.astype(np.float32))
    words = ("--out", tmp_path / "out") if verb == "fix" else (model,)
    ended = halfwise_cli(verb, model, *words, "--inputs", tmp_path / "i.npz", "--json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.told.endswith(told)
    assert not (tmp_path / "out").exists()
