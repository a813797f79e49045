"""`halfwise trace`: its document and its screen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


def test_the_document_has_the_keys_of_the_contract(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    ended = halfwise_cli("trace", model, "--inputs", inputs, "--json")
    document = ended.document
    assert (ended.code, ended.err) == (0, "")
    assert document["schema"] == "halfwise.trace/1"
    assert document["inputs"] == {"origin": "given", "samples": 6}
    keys = {"name", "node", "min", "max", "over", "below_normal", "below_subnormal", "nonfinite"}
    assert all(set(tensor) == keys for tensor in document["tensors"])
    assert all(set(node) == {"name", "op", "local_error"} for node in document["nodes"])
    squares = [tensor for tensor in document["tensors"] if "Pow" in tensor["node"]]
    assert squares and all(tensor["max"] > 65504 and 0 < tensor["over"] <= 1 for tensor in squares)
    assert {node["local_error"] for node in document["nodes"] if node["op"] == "Pow"} == {"inf"}


def test_the_screen_shows_the_worst_first(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    ended = halfwise_cli("trace", model, "--inputs", inputs)
    lines = ended.out.splitlines()
    assert ended.code == 0 and "\x1b" not in ended.out
    says(lines[0])
    header = next(i for i, line in enumerate(lines) if line.startswith("tensor "))
    assert "Pow" in lines[header + 1]
    header = next(i for i, line in enumerate(lines) if line.startswith("node, alone in FP16"))
    assert lines[header + 1].split()[-1] == "inf"


def test_a_healthy_model_and_made_up_inputs(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    ended = halfwise_cli("trace", model)
    assert ended.code == 0
    says(ended.out, "0 with values")
    assert "SYNTHETIC INPUTS:" in ended.out


def test_what_cannot_be_read_is_one_line(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    assert "there is no such file" in halfwise_cli("trace", tmp_path / "none.onnx").told
    assert "no such file or folder" in halfwise_cli("trace", model, "--inputs", tmp_path / "none").told


def test_findings_as_sarif(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    proto = model([node("Mul", "pixels k", "y")], [value("pixels", shape=(4,))], [value("y", shape=(4,))],
                  [weight("k", np.full(4, 1 / 255, np.float32))])  # fmt: skip
    onnx.save(proto, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", pixels=np.array([1e6, 70_000, 3, 250], np.float32))
    ended = halfwise_cli("trace", tmp_path / "m.onnx", "--inputs", tmp_path / "in.npz", "--sarif", tmp_path / "t.sarif")
    assert ended.code == 0
    (run,) = json.loads((tmp_path / "t.sarif").read_text())["runs"]
    told = [(each["ruleId"], each["locations"][0]["logicalLocations"][0]["name"]) for each in run["results"]]
    assert told and {name for _, name in told} == {"pixels"}
    assert all(rule in ended.out for rule, _ in told)
    nowhere = halfwise_cli("trace", tmp_path / "m.onnx", "--sarif", tmp_path / "m.onnx" / "t.sarif")
    assert nowhere.code == 2 and "t.sarif" in nowhere.told
