"""Quantised models: scales in FP16, integers as they are, no cast within what runs as one kernel of integers."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from halfwise.core.english import say
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.quantised_groups import keep_groups_whole
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.report.answer import way_out
from halfwise.search.held_out import Decided, HeldOutSearch
from halfwise.search.quantiser_steps import OwnMovement
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.own_operators import read_by
from tests.models.build import model, node, value, weight
from tests.models.quantised import layers, quantised, samples, whole
from tests.support.messages import kinds, only

Array = np.ndarray[Any, Any]
LIMITS = {TensorProto.INT8: (-128, 127), TensorProto.UINT8: (0, 255), TensorProto.INT16: (-32768, 32767)}


def half(array: Any) -> Array:
    return np.asarray(array, dtype=np.float32).astype(np.float16).astype(np.float32)


LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def ran(proto: onnx.ModelProto, feeds: dict[str, Array], level: str = LEVELS[-1]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def casts_beside(proto: onnx.ModelProto, ops: tuple[str, str]) -> list[str]:
    """Casts that stand right behind the first operator and right before the second."""
    maker = {name: each for each in proto.graph.node for name in each.output}
    return [
        each.name
        for each in proto.graph.node
        if each.op_type == ops[1] and ops[0] != "Cast"
        for name in each.input
        if name in maker and maker[name].op_type == "Cast" and maker.get(maker[name].input[0], each).op_type == ops[0]
    ]


@pytest.mark.parametrize("opset", [19, 21, 23])
def test_quantisers_narrow_with_their_scales(opset: int) -> None:
    sites = Sites(load(quantised(layers(), opset)))
    assert {site.op for site in sites.free} == {"QuantizeLinear", "DequantizeLinear", "MatMul", "Tanh"}
    assert not sites.pinned
    typed = typed_proto(Assignment.all_narrow(sites))
    onnx.checker.check_model(typed, full_check=True)
    assert {w.data_type for w in typed.graph.initializer} == {TensorProto.FLOAT16, TensorProto.INT8}
    assert sum(each.op_type == "Cast" for each in typed.graph.node) == 2  # the input's and the output's


@pytest.mark.parametrize("opset", [13, 17])
def test_an_older_opset_is_raised_for_the_sake_of_the_scales(opset: int) -> None:
    loaded = load(quantised(layers(), opset))
    assert loaded.opset() == 19
    assert not Sites(loaded).pinned


def test_where_the_opset_cannot_be_raised_scales_stay() -> None:
    given = quantised(layers(1), 13)
    given.graph.node.extend([node("RoiAlign", "image rois batch", "r")])
    given.graph.input.extend([value("image", shape=(1, 1, 4, 4)), value("rois", shape=(1, 4))])
    given.graph.initializer.append(weight("batch", np.zeros(1, np.int64)))
    loaded = load(given)
    assert loaded.opset() == 13
    pinned = {site.op: site.pinned.kind for site in Sites(loaded).pinned if site.pinned}
    assert pinned == dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), NoteKind.QUANTISATION)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("step", [0.0123, 3e-5, 6e-8])
def test_a_scale_is_rounded_zero_points_and_saturation_are_not(kind: int, step: float) -> None:
    """By hand: 3e-5 has three digits left in FP16, 6e-8 is its smallest number."""
    low, high = LIMITS[kind]
    point = (low + high) // 2 + 3
    x = np.linspace(-2 * step * high, 2 * step * high, 41).astype(np.float32)
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    weights = [weight("s", np.float32(step)), whole("z", np.array(point), kind)]
    given = model(nodes, [value("x", shape=(41,))], [value("y", shape=(41,))], weights, opset=21, ir_version=10)
    found = Emulator().session(Assignment.all_narrow(Sites(load(given)))).run({"x": x})["y"]
    scale = half(step)
    steps = np.clip(np.rint(half(x) / scale) + point, low, high)
    assert np.array_equal(found, half((steps - point) * scale))


def test_an_explicit_type_of_a_dequantised_tensor_follows() -> None:
    nodes = [node("DequantizeLinear", "q s", "y", output_dtype=TensorProto.FLOAT), node("Relu", "y", "z")]
    weights = [weight("s", np.float32(0.5))]
    given = model(nodes, [value("q", TensorProto.INT8)], [value("z")], weights, opset=23, ir_version=11)
    typed = typed_proto(Assignment.all_narrow(Sites(load(given))))
    onnx.checker.check_model(typed, full_check=True)
    assert not typed.graph.node[0].attribute  # it is that of the scale


def test_fp8_tensors_keep_their_type() -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "q", saturate=1),
        node("DequantizeLinear", "q s z", "y"),
        node("Sqrt", "y", "r"),
    ]
    weights = [weight("s", np.float32(0.3)), whole("z", np.zeros(()), TensorProto.FLOAT8E4M3FN)]
    given = model(nodes, [value("x")], [value("r")], weights, opset=19, ir_version=10)
    typed = typed_proto(Assignment.all_narrow(Sites(load(given))))
    onnx.checker.check_model(typed, full_check=True)
    assert [w.data_type for w in typed.graph.initializer] == [TensorProto.FLOAT16, TensorProto.FLOAT8E4M3FN]
    x = np.array([0.1, 1.0, 5.0, 1000.0], np.float32)
    (answer,) = ran(typed, {"x": x})
    assert answer[-1] == pytest.approx(np.sqrt(448 * half(0.3)), rel=1e-3)  # saturates


def test_a_quantised_weight_is_made_from_fp32() -> None:
    nodes = [node("QuantizeLinear", "w s", "q"), node("DequantizeLinear", "q s", "v"), node("Mul", "x v", "y")]
    weights = [weight("w", np.float32([0.1, 0.2, 0.3, 0.4])), weight("s", np.float32(0.01))]
    sites = Sites(load(model(nodes, [value("x")], [value("y")], weights, opset=19, ir_version=10)))
    assert [(s.op, s.pinned.kind) for s in sites.pinned if s.pinned] == [("QuantizeLinear", NoteKind.QUANTISES_WEIGHT)]


@pytest.mark.parametrize("kept", ["m0", "d0", "v1", "t0", "q1"])
def test_no_cast_takes_a_group_apart(kept: str) -> None:
    sites = Sites(load(quantised(layers())))
    decision = Decision(sites, {sites.model.node_by_name[f"n_{kept}"]: Format.FP32}, Format.FP32)
    found = keep_groups_whole(Adjustment(decision), ())
    typed = typed_proto(found.decision.assignment)
    assert not casts_beside(typed, ("DequantizeLinear", "MatMul"))
    assert not casts_beside(typed, ("Tanh", "QuantizeLinear"))
    assert len(found.decision.formats) < len(sites.all)
    assert {entry.because[0].kind for entry in found.added} <= {NoteKind.QUANTISED_GROUP}


def test_what_the_user_stated_stays() -> None:
    sites = Sites(load(quantised(layers(1))))
    decision = Decision(sites, {sites.model.node_by_name["n_d0"]: Format.FP32}, Format.FP32)
    found = keep_groups_whole(Adjustment(decision), ("n_m0",))
    assert found.decision is decision


def biased() -> onnx.ModelProto:
    """A product whose bias is INT32, one scale for each channel, as ONNX Runtime's quantisation writes it."""
    given = quantised(layers(1), step=0.01)
    scales = np.geomspace(1e-5, 1e-2, 16).astype(np.float32)
    given.graph.initializer.extend([weight("b", np.arange(-8, 8, dtype=np.int32) * 1000), weight("bs", scales)])
    nodes = [node("DequantizeLinear", "b bs", "bias", axis=0), node("Add", "m0 bias", "biased")]
    given.graph.node.insert(4, nodes[1])
    given.graph.node.insert(4, nodes[0])
    given.graph.node[-1].input[0] = "biased"
    return given


