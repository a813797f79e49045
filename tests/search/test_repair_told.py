"""What is told of repairs: their algebra and what they bought, the cost of lossy ones, the kernels they leave."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from halfwise.compiler import rtx
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.precision.plan import read_plan
from halfwise.repair import rules_for, rules_named
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import SHAPES, cnn_tiny_weights, encoder
from tests.support.command_line import CommandLine, save
from tests.support.messages import kinds, only
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


def test_explain_tells_where_what_and_what_it_bought(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    words = ("fix", model, "--inputs", inputs, "--out", tmp_path / "out")
    line = next(line for line in halfwise_cli(*words, "--explain").out.splitlines() if "HW402" in line)
    says(line)
    entry = halfwise_cli(*words, "--json").document["repairs"][0]
    assert (entry["saved_fp32_nodes"], entry["saved"]) == (2, ["/norm/Pow", "/norm/ReduceMean_1"])
    assert entry["algebra"] in line


def test_explain_where_nothing_was_repaired(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    model, inputs = save(SHAPES["healthy_mlp"](), tmp_path)
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--explain")
    says(ended.out, "repairs: none; no")


def test_each_repair_names_the_nodes_that_it_saved() -> None:
    zoo = encoder(layers=2)
    plain, repaired = (fix(zoo.model, zoo.inputs[:4], repairs=(word,)) for word in ("none", "all"))
    saved = [name for entry in repaired.plan.repairs for name in entry.saved]
    assert {node.name for node in plain.plan.nodes} <= set(saved)
    assert len(set(saved)) == len(saved)
    for entry in repaired.plan.repairs:
        assert set(entry.saved) <= set(entry.nodes)


def test_clip_weights_is_measured_beside_the_exact_rescaling() -> None:
    zoo = cnn_tiny_weights("tensors")
    result = fix(zoo.model, zoo.inputs[:6], repairs=("clip-weights",))
    clipped, exact = only(result.notes, NoteKind.LOSSY_COST), only(result.notes, NoteKind.LOSSY_COST_BESIDE)
    assert (clipped.subject, clipped.values["weights"], exact.values["fp32"]) == ("clip-weights", 8, 0)
    assert 0.95 < clipped.values["fp32"] < 1.1
    assert NoteKind.LOSSY_COST not in kinds(fix(zoo.model, zoo.inputs[:6]).notes)


def test_clip_weights_with_nothing_to_clip() -> None:
    zoo = SHAPES["healthy_mlp"]()
    result = fix(zoo.model, zoo.inputs[:4], repairs=("clip-weights",))
    assert "clip-weights" in {note.subject for note in result.notes}


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "unread"),
    [
        ("trt-8.4", {"LayerNormalization", "GroupNormalization", "RMSNormalization", "DFT", "STFT"}),
        ("trt-8", {"LayerNormalization", "GroupNormalization", "RMSNormalization", "DFT", "STFT"}),
        ("trt-8.5.3", {"LayerNormalization", "GroupNormalization", "RMSNormalization", "DFT", "STFT"}),
        ("trt-8.6", {"GroupNormalization", "RMSNormalization", "DFT", "STFT"}),
        ("trt-10.8", {"GroupNormalization", "RMSNormalization", "DFT"}),
        ("trt-10.9", {"RMSNormalization", "DFT"}),
        ("trt-10.14", {"RMSNormalization", "DFT"}),
        ("trt-10.4", {"GroupNormalization", "RMSNormalization", "DFT", "STFT"}),
        ("trt-10.5", {"GroupNormalization", "RMSNormalization", "DFT"}),
        ("trt-10.15", {"DFT"}),
        ("trt-10.16", {"DFT"}),
        ("trt-11.1", {"DFT"}),
        ("trt-11.2", set()),
        ("rtx-1.7", set()),
        ("ort-cuda", set()),
        ("onnx", set()),
    ],
)
def test_operators_that_a_target_does_not_read(target: str, unread: set[str]) -> None:
    assert set(Target.parse(target).unread_operators) == unread
    rule = rules_for(Target.parse(target), rules_named(["norm-operator"]))[0]
    assert rule.unread == unread  # type: ignore[attr-defined]


def test_a_norm_for_a_target_without_the_operator_stays_at_the_opset_it_has(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs[:4], target="trt-8.5", out=tmp_path)
    assert result.met
    assert [entry.rule for entry in result.plan.repairs] == ["HW402"]
    assert result.typed is not None
    written = onnx.load(result.typed.path)
    assert written.opset_import[0].version == zoo.model.opset_import[0].version
    assert "LayerNormalization" not in {node.op_type for node in written.graph.node}


def test_a_plan_whose_operator_the_target_does_not_read_is_refused(tmp_path: Path, says: Says) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    made = fix(zoo.model, zoo.inputs[:4], out=tmp_path)
    assert made.plan_path is not None
    with pytest.raises(InputError) as caught:
        fix(zoo.model, zoo.inputs[:4], target="trt-8.5", plan=read_plan(made.plan_path))
    says(caught.value)


# -- fusion ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_the_kernels_before_and_after_are_told() -> None:
    zoo = encoder(layers=1)
    result = fix(zoo.model, zoo.inputs[:4], target="rtx-1.7")
    repaired = len(result.plan.repairs)
    norms, fusion = only(result.notes, NoteKind.NORMS_FUSED), only(result.notes, NoteKind.FUSION)
    assert norms == Note.of(NoteKind.NORMS_FUSED, "LayerNormalization", fused=repaired, norms=repaired, wide=repaired)
    assert only(result.notes, NoteKind.ATTENTION_STAYS_FUSED).values["kernels"] == ["_gemm_mha_v2"]
    assert 0 < fusion.values["after"] <= fusion.values["before"]
    assert result.deploy_files.compiled is not None
    assert result.deploy_files.compiled.builds == 2  # what the comparison costs is in the account


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_the_time_limit_holds_for_the_comparison_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    build = rtx.build
    monkeypatch.setattr(
        rtx, "build", lambda *given, **how: (limits.append(how["time_limit_s"]), build(*given, **how))[1]
    )
    fix(encoder(layers=1).model, encoder(layers=1).inputs[:4], target="rtx-1.7", time_limit_s=77.0)
    assert limits == [77.0, 77.0]


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_without_repairs_no_kernels_are_compared() -> None:
    zoo = SHAPES["healthy_mlp"]()
    assert NoteKind.FUSION not in kinds(fix(zoo.model, zoo.inputs[:4], target="rtx-1.7").notes)
