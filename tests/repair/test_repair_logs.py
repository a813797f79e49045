"""HW404 moves guards to where FP16 keeps them; HW407 takes logarithms of exponentials without either."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.compiler import rtx
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges, repaired
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.reductions import REDUCTIONS
from halfwise.repair.stable_logs import STABLE_LOGS
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import SHAPES, norm_log_head
from tests.support.repairing import Effect, effect, ranges_of

SHAPE = (6, 16)
CONSTANTS = {
    "one": f32(1.0), "two": f32(2.0), "eps": np.float32(1e-10), "tiny": np.float32(1e-12), "axes": np.array([-1]),
    "low": np.float32(1e-5), "high": np.float32(1 - 1e-5), "zero": np.float32(0.0), "hundredth": np.float32(0.01),
    "minus_half": np.float32(-0.5), "shape": np.array(SHAPE), "half": np.float32(0.5),
}  # fmt: skip


def build(*nodes: onnx.NodeProto, opset: int = 17, outputs: Any = ("y",)) -> onnx.ModelProto:
    read = {name for each in nodes for name in each.input}
    weights = [weight(name, array) for name, array in CONSTANTS.items() if name in read]
    made = [value(name, shape=None) for name in outputs]
    return model(nodes, [value("x", shape=("n", SHAPE[1]))], made, weights, opset, 8 if opset < 21 else 10)


def peaked(scale: float = 1.0) -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(4)
    rows = []
    for _ in range(3):
        x = 2.0 * rng.standard_normal(SHAPE)
        x[np.arange(6), rng.integers(0, 16, 6)] += 18.0
        rows.append({"x": (scale * x).astype(np.float32)})
    return rows


def padded(scale: float = 1.0) -> list[dict[str, NDArray[np.float32]]]:
    feeds = [{"x": feed["x"].copy()} for feed in peaked(scale)]
    for feed in feeds:
        feed["x"][-2:] = 0.0
    return feeds


def check(rule: Any, proto: onnx.ModelProto, feeds: Any = None, repairs: int = 1, within: float = 1.0) -> Effect:
    found = effect(rule, proto, feeds or peaked())
    assert len(found.repairs) == repairs
    assert found.deviation <= rule.bound
    assert found.after < within
    return found


# -- the known failures -----------------------------------------------------------------------------------------------

_KNOWN = [
    (EPSILONS, "l2_norm_of_padding"), (EPSILONS, "l2_norm_of_small_vectors"), (EPSILONS, "log_of_probability"),
    (EPSILONS, "log_of_energy"), (STABLE_LOGS, "log_sum_exp_by_hand"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "shape"), _KNOWN)
def test_the_known_failures_need_no_fp32_node(rule: Any, shape: str) -> None:
    zoo = SHAPES[shape]()
    found = effect(rule, zoo.model, zoo.inputs, zoo.tolerance)
    assert found.before == np.inf
    assert found.after < 0.2
    assert found.deviation < 1e-6


def test_the_norm_log_head_needs_no_fp32_node(tmp_path: Any) -> None:
    zoo = norm_log_head()
    current, feeds = load(zoo.model), zoo.inputs
    for rule in (EPSILONS, REDUCTIONS):
        found = rule.find(current, ranges_of(current, feeds[:2]))
        current, done = repaired(current, [(rule, one) for one in found])
        assert done == tuple(found)
    last = effect(STABLE_LOGS, current, feeds[2:], zoo.tolerance)
    assert last.after < 0.5
    assert last.deviation < 1e-6
    if rtx.available():
        write_typed(Assignment.all_narrow(Sites(last.repaired)), tmp_path / "m.onnx")
        assert rtx.build(tmp_path / "m.onnx").kernels


# -- logarithms of exponentials ---------------------------------------------------------------------------------------


def test_log_of_softmax() -> None:
    found = check(STABLE_LOGS, build(node("Softmax", "x", "p", axis=-1), node("Log", "p", "y")))
    assert found.before == np.inf
    assert found.ops() == ["LogSoftmax"]


def test_log_of_softmax_before_opset_13_keeps_its_flattening() -> None:
    nodes = [node("Softmax", "z", "p", axis=1), node("Log", "p", "y")]
    weights = [weight("to", np.array([2, 3, 16]))]
    proto = model(
        [node("Reshape", "x to", "z"), *nodes], [value("x", shape=SHAPE)], [value("y", shape=None)], weights, 11
    )
    found = check(STABLE_LOGS, proto)
    assert found.ops() == ["Reshape", "LogSoftmax"]


@pytest.mark.parametrize("opset", [11, 17, 20])
def test_log_sum_exp(opset: int) -> None:
    reduction = node("ReduceSum", "e axes", "s") if opset >= 13 else node("ReduceSum", "e", "s", axes=[-1])
    proto = build(node("Exp", "x", "e"), reduction, node("Log", "s", "l"), node("Sub", "x l", "y"), opset=opset)
    found = check(STABLE_LOGS, proto)
    assert found.before == np.inf
    assert found.ops() == ["ReduceLogSumExp", "Sub"]


def test_log_sum_exp_without_kept_dimensions() -> None:
    proto = build(node("Exp", "x", "e"), node("ReduceSum", "e axes", "s", keepdims=0), node("Log", "s", "y"))
    assert check(STABLE_LOGS, proto).answers[0]["y"].shape == (6,)


_STABLE = [
    ([node("Sigmoid", "x", "p"), node("Log", "p", "y")], ["Neg", "Softplus", "Neg"]),
    ([node("Sigmoid", "x", "p"), node("Sub", "one p", "q"), node("Log", "q", "y")], ["Softplus", "Neg"]),
    ([node("Exp", "x", "e"), node("Add", "one e", "q"), node("Log", "q", "y")], ["Softplus"]),
    ([node("Exp", "x", "e"), node("Log", "e", "y")], ["Identity"]),
    ([node("Mul", "x x", "q"), node("Log", "q", "y")], ["Abs", "Log", "Mul"]),
    ([node("Pow", "x two", "q"), node("Log", "q", "y")], ["Abs", "Log", "Mul"]),
]


@pytest.mark.parametrize(("nodes", "ops"), _STABLE)
def test_stable_forms(nodes: list[onnx.NodeProto], ops: list[str]) -> None:
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.uniform(-14, 13, SHAPE).astype(np.float32)} for _ in range(2)]
    if nodes[0].op_type == "Sigmoid":  # beyond, the runtime knows x or 1 - x to few digits
        feeds = [{"x": np.clip(feed["x"], -8.0, 8.0)} for feed in feeds]
    if nodes[0].op_type in ("Mul", "Pow"):
        feeds = [{"x": feed["x"] * np.float32(30)} for feed in feeds]
    assert check(STABLE_LOGS, build(*nodes), feeds).ops() == ops


def _logit(how: str) -> list[onnx.NodeProto]:
    gate = node("Sigmoid", "x", "p")
    if how == "bare":
        return [gate, node("Sub", "one p", "q"), node("Div", "p q", "r"), node("Log", "r", "y")]
    if how == "clipped":
        clip = node("Clip", "p low high", "c")
        return [gate, clip, node("Sub", "one c", "q"), node("Div", "c q", "r"), node("Log", "r", "y")]
    if how == "two logs":
        clip = node("Clip", "p low high", "c")
        logs = [node("Log", "c", "a"), node("Log", "q", "b"), node("Sub", "a b", "y")]
        return [gate, clip, node("Sub", "one c", "q"), *logs]
    if how.startswith("chosen"):  # as exporters write a logit with an epsilon
        tests = [node("Less", "p low", "t"), node("Where", "t low p", "d"), node("Greater", "d high", "u")]
        if how == "chosen, turned":
            tests = [node("Greater", "p low", "t"), node("Where", "t p low", "d"), node("Greater", "high d", "u")]
        last = node("Where", "u high d" if how == "chosen" else "u d high", "c")
        return [gate, *tests, last, node("Sub", "one c", "q"), node("Div", "c q", "r"), node("Log", "r", "y")]
    # As detection transformers write it: both sides kept away from zero on their own.
    inner = [node("Clip", "p zero one", "c"), node("Clip", "c low -", "a"), node("Sub", "one c", "q")]
    return [gate, *inner, node("Clip", "q low -", "b"), node("Div", "a b", "r"), node("Log", "r", "y")]


@pytest.mark.parametrize(
    ("how", "ops"),
    [
        ("bare", ["Identity"]),
        ("clipped", ["Max", "Min"]),
        ("two logs", ["Max", "Min"]),
        ("chosen", ["Max", "Min"]),
        ("chosen, turned", ["Max", "Min"]),
        ("both sides", ["Neg", "Softplus", "Neg", "Max", "Softplus", "Neg", "Max", "Sub"]),
    ],
)
def test_the_inverse_of_a_sigmoid_of_something_known(how: str, ops: list[str]) -> None:
    rng = np.random.default_rng(2)
    reach = 8.0 if how == "bare" else 14.0
    feeds = [{"x": rng.uniform(-reach, reach, SHAPE).astype(np.float32)} for _ in range(2)]
    nodes = _logit(how)
    found = check(STABLE_LOGS, build(*nodes), feeds)
    assert found.before > 1
    assert sorted(found.ops()) == sorted(ops)


# -- guards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [node("Add", "p eps", "g"), node("Max", "eps p", "g"), node("Clip", "p eps -", "g")])
@pytest.mark.parametrize("made", ["Softmax", "Sigmoid", "Relu", "Exp", "Abs"])
def test_guarded_logarithms(guard: onnx.NodeProto, made: str) -> None:
    found = check(EPSILONS, build(node(made, "x", "p"), guard, node("Log", "g", "y")), peaked(-0.5))
    ops = found.ops()
    assert "Max" in ops
    assert ("Softplus" in ops) == (guard.op_type == "Add" or made == "Sigmoid")


def test_a_guard_with_an_upper_bound() -> None:
    nodes = [node("Softmax", "x", "p"), node("Clip", "p eps half", "g"), node("Log", "g", "y")]
    found = check(EPSILONS, build(*nodes))
    assert found.ops() == ["LogSoftmax", "Max", "Min"]
    assert found.answers[0]["y"].max() == np.log(np.float32(0.5))


def test_silence_in_a_spectrogram() -> None:
    feeds = [{"x": feed["x"] * np.float32(1e-4)} for feed in padded()]
    found = check(EPSILONS, build(node("Mul", "x x", "p"), node("Add", "p eps", "g"), node("Log", "g", "y")), feeds)
    assert found.before == np.inf
    assert found.answers[0]["y"].min() == pytest.approx(np.log(1e-10))


def _unit(how: str, opset: int = 17) -> onnx.ModelProto:
    old = opset < 18
    length = node("ReduceL2", "x", "l", axes=[-1]) if old else node("ReduceL2", "x axes", "l", keepdims=1)
    square = [node("Pow", "x two", "s"), node("ReduceSum", "s axes", "t"), node("Add", "t tiny", "g")]
    nodes = {
        "clip": [length, node("Clip", "l tiny -", "g"), node("Div", "x g", "y")],
        "expand": [length, node("Max", "l tiny", "g"), node("Expand", "g shape", "h"), node("Div", "x h", "y")],
        "add": [length, node("Add", "l tiny", "g"), node("Div", "x g", "y")],
        "sqrt": [*square, node("Sqrt", "g", "r"), node("Div", "x r", "y")],
        "rsqrt": [*square, node("Sqrt", "g", "r"), node("Reciprocal", "r", "i"), node("Mul", "x i", "y")],
        "power": [*square, node("Pow", "g minus_half", "i"), node("Mul", "x i", "y")],
    }[how]
    return build(*nodes, opset=opset)


@pytest.mark.parametrize("how", ["clip", "expand", "add", "sqrt", "rsqrt", "power"])
@pytest.mark.parametrize("opset", [13, 17, 20])
def test_l2_normalisation_of_padding(how: str, opset: int) -> None:
    found = check(EPSILONS, _unit(how, opset), padded(20.0))
    assert found.before == np.inf
    assert (found.answers[0]["y"][-2:] == 0).all()
    assert "ReduceMax" in found.ops()


@pytest.mark.parametrize("how", ["clip", "add", "sqrt"])
def test_no_new_constant_leaves_fp16(how: str) -> None:
    found = check(EPSILONS, _unit(how), padded())
    new = [v for v in found.repaired.ir.graph.initializers.values() if "guarded" in (v.name or "") and v.const_value]
    numbers = np.concatenate([np.abs(v.const_value.numpy()).ravel() for v in new if v.dtype is ir.DataType.FLOAT])
    assert numbers.size
    assert ((numbers >= 2.0**-24) & (numbers <= 65504)).all()


def test_l2_normalisation_of_values_below_the_guard() -> None:
    feeds = [{"x": feed["x"] * np.float32(1e-13)} for feed in padded()]
    found = effect(EPSILONS, _unit("clip"), feeds)
    assert found.deviation < 1e-6  # the guard keeps its value, not only its effect


def test_squares_that_overflow_are_a_reason_too() -> None:
    proto = _unit("sqrt")
    proto.graph.initializer[[w.name for w in proto.graph.initializer].index("tiny")].CopyFrom(weight("tiny", f32(1e-3)))
    assert EPSILONS.find(load(proto), Ranges(high={"s": 100.0})) == ()
    check(EPSILONS, proto, peaked(30.0))


# -- near misses ------------------------------------------------------------------------------------------------------

_LEFT_ALONE = [
    (STABLE_LOGS, [node("Softmax", "x", "p"), node("Exp", "p", "y")]),
    (STABLE_LOGS, [node("Tanh", "x", "p"), node("Log", "p", "y")]),
    (STABLE_LOGS, [node("Exp", "x", "e"), node("Add", "two e", "q"), node("Log", "q", "y")]),
    (STABLE_LOGS, [node("Exp", "x", "e"), node("ReduceMean", "e", "q", axes=[-1]), node("Log", "q", "y")]),
    (STABLE_LOGS, [node("Pow", "x half", "q"), node("Log", "q", "y")]),
    (STABLE_LOGS, [node("Sub", "one x", "q"), node("Div", "x q", "r"), node("Log", "r", "y")]),  # of no sigmoid
    (
        STABLE_LOGS,
        [node("Sigmoid", "x", "p"), node("Sub", "two p", "q"), node("Div", "p q", "r"), node("Log", "r", "y")],
    ),
    (
        STABLE_LOGS,  # the maximum is taken out already
        [
            node("ReduceMax", "x", "m", axes=[-1]), node("Sub", "x m", "d"), node("Exp", "d", "e"),
            node("ReduceSum", "e axes", "s"), node("Log", "s", "y"),
        ],
    ),
    (
        STABLE_LOGS,  # the choice is no clip
        [
            node("Sigmoid", "x", "p"), node("Less", "p low", "t"), node("Where", "t high p", "c"),
            node("Sub", "one c", "q"), node("Div", "c q", "r"), node("Log", "r", "y"),
        ],
    ),
    (EPSILONS, [node("Add", "x eps", "g"), node("Log", "g", "y")]),  # x may be negative
    (EPSILONS, [node("Softmax", "x", "p"), node("Add", "p hundredth", "g"), node("Log", "g", "y")]),
    (EPSILONS, [node("Softmax", "x", "p"), node("Sub", "p eps", "g"), node("Log", "g", "y")]),
    (EPSILONS, [node("ReduceL2", "x", "l", axes=[-1]), node("Clip", "l tiny one", "g"), node("Div", "x g", "y")]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "nodes"), _LEFT_ALONE)
def test_near_misses_are_left_alone(rule: Any, nodes: list[onnx.NodeProto]) -> None:
    assert rule.find(load(build(*nodes)), Ranges()) == ()


def test_doubles_and_old_opsets_are_left_alone() -> None:
    nodes = [node("Softmax", "x", "p"), node("Log", "p", "y")]
    old = load(build(*nodes, opset=7))
    assert STABLE_LOGS.find(old, Ranges()) == EPSILONS.find(old, Ranges()) == ()
    double = model(nodes, [value("x", TensorProto.DOUBLE, SHAPE)], [value("y", TensorProto.DOUBLE, None)])
    assert STABLE_LOGS.find(load(double), Ranges()) == ()


def test_what_others_read_stays() -> None:
    nodes = [node("Softmax", "x", "p"), node("Add", "p eps", "g"), node("Log", "g", "y"), node("Mul", "p y", "z")]
    found = check(EPSILONS, build(*nodes, outputs=("y", "z", "p")), within=np.inf)
    assert found.repaired.output_names == ("y", "z", "p")
    assert found.ops().count("Softmax") == 1


def test_a_place_that_is_gone_is_refused() -> None:
    log = load(build(node("Softmax", "x", "p"), node("Log", "p", "y")))
    guarded = load(build(node("Softmax", "x", "p"), node("Add", "p eps", "g"), node("Log", "g", "y")))
    unit = load(_unit("clip"))
    other = load(build(node("Tanh", "x", "p"), node("Log", "p", "y")))
    for rule, found_in in ((STABLE_LOGS, log), (EPSILONS, guarded), (EPSILONS, unit)):
        (repair,) = rule.find(found_in, Ranges())
        assert repaired(other, [(rule, repair)])[1] == ()


@settings(max_examples=40, deadline=None)
@given(
    how=st.sampled_from(["softmax", "sigmoid", "square", "lse", "clip", "sqrt", "add", "logit"]),
    power=st.integers(-6, 2),
    seed=st.integers(0, 10**6),
    zeros=st.booleans(),
)
def test_the_fp32_answer_stays_within_the_bound(how: str, power: int, seed: int, zeros: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(SHAPE) * 10.0 ** min(power, 1 if how in ("softmax", "sigmoid", "lse", "logit") else 2)
    x[:2] = 0.0 if zeros else x[:2]
    guarded = [node("Add", "p eps", "g"), node("Log", "g", "y")]
    proto = {
        "softmax": lambda: build(node("Softmax", "x", "p"), *guarded),
        "sigmoid": lambda: build(node("Sigmoid", "x", "p"), *guarded),
        "square": lambda: build(node("Mul", "x x", "p"), *guarded),
        "lse": lambda: build(node("Exp", "x", "e"), node("ReduceSum", "e axes", "s"), node("Log", "s", "y")),
        "clip": lambda: _unit("clip"),
        "sqrt": lambda: _unit("sqrt"),
        "add": lambda: _unit("add"),
        "logit": lambda: build(*_logit("clipped")),
    }[how]()
    rule: Any = STABLE_LOGS if how in ("lse", "logit") else EPSILONS
    if how in ("sigmoid", "logit"):  # where the original itself keeps its digits
        x = np.clip(x, -8.0, 8.0) + np.copysign(0.1, x)
    found = effect(rule, proto, [{"x": x.astype(np.float32)}])
    assert len(found.repairs) == 1
    assert found.deviation <= rule.bound
