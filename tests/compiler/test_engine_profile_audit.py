"""Engine profiles from audits and from real builds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.compiler import rtx
from halfwise.compiler.audit import Audit, NodeInfo, audit
from halfwise.compiler.compiled import Compiler
from halfwise.compiler.engine_profile import kernels_of, profile_of, sums_note
from halfwise.compiler.layers import read_layers
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.profiles import ENGINE, TENSORRT, EngineKernel, Profile
from halfwise.emulation.profiles.fusions import fused_nodes
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from tests.models.build import node
from tests.support.engine_profiles import drawn, h, one, run

needs_rtx = pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")


# -- from an audit -----------------------------------------------------------------------------------------------------


def layer(name: str, kind: str, nodes: str, tactic: str, types: tuple[str, str] = ("Half", "Half")) -> dict[str, Any]:
    tensors = [{"Name": f"{name}{i}", "Dimensions": [4, 4], "Format/Datatype": each} for i, each in enumerate(types)]
    metadata = "\x1f".join(f"[ONNX Layer: {each}]" for each in nodes.split())
    return {
        "Name": name, "LayerType": kind, "Inputs": tensors[:1], "Outputs": tensors[1:], "TacticName": tactic,
        "StreamId": 0, "Metadata": metadata,
    }  # fmt: skip


def listed(*layers: dict[str, Any], wanted: Sequence[str] = ()) -> Audit:
    infos = [NodeInfo(f"n_{name}", op, declared="fp16") for name, op in (("a", "MatMul"), ("y", "Add"))]
    engine = read_layers(json.dumps({"Layers": list(layers), "Bindings": []}))
    return audit(engine, None, infos, dict.fromkeys(wanted, Format.FP32), "the engine")


def test_an_audit_hands_its_kernels_over() -> None:
    found = listed(
        layer("n_a_myl0_1", "gemm", "n_a", "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n"),
        layer("__myl_AddMove_myl0_2", "kgen", "n_y", "__myl_AddMove_0x12"),
        wanted=["n_a"],
    )
    assert kernels_of(found) == (
        EngineKernel("n_a_myl0_1", ("n_a",), (), False, True),
        EngineKernel("__myl_AddMove_myl0_2", ("n_y",), ("Add", "Move")),
    )
    profile = profile_of(found)
    assert profile.name == ENGINE and profile.inferred and profile.reverted == {"n_a"}
    assert sums_note(found) == Note.of(NoteKind.SUMS_IN_FP16, count=1, kernels=["n_a_myl0_1"])


def test_what_an_engine_tells_of_its_accumulators() -> None:
    wide = layer("n_a_myl0_1", "gemm", "n_a", "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n")
    assert sums_note(listed(wide)) == Note.of(NoteKind.SUMS_IN_FP32, matrix=1, named=1)
    silent = layer("n_a_myl0_1", "gemm", "n_a", "__myelin_CASK_STUB")
    assert sums_note(listed(silent)) == Note.of(NoteKind.SUMS_UNKNOWN)


def test_a_kernel_that_only_counts_says_nothing_of_its_nodes_type() -> None:
    found = listed(
        layer("__myl_Move_myl0_0", "kgen", "n_a", "", ("Int32", "Int32")),
        layer("n_a_myl0_1", "gemm", "n_a", "", ("Float", "Float")),
        wanted=["n_a"],
    )
    [node] = [each for each in found.nodes if each.node == "n_a"]
    assert (node.precision, node.coverage) == ("fp32", "exact") and not found.violations
    assert node.kernels == ("__myl_Move_myl0_0", "n_a_myl0_1")


def test_a_region_is_no_kernel() -> None:
    assert kernels_of(listed(layer("{ForeignNode[n_a...n_y]}", "Myelin", "n_a n_y", ""))) == ()


# -- real builds -------------------------------------------------------------------------------------------------------


def compiled(proto: onnx.ModelProto, folder: Path) -> tuple[Profile, Assignment]:
    ours = Decision(Sites(load(proto)), {}, Format.FP32)
    return profile_of(Compiler(folder, {})(ours)), ours.assignment


@needs_rtx
def test_a_real_build_groups_products_with_what_follows_them(tmp_path: Path) -> None:
    x = drawn(1, 32, 64)
    nodes = [
        node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Erf", "c", "d"), node("MatMul", "d w", "e"),
        node("Sigmoid", "e", "f"), node("Mul", "e f", "y"),
    ]  # fmt: skip
    profile, assignment = compiled(one(nodes, x.shape, w=drawn(2, 64, 64), b=drawn(3, 64)), tmp_path)
    assert {each.name for each in fused_nodes(assignment, profile.fusion).wide} == {"a", "f"}


@needs_rtx
def test_a_real_build_keeps_attention_in_one_kernel(tmp_path: Path) -> None:
    x = drawn(1, 1, 4, 64, 32)
    nodes = [
        node("Transpose", "x", "k", perm=[0, 1, 3, 2]), node("MatMul", "x k", "s"), node("Mul", "s f", "t"),
        node("Softmax", "t", "p", axis=-1), node("MatMul", "p x", "y"),
    ]  # fmt: skip
    profile, assignment = compiled(one(nodes, x.shape, f=np.float32(0.2)), tmp_path)
    assert {each.name for each in fused_nodes(assignment, profile.fusion).wide} == {"s", "t"}


@needs_rtx
@pytest.mark.parametrize(("length", "wide"), [(1024, True), (32768, False)])
def test_a_real_build_takes_statistics_of_long_rows_in_fp16(length: int, wide: bool, tmp_path: Path) -> None:
    x = h(400 * drawn(1, 2, length))
    proto = one([node("LayerNormalization", "x g b", "y", axis=-1)], x.shape, g=drawn(2, length), b=drawn(3, length))
    profile, assignment = compiled(proto, tmp_path)
    assert np.array_equal(run(profile, assignment, x=x), run(TENSORRT, assignment, x=x)) == wide
