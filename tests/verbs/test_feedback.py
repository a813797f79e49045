"""`fix` judges by the kernels of the engine that it compiled: where they miss, it searches once more or says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise import InputError, fix
from halfwise.compiler import rtx
from halfwise.compiler.audit import audit
from halfwise.compiler.compiled import Compiled, node_infos
from halfwise.compiler.layers import read_layers
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.profiles import ENGINE
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.plan import read_plan
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only
from tests.support.says import Says

needs_rtx = pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")

# As TensorRT-RTX 1.7.1 lists a norm over 32,768 values in FP16, and one over 1,024.
NARROW = ["__myl_CastMean_myl0_1", "__myl_SubMulMean_myl0_3", "__myl_AddSqrtDivMulMulAddCast_myl0_4"]
WIDE = ["__myl_CastCastMeanSubMulMeanAddSqrtDivMulCastMulAddCast_myl0_0"]


def long_norm(length: int = 64) -> onnx.ModelProto:
    """Squares of its values leave FP16; a norm with wide statistics does not mind."""
    rng = np.random.default_rng(0)
    weights = {
        "g": np.ones(length),
        "b": np.zeros(length),
        "w": rng.standard_normal((length, 8)) / np.sqrt(length),
    }
    return model(
        [node("LayerNormalization", "x g b", "l", axis=-1), node("MatMul", "l w", "y")],
        [value("x", shape=(2, length))],
        [value("y", shape=(2, 8))],
        [weight(name, array.astype(np.float32)) for name, array in weights.items()],
    )


def inputs(length: int = 64) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{"x": (400 * rng.standard_normal((2, length))).astype(np.float32)} for _ in range(4)]


def layer(name: str, nodes: str, types: str, tactic: str = "") -> dict[str, Any]:
    tensors = [{"Name": name + end, "Dimensions": [2, 64], "Format/Datatype": types} for end in ("_in", "_out")]
    return {
        "Name": name, "LayerType": "kgen", "Inputs": tensors[:1], "Outputs": tensors[1:], "TacticName": tactic,
        "StreamId": 0, "Metadata": f"[ONNX Layer: {nodes}]",
    }  # fmt: skip


def compiles_to(
    norm: Sequence[str], monkeypatch: pytest.MonkeyPatch, *, obeys: bool = True, tactic: str = ""
) -> list[Decision]:
    """A compiler whose norm has these kernels in FP16, and takes it back to FP16 unless it `obeys`."""
    seen: list[Decision] = []

    def compile_and_adjust(decision: Decision, **others: Any) -> Compiled:
        seen.append(decision)
        kept = {each.name for each in decision.formats}
        types = "Float" if "n_l" in kept and obeys else "Half"
        layers = [layer(name, "n_l", types) for name in (["__myl_MeanSubMulMean_0"] if types == "Float" else norm)]
        layers.append(layer("n_y_myl0_9", "n_y", "Half", tactic))
        engine = read_layers(json.dumps({"Layers": layers, "Bindings": []}))
        return Compiled(
            Adjustment(decision), audit(engine, None, node_infos(decision), decision.wanted), "TensorRT-RTX 9.9"
        )

    monkeypatch.setattr("halfwise.deploy.targets.tensorrt.compile_and_adjust", compile_and_adjust)
    return seen


def fixed(proto: onnx.ModelProto, feeds: Sequence[dict[str, Any]], **options: Any) -> Any:
    return fix(proto, feeds, **{"target": "rtx-1.7", "repairs": "none", **options})


def test_kernels_that_do_as_the_table_says_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = compiles_to(WIDE, monkeypatch)
    result = fixed(long_norm(), inputs())
    assert result.met and not result.plan.nodes and len(seen) == 1
    assert set(result.by_profile) == {"strict", "wide", "tensorrt", ENGINE}
    assert result.by_profile[ENGINE] == result.by_profile["tensorrt"]
    document = result.to_json()
    assert set(document["profiles"]) == set(result.by_profile)
    note = only(result.notes, NoteKind.ENGINE_JUDGES)
    assert note.values == {"profile": ENGINE, "compiler": "TensorRT-RTX 9.9", "held": 2, "computing": 2}
    assert NoteKind.SUMS_UNKNOWN in kinds(result.notes)


def test_a_norm_that_the_engine_takes_narrow_is_kept_after_a_second_search(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = compiles_to(NARROW, monkeypatch)
    result = fixed(long_norm(), inputs())
    assert [sorted(each.name or "" for each in decision.formats) for decision in seen] == [[], ["n_l"]]
    assert result.met and not result.fp16_verdict.met
    [kept] = result.plan.nodes
    assert (kept.name, kept.why) == ("n_l", "compiler")
    assert kept.because == (Note.of(NoteKind.OWN_KERNELS_MISS, kernels=", ".join(NARROW)),)
    assert NoteKind.SEARCHED_TWICE in kinds(result.notes)
    assert all(load <= 1 for load in result.by_profile.values())


def test_what_a_second_search_kept_for_nothing_is_reverted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three products behind the norm: only the norm is needed, and only it says that its kernels would miss."""
    compiles_to(NARROW, monkeypatch)
    proto = long_norm()
    proto.graph.node[1].output[0] = "p"
    square = weight("v", np.eye(8, dtype=np.float32))
    proto.graph.initializer.append(square)
    proto.graph.node.extend([node("MatMul", "p v", "q"), node("MatMul", "q v", "y")])
    for profile in ("tensorrt", "tensorrt-fp16-accumulate"):
        result = fixed(proto, inputs()[:1], profile=profile)
        assert result.met and [(each.name, each.why) for each in result.plan.nodes] == [("n_l", "compiler")]


