"""Keeping a fused attention kernel out: the search by itself, and proven with the real compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from halfwise.compiler import rtx
from halfwise.compiler.attention_advice import keep_kernel_out
from halfwise.compiler.attention_regions import Group, find_fp32_region, groups_of
from halfwise.compiler.audit import Audit
from halfwise.compiler.layers_cost import EngineCost
from halfwise.compiler.layers_evidence import NodeAudit
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.precision.widen import is_typed, widened
from tests.models.encoder_attention import encoder_attention
from tests.support.messages import only
from tests.support.says import Says

needs_rtx = pytest.mark.skipif(not rtx.available(), reason="TensorRT-RTX is not installed")

COST = EngineCost(kernels=1, bytes_moved=8, weight_bytes=0, casts=0, reformats=0, unsized=0)


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "attention.onnx"
    onnx.save(model, path)
    return path


# -- the search ------------------------------------------------------------------------------------------------------


def group(tag: str, *scores: str) -> Group:
    return Group(f"qk{tag}", tuple(f"{s}{tag}" for s in scores), f"softmax{tag}", (), f"av{tag}")


def engine(fused: tuple[Group, ...], rest: tuple[Group, ...] = ()) -> Audit:
    def node(name: str, kernel: str | None) -> NodeAudit:
        return NodeAudit(name, "", True, "fp16", "mixed", ("k",), "", kernel)

    nodes = [node(name, "_gemm_mha_v2") for g in fused for name in g.nodes]
    nodes += [node(name, None) for g in rest for name in g.nodes]
    return Audit("a compiler", COST, tuple(nodes), (), ())


def test_candidates_go_from_cheap_to_dear() -> None:
    listed = [set(nodes) for _, nodes in group("", "scale").candidates()]
    products = [len(nodes & {"qk", "av"}) for nodes in listed]
    assert products == sorted(products)
    assert listed[0] == {"softmax"}
    assert listed[-1] == {"qk", "scale", "softmax", "av"}


def test_each_attention_takes_the_first_region_that_frees_it() -> None:
    one, two = group("1", "scale"), group("2", "scale")
    wide: list[frozenset[str]] = []

    def compile_with(names: frozenset[str]) -> Audit:
        wide.append(names)
        freed = [g for g, needed in ((one, {"softmax1"}), (two, {"softmax2", "av2"})) if needed <= names]
        return engine(tuple(g for g in (one, two) if g not in freed), tuple(freed))

    region = find_fp32_region((one, two), ["_gemm_mha_v2"], engine((one, two)), compile_with)
    assert region is not None
    assert region.nodes == ("softmax1", "softmax2", "av2")
    assert region.remaining == ()
    assert [(t.tried, t.freed) for t in region.trials] == [(2, 1), (1, 0), (1, 1)]
    assert wide[-1] == {"softmax1", "softmax2", "av2"}  # the proof holds all of it at once


def test_where_nothing_helps_the_proof_is_of_what_did() -> None:
    one, two = group("1"), group("2")
    wide: list[frozenset[str]] = []

    def compile_with(names: frozenset[str]) -> Audit:
        wide.append(names)
        return engine((two,), (one,)) if "softmax1" in names else engine((one, two))

    region = find_fp32_region((one, two), ["_mha"], engine((one, two)), compile_with)
    assert region is not None
    assert (region.nodes, region.remaining) == (("softmax1",), ("softmax2",))
    assert wide[-1] == {"softmax1"}
    found = only(region.notes(), NoteKind.REGION_FOUND)
    assert (found.subject, found.values["region"], found.values["freed"], found.values["attentions"]) == (
        "_gemm_mha_v2",
        "the softmax",
        1,
        2,
    )


def test_no_region_at_all_is_said() -> None:
    one = group("1")
    region = find_fp32_region((one,), ["_mha"], engine((one,)), lambda names: engine((one,)))
    assert region is not None
    assert region.nodes == ()
    assert list(region.notes()) == [Note.of(NoteKind.REGION_NOT_FOUND, "_gemm_mha_v2", attentions=1)]


def test_another_kernel_is_no_suspect() -> None:
    one = group("1")

    def compile_with(names: frozenset[str]) -> Audit:
        raise AssertionError("nothing to compile")

    assert find_fp32_region((one,), ["_gemv_mha_v1"], engine((one,)), compile_with) is None
    assert find_fp32_region((), ["_mha"], replace(engine((one,)), nodes=()), compile_with) is None


def test_groups_name_the_parts_of_attention(tmp_path: Path) -> None:
    (found,) = groups_of(load(encoder_attention(mask=True)))
    assert found == Group("qk", ("scale", "mask"), "softmax", (), "av")


# -- widening a typed model --------------------------------------------------------------------------------------------


def test_widened_nodes_are_fp32_and_nothing_narrows_between_them(tmp_path: Path) -> None:
    source = load(encoder_attention())
    typed = load(write_typed(Assignment.all_narrow(Sites(source)), tmp_path / "typed.onnx").path)
    assert is_typed(typed)
    assert not is_typed(source)
    proto = widened(typed, {"softmax", "av", "no such node"})
    onnx.checker.check_model(proto, full_check=True)
    after = load(proto)
    types = {name: after.node_by_name[name].outputs[0].dtype for name in ("scale", "softmax", "av")}
    assert {name: str(dtype) for name, dtype in types.items()} == {
        "scale": "FLOAT16",
        "softmax": "FLOAT",
        "av": "FLOAT",
    }
    assert after.node_by_name["av"].inputs[0] is after.node_by_name["softmax"].outputs[0]
    assert [value.dtype for value in after.graph.outputs] == [value.dtype for value in typed.graph.outputs]


# -- with the compiler -------------------------------------------------------------------------------------------------


@needs_rtx
@pytest.mark.parametrize("mask", [False, True])
def test_rtx_drops_the_fused_kernel_before_and_after(tmp_path: Path, mask: bool) -> None:
    region = keep_kernel_out(saved(tmp_path, encoder_attention(mask)), ["_gemm_mha_v2"])
    assert region is not None
    assert region.kernel == "_gemm_mha_v2"
    assert region.remaining == ()
    assert "softmax" in region.nodes
    assert len(region.nodes) < 4  # less than the whole attention
    assert region.trials[0].title == "the softmax"
    assert region.trials[0].freed == 0  # a cast on each side of it is swallowed
    assert region.audit.attention_kernels == ()
    assert region.audit.cost.kernels > region.before.kernels


@needs_rtx
def test_a_typed_model_gets_the_same_answer(tmp_path: Path) -> None:
    path = saved(tmp_path, encoder_attention())
    typed = write_typed(Assignment.all_narrow(Sites(load(path))), tmp_path / "typed.onnx").path
    plain, given = keep_kernel_out(path, ["_mha"]), keep_kernel_out(typed, ["_mha"])
    assert plain is not None
    assert given is not None
    assert plain.nodes == given.nodes


def test_a_model_without_attention_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtx, "build", None)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], "relu")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    assert keep_kernel_out(saved(tmp_path, model), ["_mha"]) is None


@needs_rtx
def test_advise_names_the_region(tmp_path: Path, says: Says) -> None:
    from halfwise.cli.main import app

    path = saved(tmp_path, encoder_attention())
    shown = CliRunner().invoke(app, ["advise", "--target", "trt-10.0.0", str(path)]).stdout
    assert "TRT-MHA-V2-1000" in shown
    says(shown, "_gemm_mha_v2 stays out")
    document = json.loads(CliRunner().invoke(app, ["advise", "--target", "trt-10.0.0", str(path), "--json"]).stdout)
    assert document["island"]["nodes"] == ["softmax", "av"]
    assert document["island"]["before"]["kernels"] < document["island"]["after"]["kernels"]


def test_advise_without_the_compiler_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    from halfwise.cli.main import app

    monkeypatch.setattr(rtx, "available", lambda: False)
    path = saved(tmp_path, encoder_attention())
    result = CliRunner().invoke(app, ["advise", "--target", "trt-10.0.0", str(path)])
    assert result.exit_code == 0
    says(result.stdout, "note: how to")
    assert "pip install 'halfwise[rtx]'" in result.stdout


def test_a_large_typed_model_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    import halfwise.compiler.attention_advice as advice

    typed = write_typed(Assignment.all_narrow(Sites(load(encoder_attention()))), tmp_path / "typed.onnx").path
    monkeypatch.setattr(advice, "_MOST_BYTES", 1)
    with says.raises(InputError):
        keep_kernel_out(typed, ["_mha"])
