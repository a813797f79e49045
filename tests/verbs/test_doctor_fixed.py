"""What `fix` wrote, in hand again: it is judged as it is typed, by the model that it was made from."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.english import say
from halfwise.core.finding import Finding
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.verbs.doctor import Diagnosed, doctor
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import SHAPES, norm_log_head
from tests.support.command_line import CommandLine, save
from tests.support.messages import only


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def of(result: Diagnosed, rule: str) -> Finding:
    (found,) = [finding for finding in result.findings if finding.rule == rule]
    return found


@pytest.mark.parametrize("target", ["onnx", "ort-cuda", "trt-10.9", "rtx-1.7"])
def test_what_is_fixed_is_judged_as_it_is_typed(target: str, halfwise_cli: CommandLine, tmp_path: Path) -> None:
    """Plain FP16 breaks the model: what was fixed is not said to break, nor its FP32 weights to be harmed."""
    model, inputs = save(norm_log_head(), tmp_path)
    results = tmp_path / "out"
    assert halfwise_cli("fix", model, "--inputs", inputs, "--out", results, "--target", target).code == 0
    for files in ((results, inputs), (results, model, inputs)):
        ended = halfwise_cli("doctor", *files, "--json")
        assert ended.code == 0 and [finding["rule"] for finding in ended.document["findings"]] == ["HW621"]
        words = shlex.split(ended.document["next"]["command"])
        assert words == ["halfwise", "verify", str(model), f"{results}/{model.stem}.fp16.onnx", "--inputs", str(inputs)]
        assert halfwise_cli(*words[1:]).code == 0
    assert halfwise_cli("doctor", results).code == 0
    assert {f.rule for f in doctor(model, inputs).findings} & {"HW611", "HW612"}


def test_what_was_fixed_and_misses_other_inputs_is_to_be_fixed_again(tmp_path: Path) -> None:
    """By the plan's own tolerance, which the next command states, too."""
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    rng = np.random.default_rng(0)
    (spec,) = load(model).inputs
    shape = [size if isinstance(size, int) else 1 for size in spec.shape or ()]
    given, loud = tmp_path / "given", tmp_path / "loud"
    for folder, factor in ((given, 1.0), (loud, 1e6)):
        folder.mkdir()
        np.savez(folder / "0.npz", **{spec.name: (factor * rng.standard_normal(shape)).astype(np.float32)})
    fix(model, given, tolerance="*:rel_l2<=0.02", out=tmp_path / "out")
    kept, missed = doctor(tmp_path / "out", given), doctor(tmp_path / "out", loud)
    assert of(kept, "HW621").severity == "info" and "--tol '*:rel_l2<=0.02'" in kept.next.command
    assert of(missed, "HW622").severity == "error"
    assert missed.next.command.startswith(f"halfwise fix {model} ") and "--tol '*:rel_l2<=0.02'" in missed.next.command


def test_what_a_fixed_model_was_made_from_may_be_gone(tmp_path: Path) -> None:
    model, inputs = save(SHAPES["healthy_mlp"](), tmp_path)
    fix(model, inputs, out=tmp_path / "out")
    model.unlink()
    result = doctor(tmp_path / "out", inputs)
    assert not result.findings and "is not here" in say(only(result.notes, NoteKind.NOT_RUN_HERE))


def test_what_a_fixed_model_was_made_from_may_lie_elsewhere_and_be_given(tmp_path: Path) -> None:
    """Another model of its name, where the plan says that it lies, is not taken for it."""
    model, inputs = save(SHAPES["healthy_mlp"](), tmp_path)
    fix(model, inputs, out=tmp_path / "out")
    moved = (tmp_path / "elsewhere") / model.name
    moved.parent.mkdir()
    model.rename(moved)
    for there in (False, True):
        if there:
            model.write_bytes(norm_log_head().model.SerializeToString())
        result = doctor(tmp_path / "out", moved, inputs)
        assert of(result, "HW621").severity == "info"
        assert shlex.split(result.next.command)[2] == str(moved)


def test_of_a_model_and_a_typed_one_the_model_is_examined(tmp_path: Path) -> None:
    """Where nothing says that the one is of the other, or the plan was made for the model as it once was."""
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    result = fix(model, out=tmp_path / "fixed")
    assert result.typed is not None and len(load(result.typed.path).nodes) > len(load(model).nodes)
    assert doctor(model, result.typed.path).next.command.startswith(f"halfwise fix {model} ")
    assert doctor(tmp_path).next.command.startswith(f"halfwise verify {model} ")
    retrained = onnx.load(model)
    weights = retrained.graph.initializer[0]
    weights.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights) * np.float32(1.5), weights.name))
    onnx.save(retrained, model)
    assert doctor(tmp_path).next.command.startswith(f"halfwise fix {model} ")
