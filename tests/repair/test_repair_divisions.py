"""HW404 on divisions by a guarded number: the guard survives in FP16, and FP32 keeps its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.compiler import rtx
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges
from halfwise.repair.epsilons import EPSILONS
from tests.models.build import f32, model, node, value, weight
from tests.support.repairing import Effect, effect

SHAPE = (6, 16)
CONSTANTS = {
    "eps": np.float32(1e-12), "mid": np.float32(1e-8), "far": np.float32(1e-20), "one": np.float32(1.0),
    "axes": np.array([-1]), "shape": np.array(SHAPE), "high": np.float32(4.0), "large": np.float32(1e-3),
    "two": np.float32(2.0),
}  # fmt: skip

SPELLINGS: dict[str, list[onnx.NodeProto]] = {
    "max": [node("Max", "d eps", "g"), node("Div", "a g", "y")],
    "max turned": [node("Max", "eps d", "g"), node("Div", "a g", "y")],
    "clip": [node("Clip", "d eps", "g"), node("Div", "a g", "y")],
    "add": [node("Abs", "d", "p"), node("Add", "p mid", "g"), node("Div", "a g", "y")],
    "reciprocal": [node("Max", "d mid", "g"), node("Reciprocal", "g", "r"), node("Mul", "a r", "y")],
    "one over": [node("Max", "d mid", "g"), node("Div", "one g", "r"), node("Mul", "a r", "y")],
    "sum": [
        node("Abs", "a", "p"), node("ReduceSum", "p axes", "s"), node("Clip", "s eps", "g"),
        node("Expand", "g shape", "e"), node("Div", "a e", "y"),
    ],
    "root": [node("Mul", "d d", "p"), node("Add", "p eps", "g"), node("Sqrt", "g", "r"), node("Div", "a r", "y")],
    "root of max": [node("Max", "d eps", "g"), node("Sqrt", "g", "r"), node("Div", "a r", "y")],
}  # fmt: skip


def build(nodes: list[onnx.NodeProto], opset: int = 17, outputs: Any = ("y",)) -> onnx.ModelProto:
    read = {name for each in nodes for name in each.input}
    weights = [weight(name, array) for name, array in CONSTANTS.items() if name in read]
    inputs = [value(name, shape=("n", SHAPE[1])) for name in ("a", "d") if name in read]
    if "shape" in read:
        inputs = [value("a", shape=SHAPE)]
    return model(nodes, inputs, [value(name, shape=None) for name in outputs], weights, opset)


def feeds(seed: int = 0, smallest: int = -3) -> list[dict[str, NDArray[np.float32]]]:
    """Rows of zeros among others: padding."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(3):
        a, d = (rng.standard_normal(SHAPE) * 10.0 ** rng.integers(smallest, 1, (SHAPE[0], 1)) for _ in range(2))
        a[-2:] = d[-2:] = 0.0
        found.append({"a": a.astype(np.float32), "d": np.abs(d).astype(np.float32)})
    return found


def check(nodes: list[onnx.NodeProto], opset: int = 17, smallest: int = -3) -> Effect:
    proto = build(nodes, opset)
    names = {each.name for each in proto.graph.input}
    return effect(EPSILONS, proto, [{name: feed[name] for name in names} for feed in feeds(0, smallest)])


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", SPELLINGS)
def test_padding_divides_to_zero(name: str, opset: int) -> None:
    found = check(SPELLINGS[name], opset, smallest=0 if name == "root" else -3)  # FP16 squares no 0.001
    assert len(found.repairs) == 1
    assert found.before == np.inf  # 0 / 0
    assert found.after < 2.0
    assert found.deviation <= 1e-6
    assert "= (a / " in found.repairs[0].algebra


@pytest.mark.parametrize("name", ["max", "max turned", "clip", "sum"])
def test_a_maximum_keeps_every_bit(name: str) -> None:
    assert check(SPELLINGS[name]).bit_identical