def test_an_engine_that_misses_whatever_is_decided_is_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles_to(NARROW, monkeypatch, obeys=False)
    result = fixed(long_norm(), inputs())
    assert not result.met and result.to_json()["status"] == "not-met"
    assert result.by_profile[ENGINE] > 1 >= result.by_profile["tensorrt"]
    assert NoteKind.SEARCHED_TWICE_IN_VAIN in kinds(result.notes)


def test_a_node_that_the_engine_takes_back_counts_as_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a plan nothing is searched; the plan's own node in FP16 misses what the table says is kept."""
    compiles_to(NARROW, monkeypatch)
    first = fixed(long_norm(), inputs(), out=tmp_path)
    assert first.met and [each.name for each in first.plan.nodes] == ["n_l"]
    seen = compiles_to(NARROW, monkeypatch, obeys=False)
    applied = fixed(long_norm(), inputs(), plan=read_plan(first.plan_path))
    assert len(seen) == 1 and not applied.met
    assert applied.by_profile["tensorrt"] <= 1 < applied.by_profile[ENGINE]
    assert only(applied.notes, NoteKind.ENGINE_REVERTS).values == {"profile": ENGINE, "nodes": ["n_l"]}
    assert applied.plan.nodes == first.plan.nodes


@pytest.mark.parametrize(
    ("tactic", "kind", "worse"),
    [
        ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n", NoteKind.SUMS_IN_FP16, True),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n", NoteKind.SUMS_IN_FP32, False),
    ],
)
def test_a_tactic_that_accumulates_in_fp16_counts(
    monkeypatch: pytest.MonkeyPatch, tactic: str, kind: NoteKind, worse: bool
) -> None:
    compiles_to(WIDE, monkeypatch, tactic=tactic)
    result = fixed(long_norm(2048), inputs(2048))
    assert (result.by_profile[ENGINE] > 1.5 * result.by_profile["tensorrt"]) == worse
    assert kind in kinds(result.notes)


def test_a_list_that_ties_no_kernel_to_a_node_leaves_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_and_adjust(decision: Decision, **others: Any) -> Compiled:
        region = layer("{ForeignNode[n_l...n_y]}", "n_l", "Half") | {"LayerType": "Myelin", "Metadata": ""}
        engine = read_layers(json.dumps({"Layers": [region], "Bindings": []}))
        return Compiled(
            Adjustment(decision), audit(engine, None, node_infos(decision), decision.wanted), "TensorRT 8.6"
        )

    monkeypatch.setattr("halfwise.deploy.targets.tensorrt.compile_and_adjust", compile_and_adjust)
    result = fixed(long_norm(), inputs())
    assert set(result.by_profile) == {"strict", "wide", "tensorrt"}
    assert NoteKind.NO_KERNEL_TIED in kinds(result.notes)


