"""`halfwise verify`: models and saved outputs in every combination, its verdict and exit codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from halfwise import fix
from tests.models.report_models import plan_of
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def fixed(halfwise_cli: CommandLine, tmp_path: Path) -> tuple[Path, Path, Path]:
    model, inputs = save(SHAPES["rms_norm_overflow"](), tmp_path)
    document = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--json").document
    return model, Path(document["artifacts"]["onnx"]), inputs


def test_a_typed_model_is_emulated_honestly(halfwise_cli: CommandLine, fixed: tuple[Path, Path, Path]) -> None:
    model, typed, inputs = fixed
    ended = halfwise_cli("verify", model, typed, "--inputs", inputs, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["schema"] == "halfwise.verify/1"
    assert ended.document["status"] == "met"
    assert ended.document["tolerance"] == {"*:rel_l2": 0.01, "*:exact": 0.999}
    assert ended.document["inputs"] == {"origin": "given", "samples": 6}
    (metrics,) = ended.document["outputs"].values()
    assert 1e-5 < metrics["rel_l2"] < 0.01  # FP16 was not computed away
    tight = halfwise_cli("verify", model, typed, "--inputs", inputs, "--tol", f"rel_l2<={metrics['rel_l2'] / 2}")
    assert tight.code == 1
    assert "does not agree with" in tight.out


def test_an_all_fp16_model_shows_its_overflow(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    """ONNX Runtime's CPU provider computes such a model wide, and would say that all is well."""
    model, inputs = save(SHAPES["rms_norm_overflow"](), tmp_path)
    made = fix(model, str(inputs), plan=plan_of({}), out=tmp_path / "all-fp16")
    assert made.typed is not None and not made.fp32_nodes
    ended = halfwise_cli("verify", model, made.typed.path, "--inputs", inputs, "--json")
    assert ended.code == 1
    assert ended.document["status"] == "not-met"
    assert all(metrics["rel_l2"] > 0.1 for metrics in ended.document["outputs"].values())


def test_saved_outputs_in_the_order_of_the_inputs(
    halfwise_cli: CommandLine, fixed: tuple[Path, Path, Path], tmp_path: Path, says: Says
) -> None:
    model, _, inputs = fixed
    for index in range(6, 12):  # "10" comes behind "9"
        scale = 1.0 + index / 100
        first = dict(np.load(inputs / "0.npz"))
        np.savez(
            inputs / f"{index}.npz", **{name: (array * scale).astype(array.dtype) for name, array in first.items()}
        )
    saved = tmp_path / "saved"
    saved.mkdir()
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for index in range(12):
        outputs = session.run(names, dict(np.load(inputs / f"{index}.npz")))
        np.savez(saved / f"{index}.npz", **dict(zip(names, outputs, strict=True)))
    ended = halfwise_cli("verify", model, saved, "--inputs", inputs, "--tol", "rel_l2<=1e-5", "--json")
    assert ended.code == 0
    assert ended.document["inputs"]["samples"] == 12
    assert halfwise_cli("verify", saved, saved, "--json").document["inputs"]["samples"] == 12
    (saved / "11.npz").unlink()
    says(halfwise_cli("verify", model, saved, "--inputs", inputs).told)
    says(halfwise_cli("verify", model, saved).told)


def test_two_files_of_saved_outputs(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    values = np.linspace(1, 2, 10, dtype=np.float32)
    np.savez(tmp_path / "a.npz", y=values, label=np.arange(4))
    np.savez(tmp_path / "b.npz", y=values * np.float32(1.02), label=np.arange(4))
    np.savez(tmp_path / "c.npz", y=values, label=np.array([0, 1, 2, 9]))
    np.savez(tmp_path / "d.npz", y=np.where(values > 1.9, np.nan, values), label=np.arange(4))
    np.savez(tmp_path / "e.npz", y=values)
    ended = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "b.npz")
    assert ended.code == 1
    says(ended.out, "rel_l2 of 'y'")
    assert halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "b.npz", "--tol", "rel_l2<=0.03").code == 0
    ended = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "c.npz")
    assert ended.code == 1
    says(ended.out, "exact of 'label'")
    ended = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "d.npz")
    assert ended.code == 1
    says(ended.out, "value of 'y'")
    assert "has no output 'label'" in halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "e.npz").told
    told = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "b.npz", "--inputs", tmp_path / "a.npz").told
    assert "leave --inputs out" in told


def test_outputs_of_another_shape_are_said(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros((2, 3), np.float32))
    np.savez(tmp_path / "b.npz", y=np.zeros((3, 2), np.float32))
    ended = halfwise_cli("verify", tmp_path / "a.npz", tmp_path / "b.npz")
    assert ended.code == 1
    says(ended.out, "note: y: shape")


@pytest.mark.parametrize("other", ["none.onnx", "none.npz", "empty", "broken.npz", "two_inputs.onnx"])
def test_what_cannot_be_compared_is_one_line(
    other: str, says: Says, halfwise_cli: CommandLine, fixed: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    model, _, inputs = fixed
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    for index in range(1, 6):
        (inputs / f"{index}.npz").unlink()
    two = onnx.load(model)
    two.graph.input.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, [1]))
    onnx.save(two, tmp_path / "two_inputs.onnx")
    ended = halfwise_cli("verify", model, tmp_path / other, "--inputs", inputs)
    assert ended.code == 2
    assert ended.out == ""
    says(ended.told)
