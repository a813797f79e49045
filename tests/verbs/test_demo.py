"""The demo: its model fails silently and is repaired, as an API and as a verb."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.verbs.demo import CLASSES, demo, demo_inputs, demo_model
from tests.support.command_line import CommandLine
from tests.support.says import Says


def test_the_failure_is_silent_and_the_fix_mends_it(tmp_path: Path, says: Says) -> None:
    onnx.checker.check_model(demo_model(), full_check=True)
    steps: list[str] = []
    result = demo(tmp_path / "here", notify=steps.append)
    assert result.met and not result.fix.fp16_verdict.met
    before, after = result.fix.fp16["scores"], result.fix.fixed["scores"]
    assert before.nonfinite == 0 and before.rel_l2 > 0.5
    assert after.rel_l2 < 0.002
    assert result.fix.plan.repairs or set(result.fix.fp32_nodes) == {"/norm/Pow", "/norm/ReduceMean_1"}
    assert {finding.rule for finding in result.scan.findings if finding.where.name == "/norm/Pow"}
    np.testing.assert_allclose(result.answers.fixed, result.answers.fp32, atol=0.01)
    assert np.abs(np.subtract(result.answers.fp16, result.answers.fp32)).max() > 0.5
    says(steps[0])
    assert len(steps) > 3
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["demo.onnx", "fixed", "inputs"]
    onnx.checker.check_model(onnx.load(tmp_path / "here" / "fixed" / "demo.fp16.onnx"), full_check=True)


def test_in_plain_fp16_the_answer_does_not_depend_on_the_input() -> None:
    """What the docstring says of the model, by NumPy alone."""
    weights = {w.name: onnx.numpy_helper.to_array(w).astype(np.float16) for w in demo_model().graph.initializer}
    answers = []
    with np.errstate(over="ignore"):
        for feed in demo_inputs():
            x = feed["tokens"].astype(np.float16) @ weights["embed.weight"] + weights["embed.bias"]
            centred = x - x.mean(-1, keepdims=True, dtype=np.float32).astype(np.float16)
            squares = centred * centred
            assert np.isinf(squares).any(axis=-1).all()
            normal = centred / np.sqrt(squares.mean(-1, keepdims=True) + weights["norm.eps"])
            assert not np.isnan(normal).any() and (normal == 0).all()
            answers.append((normal * weights["norm.weight"] + weights["norm.bias"]) @ weights["head.weight"])
    assert len({answer[row].tobytes() for answer in answers for row in range(len(answer))}) == 1
    assert answers[0].shape[1] == CLASSES


def test_a_second_demo_in_the_same_folder_is_the_same(tmp_path: Path) -> None:
    first = demo(tmp_path).to_json()
    again = demo(tmp_path).to_json()
    for document in (first, again):
        document["fix"]["cost"].pop("seconds"), document["fix"]["cost"].pop("peak_rss_mb")
    assert json.dumps(first) == json.dumps(again)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        demo(tmp_path / "file")


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


def test_the_verb_tells_what_was_wrong_the_fix_and_before_and_after(
    halfwise_cli: CommandLine, tmp_path: Path, says: Says
) -> None:
    ended = halfwise_cli("demo", "--out", tmp_path / "d")
    assert ended.code == 0
    assert all(line.startswith("demo: ") for line in ended.err.splitlines())  # how far it is, where that takes long
    assert "wrong without a single NaN" in ended.out
    for row in ("FP32 ", "plain FP16 ", "fixed "):
        assert any(line.startswith(row) for line in ended.out.splitlines())
    assert "decomposed LayerNorm" in ended.out
    says(ended.out, "demo.onnx keeps the")
    assert "next    halfwise verify" in ended.out


def test_the_document(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    document = halfwise_cli("demo", "--out", tmp_path / "d", "--json").document
    assert document["schema"] == "halfwise.demo/1"
    assert document["scan"]["schema"] == "halfwise.scan/1"
    assert document["fix"]["schema"] == "halfwise.fix/1" and document["fix"]["status"] == "met"
    assert set(document["answers"]) == {"fp32", "fp16", "fixed"}


def test_without_a_folder_it_makes_one(
    halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    document = halfwise_cli("demo", "--json").document
    assert Path(document["folder"]).parent == tmp_path
    assert Path(document["fix"]["artifacts"]["onnx"]).exists()