_LEFT = {
    "a guard that FP16 holds": [node("Max", "d large", "g"), node("Div", "a g", "y")],
    "a guard too small for any split": [node("Max", "d far", "g"), node("Div", "a g", "y")],
    "a sum with something of either sign": [node("Add", "d eps", "g"), node("Div", "a g", "y")],
    "limited from above, too": [node("Clip", "d eps high", "g"), node("Div", "a g", "y")],
    "the guarded number on top": [node("Max", "d eps", "g"), node("Div", "g a", "y")],
    "a maximum of two activations": [node("Max", "d a", "g"), node("Div", "a g", "y")],
    "three operands": [node("Max", "d a eps", "g"), node("Div", "a g", "y")],
    "an expansion that shapes the result": [
        node("Max", "a eps", "g"), node("Expand", "g shape", "e"), node("Reciprocal", "e", "y"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", _LEFT)
def test_near_misses_are_left_alone(name: str) -> None:
    assert EPSILONS.find(load(build(_LEFT[name])), Ranges()) == ()


def test_a_guard_that_others_read_stays() -> None:
    nodes = [node("Max", "d eps", "g"), node("Div", "a g", "y"), node("Mul", "g two", "z")]
    found = effect(EPSILONS, build(nodes, outputs=("y", "z", "g")), feeds())
    assert found.repaired.output_names == ("y", "z", "g")
    assert found.bit_identical


def test_a_shared_guard_is_repaired_for_each_reader() -> None:
    nodes = [node("Max", "d eps", "g"), node("Div", "a g", "y"), node("Div", "d g", "z")]
    found = effect(EPSILONS, build(nodes, outputs=("y", "z")), feeds())
    assert len(found.repairs) == 2
    assert found.bit_identical


def test_norms_are_left_to_their_own_rule() -> None:
    squares = [node("Mul", "a a", "q"), node("ReduceMean", "q", "m", axes=[-1]), node("Add", "m eps", "g")]
    proto = build([*squares, node("Sqrt", "g", "r"), node("Div", "a r", "y")])
    assert EPSILONS.find(load(proto), Ranges()) == ()


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(SPELLINGS)),
    epsilon=st.floats(2.0**-47, 1.4e-5),
    smallest=st.integers(-20, 0),
    seed=st.integers(0, 10**6),
)
def test_the_fp32_answer_stays(name: str, epsilon: float, smallest: int, seed: int) -> None:
    proto = build(SPELLINGS[name])
    for each in proto.graph.initializer:
        if each.name in ("eps", "mid"):
            each.CopyFrom(weight(each.name, np.float32(epsilon)))
    names = {each.name for each in proto.graph.input}
    found = effect(EPSILONS, proto, [{n: feed[n] for n in names} for feed in feeds(seed, smallest)])
    assert len(found.repairs) == 1
    if name in ("max", "max turned", "clip", "sum"):
        assert found.bit_identical
    assert found.deviation <= 1e-6


def test_vectors_of_weights_divide_too() -> None:
    nodes = [node("Clip", "d eps", "g"), node("Div", "w g", "y")]
    proto = model(nodes, [value("d", shape=("n", 4))], [value("y", shape=None)],
                  [weight("eps", f32(1e-12)[0]), weight("w", f32(1, 2, 0, 4) * np.float32(1e-3))])  # fmt: skip
    rng = np.random.default_rng(1)
    found = effect(EPSILONS, proto, [{"d": rng.uniform(0.1, 1.0, (3, 4)).astype(np.float32)}])
    assert found.bit_identical
    assert len(found.repairs) == 1


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
@pytest.mark.parametrize("name", ["add", "root"])
def test_the_repaired_division_builds_as_one_kernel(name: str, tmp_path: Path) -> None:
    proto = build(SPELLINGS[name])
    for each in proto.graph.input:
        each.type.tensor_type.shape.dim[0].dim_value = SHAPE[0]
    found = effect(EPSILONS, proto, feeds())
    path = write_typed(Assignment.all_narrow(Sites(found.repaired)), tmp_path / "m.onnx").path
    assert len(rtx.build(path).kernels) == 1
