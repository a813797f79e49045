"""Norms in two formats: what ONNX Runtime makes of them is foreseen, kept in one kernel, and never refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.deploy.onnxruntime.norm_kernels import adjust_norms, refusal_note
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import ORT_CUDA, ORT_CUDA_UNFUSED
from halfwise.emulation.profiles.fusions import fused_nodes
from halfwise.emulation.profiles.norm_fusions import Outcome, norms_of, outcome
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair import rules_for, rules_named
from halfwise.repair.rule import Ranges
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.models.zoo import encoder
from tests.support.messages import kinds, only

WIDTH = 32
KNOWN = pytest.mark.skipif(
    tuple(int(part) for part in ort.__version__.split(".")[:2]) < (1, 23),
    reason="this ONNX Runtime fuses norms in another way, and crashes on some in two formats; 1.23 and later are known",
)
LAYER_NORM = ("mean1", "sub", "square", "mean2", "guard", "root", "normal", "scaled", "shifted")
BODY = frozenset({"square", "mean2", "guard", "root", "normal"})


def layer_norm(opset: int = 17, *, inverse: bool = False, skip: bool = False, epsilon: float = 1e-5) -> onnx.ModelProto:
    """Add, LayerNorm in nine nodes, Relu; or, with `skip`, an Add of what entered the norm."""
    axes = {} if opset >= 18 else {"axes": [-1]}
    by = " axes" if opset >= 18 else ""
    nodes = [
        node("Add", "x zero", "stream"),
        node("ReduceMean", f"stream{by}", "mean1", **axes),
        node("Sub", "stream mean1", "sub"),
        node("Pow", "sub two", "square"),
        node("ReduceMean", f"square{by}", "mean2", **axes),
        node("Add", "mean2 eps", "guard"),
        node("Sqrt", "guard", "root"),
        *([node("Div", "one root", "inverse"), node("Mul", "sub inverse", "normal")] if inverse else
          [node("Div", "sub root", "normal")]),
        node("Mul", "normal gamma", "scaled"),
        node("Add", "scaled beta", "shifted"),
        node("Add", "shifted stream", "end") if skip else node("Relu", "shifted", "end"),
    ]  # fmt: skip
    return _closed(nodes, opset, epsilon)


def rms_norm(*, inverse: bool = False, epsilon: float = 1e-5) -> onnx.ModelProto:
    nodes = [
        node("Add", "x zero", "stream"),
        node("Pow", "stream two", "square"),
        node("ReduceMean", "square", "mean2", axes=[-1]),
        node("Add", "mean2 eps", "guard"),
        node("Sqrt", "guard", "root"),
        *([node("Div", "one root", "inverse"), node("Mul", "stream inverse", "normal")] if inverse else
          [node("Div", "stream root", "normal")]),
        node("Mul", "gamma normal", "scaled"),
        node("Relu", "scaled", "end"),
    ]  # fmt: skip
    return _closed(nodes, 17, epsilon)


def _closed(nodes: list[onnx.NodeProto], opset: int, epsilon: float = 1e-5) -> onnx.ModelProto:
    for each in nodes:
        each.name = each.output[0]
    rng = np.random.default_rng(4)
    weights = [
        weight("zero", np.zeros(WIDTH, np.float32)),
        weight("two", np.float32(2.0)),
        weight("one", np.float32(1.0)),
        weight("eps", np.float32(epsilon)),
        weight("gamma", rng.uniform(1, 2, WIDTH).astype(np.float32)),
        weight("beta", rng.standard_normal(WIDTH).astype(np.float32)),
        weight("axes", np.array([-1], np.int64)),
    ]
    used = {name for each in nodes for name in each.input}
    kept = [each for each in weights if each.name in used]
    return model(nodes, [value("x", shape=(4, WIDTH))], [value("end", shape=(4, WIDTH))], kept, opset)


def assigned(loaded: Model, wide: frozenset[str], io: Format = Format.FP16) -> Assignment:
    sites = Sites(loaded)
    return Assignment.all_narrow(sites, frozenset(loaded.node_by_name[name] for name in wide), io)


def seen(assignment: Assignment, folder: Path) -> Outcome:
    """What this ONNX Runtime makes of the norm before it chooses a provider."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    try:
        ort.InferenceSession(typed_proto(assignment).SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:
        assert "bound to different types" in str(error)
        return Outcome.REFUSED
    left = onnx.load(options.optimized_model_filepath).graph.node
    return Outcome.FUSED if any(each.op_type == "LayerNormalization" for each in left) else Outcome.PIECES


@KNOWN
@pytest.mark.parametrize(("opset", "inverse", "skip"), [(17, False, False), (18, True, False), (17, False, True)])
def test_what_onnx_runtime_makes_of_any_run_of_fp32_nodes_is_foreseen(
    opset: int, inverse: bool, skip: bool, tmp_path: Path
) -> None:
    loaded = load(layer_norm(opset, inverse=inverse, skip=skip))
    (norm,) = norms_of(loaded)
    names = [each.name or "" for each in norm.nodes]
    runs = [frozenset(names[a:b]) for a in range(len(names)) for b in range(a + 1, len(names) + 1)]
    tally: Counter[Outcome] = Counter()
    for run in (frozenset[str](), *runs):
        for more in (frozenset[str](), frozenset({"stream"}), frozenset({"end"})):
            assignment = assigned(loaded, run | more)
            foreseen = outcome(norm, assignment)
            tally[foreseen] += 1
            assert foreseen is seen(assignment, tmp_path), sorted(run | more)
    assert tally[Outcome.FUSED] >= 8
    assert tally[Outcome.REFUSED] >= 8


@KNOWN
@pytest.mark.parametrize(
    ("epsilon", "narrow"), [(1e-12, Outcome.PIECES), (2.9e-8, Outcome.PIECES), (6e-8, Outcome.FUSED)]
)
def test_an_epsilon_that_fp16_does_not_hold_leaves_a_norm_in_pieces(
    epsilon: float, narrow: Outcome, tmp_path: Path
) -> None:
    loaded = load(layer_norm(epsilon=epsilon))
    (norm,) = norms_of(loaded)
    for wide, wanted in ((frozenset[str](), narrow), (BODY, Outcome.FUSED)):
        assert outcome(norm, assigned(loaded, wide)) is wanted
        assert seen(assigned(loaded, wide), tmp_path) is wanted
    assert adjusted(loaded, frozenset()) == (BODY if narrow is Outcome.PIECES else set())


def test_a_square_by_mul_and_a_scale_that_is_no_vector_are_not_fused() -> None:
    square = layer_norm()
    square.graph.node[3].CopyFrom(node("Mul", "sub sub", "square"))
    assert norms_of(load(square)) == ()
    matrix = layer_norm()
    gamma = next(tensor for tensor in matrix.graph.initializer if tensor.name == "gamma")
    gamma.CopyFrom(weight("gamma", np.ones((4, WIDTH), np.float32)))
    assert norms_of(load(matrix)) == ()


# -- emulation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("layered", [False, True])
def test_a_fused_norm_in_two_formats_rounds_at_its_border_only(inverse: bool, layered: bool) -> None:
    loaded = load(layer_norm(inverse=inverse) if layered else rms_norm(inverse=inverse))
    (norm,) = norms_of(loaded)
    assignment = assigned(loaded, frozenset(each.name or "" for each in norm.body))
    x = (np.random.default_rng(2).standard_normal((4, WIDTH)) * 900).astype(np.float16).astype(np.float32)
    found = Emulator(ORT_CUDA).session(assignment).run({"x": x})["end"]
    weights = {
        name: np.asarray(v.const_value.numpy()) for name, v in loaded.graph.initializers.items() if v.const_value
    }
    gamma, beta = (weights[name].astype(np.float16).astype(np.float64) if name in weights else 0.0
                   for name in ("gamma", "beta"))  # fmt: skip
    wide = x.astype(np.float64)
    wide = wide - wide.mean(-1, keepdims=True) if layered else wide
    exact = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta
    wanted = np.maximum(exact, 0).astype(np.float16)
    assert np.mean(found == wanted) > 0.99
    apart = Emulator(ORT_CUDA_UNFUSED).session(assignment).run({"x": x})["end"]
    assert np.mean(apart == wanted) < 0.9


def test_within_a_norm_in_pieces_the_rms_norm_is_fused() -> None:
    loaded = load(layer_norm())
    sites = Sites(loaded)
    for wide, norms in ({"shifted"}, ["rms-norm"]), ({"mean1"}, ["rms-norm"]), ({"root"}, []), (set(), ["layer-norm"]):
        assignment = Assignment.all_narrow(sites, frozenset(loaded.node_by_name[name] for name in wide))
        assert [each.kind for each in fused_nodes(assignment, "ort").ending.values()] == norms


def test_a_fused_rms_norm_in_fp16_has_an_epsilon_of_its_own() -> None:
    tiny = np.full((4, WIDTH), 2.0**-9, np.float32)
    gamma = np.asarray(load(rms_norm()).graph.initializers["gamma"].const_value.numpy())  # type: ignore[union-attr]
    for epsilon, wide, taken in ((1e-4, set(), 1e-5), (1e-4, BODY, 1e-4), (1e-5, set(), np.float16(1e-5))):
        loaded = load(rms_norm(epsilon=epsilon))
        assignment = assigned(loaded, frozenset(wide))
        found = Emulator(ORT_CUDA).session(assignment).run({"x": tiny})["end"]
        wanted = tiny / np.sqrt(tiny.astype(np.float64) ** 2 + float(taken)) * gamma.astype(np.float16)
        assert np.allclose(found, wanted, rtol=2e-3), epsilon


def test_a_product_with_an_inverse_is_a_quotient() -> None:
    nodes = [node("Div", "one x", "inverse"), node("Mul", "a inverse", "y")]
    proto = model(nodes, [value("x"), value("a")], [value("y")], [weight("one", np.float32(1.0))])
    rng = np.random.default_rng(8)
    x, a = (rng.uniform(1, 2, 4).astype(np.float16).astype(np.float32) for _ in range(2))
    found = Emulator(ORT_CUDA).session(assigned(load(proto), frozenset())).run({"x": x, "a": a})["y"]
    assert np.array_equal(found, (a / x).astype(np.float16))


# -- decisions -------------------------------------------------------------------------------------------------------


def adjusted(loaded: Model, wide: frozenset[str], *, fused: bool = True, holds: bool = True) -> set[str]:
    """The names of what is in FP32 afterwards; it loads."""
    sites = Sites(loaded)
    formats = {loaded.node_by_name[name]: Format.FP32 for name in wide}
    about = Adjustable(sites, Format.FP16, frozenset(), lambda _: holds)
    found = adjust_norms(about, Adjustment(Decision(sites, formats, Format.FP16)), fused=fused)
    names = {each.name or "" for each in found.decision.formats}
    assert {each.name for each in found.added} == names - wide
    assert all(each.why == "compiler" for each in found.added)
    assert outcome(norms_of(loaded)[0], assigned(loaded, frozenset(names))) is not Outcome.REFUSED
    return names


def test_a_norm_with_fp32_statistics_stays_one_kernel() -> None:
    assert adjusted(load(layer_norm()), frozenset({"square", "mean2"})) == BODY
    assert adjusted(load(layer_norm(18, inverse=True)), frozenset({"square", "mean2"})) == {*BODY, "inverse"}
    assert adjusted(load(layer_norm()), frozenset({"mean1", "mean2"})) == {"mean1", "sub", *BODY}
    assert adjusted(load(layer_norm()), frozenset()) == set()
    rms = frozenset({"square", "mean2", "guard", "root"})
    assert adjusted(load(rms_norm(inverse=True)), rms) == {*rms, "inverse", "normal"}


def test_without_fusion_or_where_it_does_not_hold_nothing_is_changed() -> None:
    wide = frozenset({"square", "mean2"})
    assert adjusted(load(layer_norm()), wide, fused=False) == wide
    assert adjusted(load(layer_norm()), wide, holds=False) == wide


def test_a_norm_wholly_in_fp32_gives_its_scale_back() -> None:
    assert adjusted(load(layer_norm()), frozenset(LAYER_NORM)) == {"mean1", "sub", *BODY}


def test_a_norm_that_would_not_load_is_changed_whatever_the_target() -> None:
    whole = frozenset(LAYER_NORM)
    assert adjusted(load(layer_norm()), whole, fused=False) == whole - {"scaled", "shifted"}
    assert adjusted(load(layer_norm()), whole, fused=False, holds=False) == whole - {"scaled", "shifted"}
    assert adjusted(load(layer_norm()), frozenset({"stream"}), fused=False) == {"stream", "scaled", "shifted"}


def norm_of_an_input() -> tuple[onnx.ModelProto, list[dict[str, NDArray[np.float32]]]]:
    proto = layer_norm()
    del proto.graph.node[0]
    for each in proto.graph.node:
        each.input[:] = ["x" if name == "stream" else name for name in each.input]
    rng = np.random.default_rng(6)
    return proto, [{"x": rng.standard_normal((4, WIDTH)).astype(np.float32)} for _ in range(3)]


def test_where_the_user_leaves_no_way_out_it_is_said(tmp_path: Path) -> None:
    proto, feeds = norm_of_an_input()
    result = fix(proto, feeds, repairs=(), keep=["pattern:layernorm"], io_types=Format.FP16, out=tmp_path)
    assert NoteKind.ORT_REFUSES_NORM in kinds(result.notes)
    assert {each.why for each in result.plan.nodes} == {"wanted"}


def test_what_the_user_states_stays_as_it_is() -> None:
    feeds = [{"x": (rng.standard_normal((4, WIDTH)) * 900).astype(np.float32)}
             for rng in map(np.random.default_rng, range(3))]  # fmt: skip
    for force, wanted in (((), {*BODY}), (("name:normal",), {"square", "mean2"})):
        result = fix(layer_norm(), feeds, repairs=(), target="ort-cuda", force=force)
        assert {each.name for each in result.plan.nodes} >= wanted
        assert ("normal" in {each.name for each in result.plan.nodes}) == (not force)


def test_a_norm_of_an_fp32_input_is_scaled_in_fp32_so_that_it_loads(tmp_path: Path) -> None:
    proto, feeds = norm_of_an_input()
    result = fix(proto, feeds, repairs=(), out=tmp_path)
    assert [(each.name, each.why) for each in result.plan.nodes] == [("scaled", "compiler"), ("shifted", "compiler")]
    assert result.notes[-1] == Note.of(NoteKind.NORMS_LOADABLE, norms=1)
    assert result.typed is not None
    ort.InferenceSession(str(result.typed.path), providers=["CPUExecutionProvider"])
    again = fix(proto, feeds, plan=replace(result.plan, nodes=()), out=tmp_path)
    assert NoteKind.ORT_REFUSES_NORM in kinds(again.notes)


@KNOWN
@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(("stream", *LAYER_NORM, "end"))), st.booleans(), st.booleans())
def test_whatever_was_decided_the_model_loads(wide: set[str], fused: bool, skip: bool) -> None:
    loaded = load(layer_norm(skip=skip))
    names = adjusted(loaded, frozenset(wide), fused=fused)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    typed = typed_proto(assigned(loaded, frozenset(names)))
    ort.InferenceSession(typed.SerializeToString(), options, ["CPUExecutionProvider"])