def test_tensorrt_gets_float_biases_and_no_one_else() -> None:
    loaded = load(biased())
    assert read_by(Target.parse("onnx"), loaded)[0] is loaded
    for target in ("trt-10.9", "rtx-1.7"):
        plain, _ = read_by(Target.parse(target), loaded)
        assert "n_bias" not in plain.node_by_name
        assert "n_d0" in plain.node_by_name
        feed = samples()[0]
        wide, same = (ran(typed_proto(Assignment(Sites(each), {})), feed) for each in (loaded, plain))
        assert np.array_equal(wide[0], same[0])


@pytest.mark.parametrize("level", LEVELS)
def test_a_bias_of_many_small_steps_keeps_its_bits(level: str) -> None:
    """The scale of a bias is a product of two: FP16 has a few bits of it left, and all of the bias."""
    given = biased()
    for held in given.graph.initializer:
        if held.name == "b":
            held.CopyFrom(weight("b", np.linspace(-8e5, 8e5, 16).astype(np.int32)))
        elif held.name == "bs":
            held.CopyFrom(weight("bs", np.geomspace(3e-7, 1e-6, 16).astype(np.float32)))
    sites = Sites(load(given))
    assert [site.name for site in sites.pinned] == ["n_bias"]
    feed = {"x": np.rint(samples()[0]["x"] * 100) / 100}  # in the middle of a step
    (wide,), (narrow,) = ran(given, feed, level), ran(typed_proto(Assignment.all_narrow(sites)), feed, level)
    assert np.linalg.norm(narrow - wide) <= 2.0**-10 * np.linalg.norm(wide)