@pytest.mark.parametrize("target", ["rtx-1.7", "trt-8.6"])
def test_where_nothing_was_compiled_the_table_judges(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    result = fixed(long_norm(), inputs(), target=target)
    assert result.met and set(result.by_profile) == {"strict", "wide", "tensorrt"}
    assert NoteKind.NO_ENGINE in kinds(result.notes)


@pytest.mark.parametrize(("target", "profile"), [("onnx", None), ("ort-cuda", None), ("rtx-1.7", "strict")])
def test_other_profiles_are_no_matter_of_the_engine(
    target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles_to(NARROW, monkeypatch)
    result = fixed(long_norm(), inputs(), target=target, profile=profile)
    assert result.met and ENGINE not in result.by_profile


def test_the_profile_that_accumulates_in_fp16_can_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles_to(WIDE, monkeypatch)
    result = fixed(long_norm(2048), inputs(2048), profile="tensorrt-fp16-accumulate", tolerance="rel_l2<=0.003")
    assert set(result.by_profile) == {"strict", "wide", "tensorrt", "tensorrt-fp16-accumulate", ENGINE}
    assert result.met and "n_y" in {each.name for each in result.plan.nodes}
    assert result.plan.profile == "tensorrt-fp16-accumulate"


@needs_rtx
def test_a_real_engine_keeps_what_its_kernels_would_overflow() -> None:
    result = fixed(long_norm(32768), inputs(32768)[:3])
    assert result.met and [(each.name, each.why) for each in result.plan.nodes] == [("n_l", "compiler")]
    assert ENGINE in result.by_profile


@needs_rtx
def test_a_real_engine_of_shorter_rows_agrees_with_the_table() -> None:
    result = fixed(long_norm(1024), inputs(1024)[:3])
    assert result.met and not result.plan.nodes
    assert result.by_profile[ENGINE] == pytest.approx(result.by_profile["tensorrt"], rel=0.2)


# -- an engine of the user's -------------------------------------------------------------------------------------------


def listed(folder: Path, norm: Sequence[str], tactic: str = "") -> Path:
    layers = [layer(name, "n_l", "Half") for name in norm] + [layer("n_y_myl0_9", "n_y", "Half", tactic)]
    path = folder / "engine.layers.json"
    path.write_text(json.dumps({"Layers": layers, "Bindings": []}))
    return path


@pytest.mark.parametrize(("norm", "met"), [(WIDE, True), (NARROW, False)])
def test_the_layers_of_a_built_engine_judge_the_plan_it_was_built_from(
    norm: list[str], met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    plan = fixed(long_norm(), inputs(), target="trt-10.9").plan
    assert not plan.nodes
    result = fixed(long_norm(), inputs(), target=None, plan=plan, layers=listed(tmp_path, norm))
    assert result.met == met
    assert set(result.by_profile) == {"strict", "wide", "tensorrt", ENGINE}
    note = only(result.notes, NoteKind.ENGINE_JUDGES)
    assert (note.values["compiler"], note.values["held"]) == ("TensorRT as engine.layers.json lists it", 2)
    assert NoteKind.NEAREST_COMPILER not in kinds(result.notes)


def test_layers_of_another_engine_are_refused(tmp_path: Path, says: Says) -> None:
    plan = fixed(long_norm(), inputs(), target="trt-8.6").plan
    path = tmp_path / "engine.layers.json"
    path.write_text(json.dumps({"Layers": [layer("other", "other", "Half")], "Bindings": []}))
    with says.raises(InputError):
        fixed(long_norm(), inputs(), target=None, plan=plan, layers=path)


def test_layers_belong_to_a_plan_and_to_tensorrt(tmp_path: Path, says: Says) -> None:
    path = listed(tmp_path, WIDE)
    with pytest.raises(InputError, match="layers need the plan"):
        fixed(long_norm(), inputs(), layers=path)
    plan = fixed(long_norm(), inputs(), target="onnx").plan
    with says.raises(InputError):
        fixed(long_norm(), inputs(), target=None, plan=plan, layers=path)