def test_a_plan_is_not_changed_but_what_it_leads_to_is_said() -> None:
    loaded = load(layer_norm())
    assert refusal_note(assigned(loaded, BODY)) is None
    note = refusal_note(assigned(loaded, frozenset({"scaled", "shifted"})))
    assert note == Note.of(NoteKind.ORT_REFUSES_NORM, "shifted")


@KNOWN
def test_fix_keeps_norms_in_one_kernel_for_onnx_runtime_on_cuda(tmp_path: Path) -> None:
    zoo = encoder(layers=2)
    zoo.model.opset_import[0].version = 17
    result = fix(zoo.model, zoo.inputs[:3], target="ort-cuda", repairs=(), out=tmp_path)
    decision = {each.name: each.why for each in result.plan.nodes}
    assert Counter(decision.values()) == {"overflow": 6, "compiler": 9}
    assert only(result.notes, NoteKind.NORMS_WHOLE).values == {"norms": 3, "nodes": 9}
    by_name = result.sites.model.node_by_name
    assignment = Assignment.all_narrow(result.sites, frozenset(by_name[name] for name in decision))
    assert {outcome(norm, assignment) for norm in norms_of(result.sites.model)} == {Outcome.FUSED}
    assert result.typed is not None
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(str(result.typed.path), options, ["CPUExecutionProvider"])
    left = Counter(each.op_type for each in onnx.load(options.optimized_model_filepath).graph.node)
    assert (left["LayerNormalization"], left["ReduceMean"]) == (5, 0)


def test_for_onnx_runtime_on_cuda_no_norm_that_it_fuses_is_scaled() -> None:
    loaded = load(rms_norm())
    huge = Ranges({each.name or "": 1e9 for every in loaded.nodes for each in every.outputs})
    found = {
        target: [repair.parameters["way"] for rule in rules_for(Target.parse(target), rules_named(["norm-operator"]))
                 for repair in rule.find(loaded, huge)]
        for target in ("onnx", "ort-cuda")
    }  # fmt: skip
    assert found == {"onnx": ["by rows"], "ort-cuda": []}