def assert_narrow_as_given(given: onnx.ModelProto, folder: Path) -> None:
    """It needs no FP32 node, and ONNX Runtime answers what it answers of the model as given."""
    onnx.save(given, folder / "q.onnx")
    result = fix(folder / "q.onnx", samples(), out=folder / "out")
    assert result.met and not result.fp32_nodes and result.typed is not None
    feed = samples()[0]
    (wide,), (narrow,) = ran(given, feed), ran(onnx.load(result.typed.path), feed)
    assert np.linalg.norm(narrow - wide) <= 0.01 * np.linalg.norm(wide)


@pytest.mark.parametrize("opset", [17, 21])
def test_a_quantised_model_is_fixed_and_runs(opset: int, tmp_path: Path) -> None:
    """Few steps of a fine quantiser: FP16 keeps the tolerance, and the answer is ONNX Runtime's."""
    given = quantised(layers(1), opset, step=0.01)
    assert_narrow_as_given(given, tmp_path)


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT16])
def test_onnx_runtime_s_own_quantisers_are_said_in_onnx_s(kind: int, tmp_path: Path) -> None:
    """In opsets without 16 bits its quantiser writes operators of its own, whose scales are FP32."""
    given = quantised(layers(2), 17, step=0.002 if kind == TensorProto.UINT16 else 0.01, kind=kind)
    for each in given.graph.node:
        each.domain = "com.microsoft" if each.op_type in ("QuantizeLinear", "DequantizeLinear") else ""
    given.opset_import.add(domain="com.microsoft", version=1)
    assert_narrow_as_given(given, tmp_path)


def test_a_stated_type_of_what_is_dequantised_leaves_onnx_runtime_free(tmp_path: Path) -> None:
    """Its optimizer states the type in each file that it saves, and retypes nodes in front of what it runs in FP32."""
    given = quantised(layers(1), 21, step=0.01)
    given.opset_import[0].version = 23
    for each in given.graph.node:
        if each.op_type == "DequantizeLinear":
            each.attribute.add(name="output_dtype", type=onnx.AttributeProto.INT, i=TensorProto.FLOAT)
    assert_narrow_as_given(given, tmp_path)


def test_steps_that_fp32_takes_too_cost_no_fp32_nodes(tmp_path: Path) -> None:
    """Coarse steps, one behind the other: FP32 misses the tolerance once its values move by less than TF32 moves them.

    Nearly all nodes in FP32 would hold it on these inputs, and on no others.
    """
    given = quantised(layers(8, 64), step=0.05)
    onnx.save(given, tmp_path / "q.onnx")
    result = fix(tmp_path / "q.onnx", samples(64), out=tmp_path / "out")
    assert not result.fp32_nodes
    assert NoteKind.QUANTISERS_MOVE in kinds(result.notes)
    assert result.plan.tolerance.to_json()["*:rel_l2"] == 0.01
    assert not result.met  # 1% was asked for
    out = way_out(result)
    assert out.cause == say(only(result.notes, NoteKind.QUANTISERS_MOVE)) and out.step is not None
    words = shlex.split(out.step.command)
    wider = [words[i + 1] for i, word in enumerate(words) if word == "--tol"]
    assert fix(tmp_path / "q.onnx", samples(64), out=tmp_path / "wider", tolerance=wider).met


