"""Scores are scaled before they are made, and exponentials lose their maximum; what is read elsewhere stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.compiler import rtx
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges, repaired
from halfwise.repair.attention_scale import AttentionScale
from tests.models.numbered_graph import NumberedGraph
from tests.models.zoo import SHAPES
from tests.support.repairing import effect

Array = NDArray[Any]
RULE = AttentionScale()
HEADS, TOKENS = 2, 6
RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(406).bit_generator.state


class Graph(NumberedGraph):
    def sum(self, x: str, axes: list[int], keepdims: int = 1) -> str:
        if self.opset >= 13:
            return self.op("ReduceSum", [x, self.number(axes, np.int64)], "", keepdims=keepdims)
        return self.op("ReduceSum", [x], "", axes=axes, keepdims=keepdims)


# -- the scale --------------------------------------------------------------------------------------------------------


def attention(scale: Callable[[Graph, str], str], width: int = 32, product: str = "MatMul") -> Graph:
    graph = Graph()
    q, v = (graph.input(name, ["batch", HEADS, TOKENS, width]) for name in "qv")
    k = graph.input("k", ["batch", HEADS, width, TOKENS])
    equation = {"equation": "bhqd,bhdk->bhqk"} if product == "Einsum" else {}
    scaled = scale(graph, graph.op(product, [q, k], "", **equation))
    weights = graph.op("Softmax", [scaled], "", axis=-1)
    graph.output(graph.op("MatMul", [weights, v], ""), "y", ["batch", HEADS, TOKENS, width])
    return graph


def queries(size: float = 80.0, width: int = 32) -> dict[str, Array]:
    """Scores up to about size^2 times the width: far over 65504."""
    shape = (2, HEADS, TOKENS, width)
    q = RNG.uniform(0.8, 1.2, shape) * size
    k = RNG.uniform(0.99, 1.01, shape).swapaxes(-1, -2) * size
    feed = {"q": q, "k": k, "v": RNG.standard_normal(shape)}
    return {name: array.astype(np.float32) for name, array in feed.items()}


SCALES: dict[str, Callable[[Graph, str], str]] = {
    "divided by a root": lambda g, s: g.op("Div", [s, g.number(np.sqrt(32.0))], ""),
    "times its inverse": lambda g, s: g.op("Mul", [g.number(1 / np.sqrt(32.0)), s], ""),
    "a power of two": lambda g, s: g.op("Mul", [s, g.number([0.125])], ""),
    "divided by a power of two": lambda g, s: g.op("Div", [s, g.number(8.0)], ""),
    "a tiny factor": lambda g, s: g.op("Mul", [s, g.number(3e-4)], ""),
    "behind a change of shape": lambda g, s: g.op(
        "Reshape",
        [
            g.op("Div", [g.op("Reshape", [s, g.number([-1, TOKENS, TOKENS], np.int64)], ""), g.number(5.0)], ""),
            g.number([-1, HEADS, TOKENS, TOKENS], np.int64),
        ],
        "",
    ),
}


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("product", ["MatMul", "Einsum"])
def test_scores_are_scaled_before_they_are_made(name: str, product: str) -> None:
    found = effect(RULE, attention(SCALES[name], product=product).model(), [queries(), queries(), queries()])
    assert len(found.repairs) == 1
    assert found.bit_identical
    assert found.before == np.inf
    assert found.after < np.inf
    dropped = "power of two" in name
    assert found.ops().count("Mul") + found.ops().count("Div") == (1 if dropped else 3 if "tiny" in name else 2)


def test_the_error_is_what_the_rounding_of_queries_and_keys_makes_it() -> None:
    feeds = [queries(6.0, width=2048) for _ in range(3)]
    found = effect(RULE, attention(SCALES["a tiny factor"], 2048).model(), feeds)
    assert found.bit_identical
    assert found.after < 1.0 < found.before


def test_scores_that_fit_are_left_alone_and_so_is_what_is_not_known_to_help() -> None:
    model = load(attention(SCALES["a power of two"]).model())
    assert len(RULE.find(model, Ranges())) == 1
    assert RULE.find(model, Ranges({"/MatMul_output_0": 900.0})) == ()


def scale_near_misses() -> dict[str, Graph]:
    def added_first(graph: Graph, scores: str) -> str:
        masked = graph.op("Add", [scores, graph.input("mask", [1, 1, TOKENS, TOKENS])], "")
        return graph.op("Div", [masked, graph.number(8.0)], "")

    def read_twice(graph: Graph, scores: str) -> str:
        other = graph.op("Sigmoid", [scores], "")
        return graph.op("Add", [graph.op("Div", [scores, graph.number(8.0)], ""), other], "")

    def shown(graph: Graph) -> Graph:
        graph.output("/MatMul_output_0", "scores", ["batch", HEADS, TOKENS, TOKENS])
        return graph

    return {
        "a computed factor": attention(lambda g, s: g.op("Mul", [s, g.input("temperature", [1])], "")),
        "a factor over one": attention(lambda g, s: g.op("Mul", [s, g.number(4.0)], "")),
        "a negative factor": attention(lambda g, s: g.op("Mul", [s, g.number(-0.125)], "")),
        "a number divided by the scores": attention(lambda g, s: g.op("Div", [g.number(0.5), s], "")),
        "a factor for each head": attention(lambda g, s: g.op("Mul", [s, g.number([[[0.25]], [[0.5]]])], "")),
        "a mask added first": attention(added_first),
        "scores read twice": attention(read_twice),
        "scores shown": shown(attention(SCALES["a power of two"])),
        "no scale": attention(lambda g, s: s),
    }


@pytest.mark.parametrize("name", scale_near_misses())
def test_scales_that_are_left_alone(name: str) -> None:
    assert RULE.find(load(scale_near_misses()[name].model()), Ranges()) == ()


def test_a_place_that_changed_meanwhile_is_not_touched() -> None:
    model = load(attention(SCALES["divided by a root"]).model())
    (repair,) = RULE.find(model, Ranges())
    once, done = repaired(model, [(RULE, repair)])
    assert done == (repair,)
    assert repaired(once, [(RULE, repair)])[1] == ()


@settings(deadline=None, max_examples=30)
@given(
    factor=st.floats(1e-4, 0.7),
    size=st.sampled_from([1e-3, 1.0, 100.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
    divides=st.booleans(),
)
def test_the_answer_stays_bit_by_bit(factor: float, size: float, seed: int, divides: bool) -> None:
    def scale(graph: Graph, scores: str) -> str:
        return graph.op("Div" if divides else "Mul", [scores, graph.number(1 / factor if divides else factor)], "")

    rng = np.random.default_rng(seed)
    shapes = {"q": (1, HEADS, TOKENS, 8), "k": (1, HEADS, 8, TOKENS), "v": (1, HEADS, TOKENS, 8)}
    feed = {name: (size * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    assert effect(RULE, attention(scale, 8).model(), [feed]).bit_identical


# -- the softmax ------------------------------------------------------------------------------------------------------

DIVISIONS: dict[str, Callable[[Graph, str, str], str]] = {
    "div": lambda g, p, t: g.op("Div", [p, t], ""),
    "reciprocal": lambda g, p, t: g.op("Mul", [p, g.op("Reciprocal", [t], "")], ""),
    "one over": lambda g, p, t: g.op("Mul", [g.op("Div", [g.number(1.0), t], ""), p], ""),
}
SUMS: dict[str, Callable[[Graph, str], str]] = {
    "alone": lambda g, t: t,
    "add": lambda g, t: g.op("Add", [t, g.number(1e-6)], ""),
    "max": lambda g, t: g.op("Max", [t, g.number(1e-6)], ""),
}


def by_hand(opset: int, division: str, guard: str, axes: list[int]) -> Graph:
    graph = Graph(opset)
    power = graph.op("Exp", [graph.input("x", ["rows", 5, 12])], "")
    total = SUMS[guard](graph, graph.sum(power, axes))
    graph.output(DIVISIONS[division](graph, power, total), "y", ["rows", 5, 12])
    return graph


def logits(size: float, offset: float = 0.0) -> dict[str, Array]:
    return {"x": (size * RNG.standard_normal((3, 5, 12)) + offset).astype(np.float32)}


@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("guard", SUMS)
@pytest.mark.parametrize(("opset", "axes"), [(11, [-1]), (11, [1]), (17, [1]), (18, [1, 2])])
def test_a_softmax_by_hand_becomes_stable(division: str, guard: str, opset: int, axes: list[int]) -> None:
    feeds = [logits(12.0), logits(20.0), logits(1.0), logits(1.0, -14.0)]
    found = effect(RULE, by_hand(opset, division, guard, axes).model(opset), feeds)
    operator = guard == "alone" and len(axes) == 1 and (opset >= 13 or axes == [-1])
    assert found.ops() == ["Softmax"] if operator else "ReduceMax" in found.ops()
    assert found.deviation < RULE.bound
    assert found.after < 1.0 < found.before


def test_the_failing_shape_needs_no_fp32_node() -> None:
    case = SHAPES["softmax_by_hand"]()
    found = effect(RULE, case.model, case.inputs, case.tolerance)
    assert len(found.repairs) == 1
    assert found.deviation < RULE.bound
    assert found.after < 0.2 < 1.0 < found.before


def test_powers_that_something_else_reads_stay() -> None:
    graph = Graph()
    power = graph.op("Exp", [graph.input("x", [3, 5, 12])], "")
    y = graph.op("Div", [power, graph.sum(power, [-1])], "")
    shown = graph.op("Mul", [power, graph.number(2.0)], "")
    graph.output(y, "y", [3, 5, 12])
    graph.output(shown, "shown", [3, 5, 12])
    found = effect(RULE, graph.model(), [logits(12.0)])
    assert sorted(found.ops()) == ["Exp", "Mul", "Softmax"]
    assert found.repaired.output_names == ("y", "shown")
    assert found.deviation < RULE.bound


def softmax_near_misses() -> dict[str, Graph]:
    def graph(build: Callable[[Graph, str], str]) -> Graph:
        made = Graph()
        made.output(build(made, made.input("x", [3, 5, 12])), "y", ["a", "b", "c"])
        return made

    def stable(g: Graph, x: str) -> str:
        power = g.op("Exp", [g.op("Sub", [x, g.op("ReduceMax", [x], "", axes=[-1])], "")], "")
        return g.op("Div", [power, g.sum(power, [-1])], "")

    def masked(g: Graph, x: str) -> str:
        power = g.op("Mul", [g.op("Exp", [x], ""), g.input("mask", [3, 5, 12])], "")
        return g.op("Div", [power, g.sum(power, [-1])], "")

    def dropped(g: Graph, x: str) -> str:
        power = g.op("Exp", [x], "")
        return g.op("Div", [power, g.sum(power, [0], keepdims=0)], "")

    def another(g: Graph, x: str) -> str:
        return g.op("Div", [g.op("Exp", [x], ""), g.sum(g.op("Exp", [g.op("Neg", [x], "")], ""), [-1])], "")

    return {
        "stable already": graph(stable),
        "masked powers": graph(masked),
        "a sum without its dimensions": graph(dropped),
        "the sum of something else": graph(another),
    }


@pytest.mark.parametrize("name", softmax_near_misses())
def test_softmaxes_that_are_left_alone(name: str) -> None:
    assert RULE.find(load(softmax_near_misses()[name].model()), Ranges()) == ()


def test_exponentials_that_fit_are_left_alone() -> None:
    assert effect(RULE, by_hand(17, "div", "alone", [-1]).model(), [logits(1.0)]).repairs == ()


@settings(deadline=None, max_examples=30)
@given(
    size=st.sampled_from([0.0, 1.0, 10.0, 25.0]),
    offset=st.floats(-60, 20, width=32),
    guard=st.sampled_from(sorted(SUMS)),
    axes=st.sampled_from([[-1], [1], [1, 2]]),
)
def test_the_fp32_answer_stays(size: float, offset: float, guard: str, axes: list[int]) -> None:
    feed = {"x": np.clip(logits(size, offset)["x"], -75, 80)}
    found = effect(RULE, by_hand(17, "div", guard, axes).model(), [feed])
    assert found.deviation < RULE.bound


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_attention_stays_fused(tmp_path: Path) -> None:
    found = effect(RULE, attention(SCALES["divided by a root"]).model(), [queries()])
    path = write_typed(Assignment.all_narrow(Sites(found.repaired)), tmp_path / "m.onnx").path
    shapes = {"q": (HEADS, TOKENS, 32), "k": (HEADS, 32, TOKENS), "v": (HEADS, TOKENS, 32)}
    profiles = {name: ((1, *shape), (2, *shape), (4, *shape)) for name, shape in shapes.items()}
    assert any("_gemm_mha" in kernel for kernel in rtx.build(path, profiles=profiles).kernels)