def test_a_tolerance_that_fp32_keeps_on_few_inputs_costs_no_fp32_nodes(tmp_path: Path) -> None:
    """With a target's margin FP32 itself is too near for other inputs: a set of FP32 nodes would promise no more.

    The tolerance advised instead leaves room for them.
    """
    given, target = quantised(layers(4, 64), step=0.05), "trt-10.9+weak@t4"
    onnx.save(given, tmp_path / "q.onnx")
    missed = fix(tmp_path / "q.onnx", samples(64), target=target)
    assert missed.measured.promise is None and not missed.met
    kept = fix(given, samples(64), target=target, tolerance=f"rel_l2<={0.0125 * missed.verdict.ratio:.5f}")
    assert kept.met and not kept.fp32_nodes
    assert kept.measured.promise is not None and not kept.measured.promise.carried
    assert NoteKind.QUANTISERS_NEAR in kinds(kept.notes)
    step = way_out(missed).step
    assert step is not None
    words = shlex.split(step.command)
    wider = [words[i + 1] for i, word in enumerate(words) if word == "--tol"]
    promised = fix(given, samples(64), target=target, tolerance=wider)
    assert promised.met and not promised.fp32_nodes and NoteKind.QUANTISERS_NEAR not in kinds(promised.notes)
    assert promised.measured.promise is not None and promised.measured.promise.carried


def test_choices_that_only_other_inputs_change_relax_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a class that is near a tie FP32 changes none here, and too many elsewhere: there is no error to relax."""
    monkeypatch.setattr("halfwise.verbs.fix.question.own_movement", lambda searched, given: OwnMovement(0.0, 1.2, 2.0))
    made = fix(quantised(layers()), samples(), tolerance="rel_l2<=0.5")
    assert made.met and NoteKind.QUANTISERS_NEAR not in kinds(made.notes)


@pytest.mark.parametrize(("tol", "met"), [(0.01, False), (0.5, True)])
def test_more_runs_are_not_advised_where_no_fp32_node_helps(
    tol: float, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = HeldOutSearch.run

    def spent(self: HeldOutSearch) -> Decided:
        found = searched(self)
        return replace(found, notes=(*found.notes, Note.of(NoteKind.RUNS_SPENT, runs=40, more=200)))

    monkeypatch.setattr(HeldOutSearch, "run", spent)
    result = fix(quantised(layers(8, 64), step=0.05), samples(64), tolerance=f"rel_l2<={tol}")
    assert result.met == met == (NoteKind.RUNS_SPENT in kinds(result.notes))


def test_a_product_of_integers_gives_the_type_of_its_zero_point(tmp_path: Path) -> None:
    """ONNX Runtime's QGemm gives floats, or integers where their zero point is given; its schema does not say which."""
    matrix = layers(1)[0]
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QGemm", "q s z w ws wz - s z", "p", domain="com.microsoft"),
        node("DequantizeLinear", "p s z", "d"),
        node("Tanh", "d", "y"),
    ]
    weights = [
        weight("s", np.float32(0.05)),
        weight("z", np.uint8(128)),
        weight("w", np.rint(matrix * 100).astype(np.int8)),
        weight("ws", np.float32(0.01)),
        weight("wz", np.int8(0)),
    ]
    ends = [value("x", shape=(4, 16))], [value("y", shape=(4, 16))]
    onnx.save(model(nodes, *ends, weights, opset=19, domains=["com.microsoft"]), tmp_path / "q.onnx")
    assert load(tmp_path / "q.onnx").node_by_name["n_p"].outputs[0].dtype.name == "UINT8"  # type: ignore[union-attr]
    result = fix(tmp_path / "q.onnx", samples(), out=tmp_path / "out", tolerance=["rel_l2<=0.2"])
    assert result.met and result.typed is not None
    feed = samples()[0]
    (wide,), (narrow,) = ran(onnx.load(tmp_path / "q.onnx"), feed), ran(onnx.load(result.typed.path), feed)
    assert np.linalg.norm(narrow - wide) <= 0.2 * np.linalg.norm(wide)


def test_operators_of_integers_run_as_they_are_and_floats_between_them_are_narrow(tmp_path: Path) -> None:
    """Their scales are no FP32 arithmetic that could be narrower; what measures a tensor's range in FP32 is."""
    scales = [weight(name, np.float32(size)) for name, size in (("s", 0.05), ("t", 0.25))]
    zeros = [weight("z", np.uint8(128)), weight("v", np.int8(0))]
    weights = np.random.default_rng(5).integers(-20, 20, (8, 8)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearMatMul", "q s z w s v t z", "m"),
        node("DequantizeLinear", "m t z", "d"),
        node("Exp", "d", "e"),
        node("DynamicQuantizeLinear", "e", "f g h"),
        node("MatMulInteger", "f w h v", "i"),
        node("Cast", "i", "c", to=1),
        node("Mul", "c g", "y"),
    ]
    given = model(
        nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], [*scales, *zeros, weight("w", weights)]
    )
    feeds = [{"x": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)} for seed in range(4)]
    made = fix(given, feeds, out=tmp_path)
    assert made.good and set(made.fp32_nodes) <= {"n_f", "n_c", "n_y"} and "n_e" not in made.fp32_nodes
    assert [site.op for site in made.sites.pinned] == ["DynamicQuantizeLinear"]
    assert made.typed is not None
    for feed in feeds:
        wanted, got = ran(given, feed)[0], ran(onnx.load(made.typed.path), feed)[0]
        assert np.linalg.norm(got - wanted) < 0.01 * np.linalg.norm(wanted)


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_a_join_that_the_runtime_makes_one_of_integers_loads_at_every_level(target: str, tmp_path: Path) -> None:
    """QLinearConcat takes FP32 scales only, and ONNX Runtime makes one of whatever stands between quantisers."""
    made = fix(join(), JOINED, tolerance="rel_l2<=0.05", target=target, out=tmp_path)
    assert made.good and made.typed is not None
    assert {"n_d", "n_e", "n_j", "n_k"} <= set(made.fp32_nodes) and "n_h" not in made.fp32_nodes
    for feed in JOINED:
        for level in LEVELS:
            wanted, got = ran(join(), feed, level)[0], ran(onnx.load(made.typed.path), feed, level)[0]
            assert np.linalg.norm(got - wanted) < 0.05 * np.linalg.norm(wanted)


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
@pytest.mark.parametrize("read", ["e", "j"])
def test_a_join_whose_floats_are_read_elsewhere_stays_in_fp16(read: str, target: str, tmp_path: Path) -> None:
    """ONNX Runtime leaves it as it is, and in FP32 it would take Casts."""
    given = join([node("Relu", read, "v")], [value("v", shape=(4 if read == "e" else 8, 8))])
    made = fix(given, JOINED, tolerance="rel_l2<=0.05", target=target, out=tmp_path)
    assert made.good and "n_j" not in made.fp32_nodes and made.typed is not None
    for level in LEVELS:
        assert all(np.isfinite(array).all() for array in ran(onnx.load(made.typed.path), JOINED[0], level))


JOINED = [{"x": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)} for seed in range(4)]


def join(more: list[onnx.NodeProto] | None = None, outputs: list[onnx.ValueInfoProto] | None = None) -> onnx.ModelProto:
    """Two quantised tensors, joined and quantised again."""
    held = [weight(name, np.float32(size)) for name, size in (("s", 0.03), ("t", 0.04))]
    held += [weight("z", np.int8(0)), weight("w", np.random.default_rng(2).standard_normal((8, 8)).astype(np.float32))]
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Tanh", "x", "h"),
        node("QuantizeLinear", "h s z", "r"),
        node("DequantizeLinear", "r s z", "e"),
        node("Concat", "d e", "j", axis=0),
        node("QuantizeLinear", "j t z", "k"),
        node("DequantizeLinear", "k t z", "l"),
        node("MatMul", "l w", "y"),
    ]
    made = [value("y", shape=(8, 8)), *(outputs or [])]
    return model([*nodes, *(more or [])], [value("x", shape=(4, 8))], made, held, opset=21, ir_version=10)
