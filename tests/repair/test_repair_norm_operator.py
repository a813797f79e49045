"""Norms written out become the operator in every spelling; what is not quite a norm stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.compiler import rtx
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges, Repair, repaired
from halfwise.repair.norm_operator import NormOperator
from tests.models.numbered_graph import NumberedGraph
from tests.models.zoo import SHAPES, encoder
from tests.support.repairing import Effect, effect

Array = NDArray[Any]
RULE = NormOperator()
NEWEST = NormOperator(opset=23)
LOOSE = 2e-6  # what another order of summation may change in FP32
WIDTH = 16
RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(402).bit_generator.state


class Graph(NumberedGraph):
    """A writer that numbers its constants and spells reductions as its opset does."""

    def constant(self, value: float) -> str:
        return self.op("Constant", [], "", value_float=value)

    def reduce(self, op: str, x: str, axes: list[int], keepdims: int = 1) -> str:
        if self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13):
            return self.op(op, [x, self.number(axes, np.int64)], "", keepdims=keepdims)
        return self.op(op, [x], "", axes=axes, keepdims=keepdims)

    def loaded(self) -> Model:
        return load(self.model(self.opset))


def outliers(*shape: int, size: float = 900.0) -> Array:
    """Values around 1 with one in ten up to `size`: their squares do not fit into FP16."""
    values = RNG.standard_normal(shape)
    return np.clip(np.where(RNG.random(shape) < 0.1, size * values, values), -3e4, 3e4).astype(np.float32)


def written(graph: Graph, x: str, axes: list[int], *, centre: bool = True, **parts: Any) -> str:
    """(x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon), with parts to exchange."""
    c = graph.op("Sub", [x, graph.reduce("ReduceMean", x, axes)], "") if centre else x
    square = parts.get("square", lambda g, c: g.op("Mul", [c, c], ""))(graph, c)
    variance = parts.get("mean", lambda g, s: g.reduce("ReduceMean", s, axes))(graph, square)
    guard = parts.get("guard", lambda g, v: g.op("Add", [v, g.number(1e-5)], ""))
    quotient = parts.get("quotient", lambda g, c, v: g.op("Div", [c, g.op("Sqrt", [v], "")], ""))
    result: str = quotient(graph, c, guard(graph, variance))
    return result


def affine(graph: Graph, y: str, shape: list[int], *, bias: bool = True) -> str:
    y = graph.op("Mul", [graph.weight("gamma", RNG.uniform(0.5, 1.5, shape)), y], "")
    return graph.op("Add", [y, graph.weight("beta", RNG.uniform(-1, 1, shape))], "") if bias else y


def ways(found: Effect) -> list[str]:
    return [str(repair.parameters["way"]) for repair in found.repairs]


# -- every spelling ---------------------------------------------------------------------------------------------------

SQUARES: dict[str, Callable[[Graph, str], str]] = {
    "pow": lambda g, c: g.op("Pow", [c, g.number(2.0)], ""),
    "pow by a constant node": lambda g, c: g.op("Pow", [c, g.constant(2.0)], ""),
    "mul": lambda g, c: g.op("Mul", [c, c], ""),
}
QUOTIENTS: dict[str, Callable[[Graph, str, str], str]] = {
    "sqrt, div": lambda g, c, v: g.op("Div", [c, g.op("Sqrt", [v], "")], ""),
    "sqrt, reciprocal": lambda g, c, v: g.op("Mul", [c, g.op("Reciprocal", [g.op("Sqrt", [v], "")], "")], ""),
    "reciprocal, sqrt": lambda g, c, v: g.op("Mul", [g.op("Sqrt", [g.op("Reciprocal", [v], "")], ""), c], ""),
    "one over sqrt": lambda g, c, v: g.op("Mul", [c, g.op("Div", [g.number(1.0), g.op("Sqrt", [v], "")], "")], ""),
    "pow -0.5": lambda g, c, v: g.op("Mul", [c, g.op("Pow", [v, g.number(-0.5)], "")], ""),
    "scale first": lambda g, c, v: g.op("Div", [g.op("Mul", [g.weight("early", RNG.uniform(0.5, 2, WIDTH)), c], ""),
                                                g.op("Sqrt", [v], "")], ""),
    "scale over root": lambda g, c, v: g.op(
        "Mul", [g.op("Mul", [g.op("Reciprocal", [g.op("Sqrt", [v], "")], ""),
                             g.weight("early", RNG.uniform(0.5, 2, WIDTH))], ""), c], ""),
}  # fmt: skip


def counted_from_the_shape(g: Graph, s: str) -> str:
    """The unbiased variance as TorchScript writes it."""
    size = g.op("Gather", [g.op("Shape", ["x"], ""), g.number([-1], np.int64)], "", axis=0)
    count = g.op("Cast", [g.op("ReduceProd", [size], "", keepdims=0)], "", to=TensorProto.FLOAT)
    total = g.op("Mul", [g.reduce("ReduceMean", s, [-1]), count], "")
    return g.op("Div", [total, g.op("Sub", [count, g.number(1.0)], "")], "")


MEANS: dict[str, Callable[[Graph, str], str]] = {
    "counted": counted_from_the_shape,
    "mean": lambda g, s: g.reduce("ReduceMean", s, [-1]),
    "sum / n": lambda g, s: g.op("Div", [g.reduce("ReduceSum", s, [2]), g.number(float(WIDTH))], ""),
    "unbiased": lambda g, s: g.op(
        "Div", [g.op("Mul", [g.reduce("ReduceMean", s, [-1]), g.number(float(WIDTH))], ""), g.number(WIDTH - 1.0)], ""
    ),
    "dropped and restored": lambda g, s: g.op(
        "Reshape", [g.reduce("ReduceMean", s, [-1], keepdims=0), g.number([0, -1, 1], np.int64)], ""
    ),
}


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("quotient", QUOTIENTS)
@pytest.mark.parametrize("mean", MEANS)
def test_layer_norm_in_every_spelling(square: str, quotient: str, mean: str) -> None:
    opset = 12 + (len(square) + len(quotient) + len(mean)) % 7
    graph = Graph(opset)
    x = graph.input("x", ["batch", 5, WIDTH])
    y = written(graph, x, [-1], square=SQUARES[square], quotient=QUOTIENTS[quotient], mean=MEANS[mean])
    graph.output(
        affine(graph, y, [WIDTH], bias="first" in quotient or "over" not in quotient), "y", ["batch", 5, WIDTH]
    )
    found = effect(RULE, graph.model(opset), [{"x": outliers(batch, 5, WIDTH)} for batch in (2, 1, 3)])
    assert ways(found) == ["LayerNormalization"]
    assert found.deviation < LOOSE
    assert found.repaired.opset() == max(opset, 17)
    assert found.repaired.output_names == ("y",)
    assert set(found.ops()) <= {"LayerNormalization", "Mul", "Add"}
    assert found.after < 0.3 < found.before


@pytest.mark.parametrize(
    ("shape", "axes", "scale", "op", "left"),
    [
        ([2, 5, WIDTH], [-1], None, "LayerNormalization", []),
        ([2, 5, WIDTH], [-1], [1, 1, WIDTH], "LayerNormalization", []),
        ([2, 5, WIDTH], [-1], [1], "LayerNormalization", []),
        ([2, 5, WIDTH], [-1], [5, WIDTH], "LayerNormalization", ["Mul", "Add"]),
        ([2, 5, WIDTH], [-1], [1, 1, 1, WIDTH], "LayerNormalization", ["Mul", "Add"]),
        ([2, 3, 5, WIDTH], [-1, -2], [5, WIDTH], "LayerNormalization", []),
        ([2, 3, 5, WIDTH], [-1, -2], [WIDTH], "LayerNormalization", []),
        ([2, 3, 5, WIDTH], [2, 3], [3, 1, 1], "InstanceNormalization", []),
        ([2, 3, 5, WIDTH], [3, 2], None, "InstanceNormalization", []),
        ([2, 3, "h", "w"], [2, 3], [3, 1, 1], "InstanceNormalization", []),
        ([2, 3, "h", "w"], [2, 3], [1, 3, 1, 1], "InstanceNormalization", []),
        ([2, 3, WIDTH], [2], [3, 1], "InstanceNormalization", []),
        ([2, 5, "w"], [-1], [1], "InstanceNormalization", []),
        ([2, 3, 4, 5, 6], [-3, -2, -1], [3, 1, 1, 1], "InstanceNormalization", []),
    ],
)
def test_axes_and_scale_choose_the_operator(
    shape: list[int | str], axes: list[int], scale: list[int] | None, op: str, left: list[str]
) -> None:
    graph = Graph()
    y = written(graph, graph.input("x", shape), axes)
    rank = max(len(shape), len(scale or ()))
    out = [1] * (rank - len(shape)) + shape
    graph.output(affine(graph, y, scale) if scale else graph.op("Abs", [y], ""), "y", out)
    sizes = [dim if isinstance(dim, int) else 7 for dim in shape]
    found = effect(RULE, graph.model(), [{"x": outliers(*sizes)} for _ in range(3)])
    assert found.deviation < LOOSE
    assert [each for each in found.ops() if each != "Abs"] == [op, *left]
    assert found.after < 0.3


def test_rms_norm_takes_the_operator_only_where_the_opset_may_have_it() -> None:
    graph = Graph()
    y = written(graph, graph.input("x", [2, 5, WIDTH]), [-1], centre=False)
    graph.output(affine(graph, y, [WIDTH]), "y", [2, 5, WIDTH])
    feeds = [{"x": outliers(2, 5, WIDTH)} for _ in range(3)]
    found = effect(NEWEST, graph.model(), feeds)
    assert (found.ops(), found.repaired.opset()) == (["RMSNormalization", "Add"], 23)
    assert found.deviation < LOOSE
    assert found.after < 0.3 < found.before
    found = effect(RULE, graph.model(), feeds)
    assert (ways(found), found.repaired.opset()) == (["by rows"], 17)
    assert found.deviation < LOOSE
    assert found.after < 0.3


@pytest.mark.parametrize(("opset", "ops"), [(17, ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]),
                                            (21, ["GroupNormalization"])])  # fmt: skip
@pytest.mark.parametrize("inner", [[0, 4, -1], [2, 4, 2, 6, 6]])
def test_group_norm(opset: int, ops: list[str], inner: list[int]) -> None:
    graph = Graph(opset)
    x = graph.input("x", [2, 8, 6, 6])
    grouped = graph.op("Reshape", [x, graph.number(inner, np.int64)], "")
    y = written(graph, grouped, list(range(2, len(inner))))
    y = graph.op("Reshape", [y, graph.number([2, 8, 6, 6], np.int64)], "")
    graph.output(affine(graph, y, [8, 1, 1]), "y", [2, 8, 6, 6])
    found = effect(RULE, graph.model(opset), [{"x": outliers(2, 8, 6, 6)} for _ in range(3)])
    assert found.ops() == ops
    assert found.deviation < LOOSE
    assert found.after < 0.3 < found.before


def test_one_group_is_no_group_normalization() -> None:
    """It is said by an operator that no compiler is reported to get wrong."""
    graph = Graph(21)
    x = graph.input("x", [2, 8, 6, 6])
    grouped = graph.op("Reshape", [x, graph.number([0, 1, -1], np.int64)], "")
    y = graph.op("Reshape", [written(graph, grouped, [2]), graph.number([2, 8, 6, 6], np.int64)], "")
    graph.output(affine(graph, y, [8, 1, 1]), "y", [2, 8, 6, 6])
    found = effect(RULE, graph.model(21), [{"x": outliers(2, 8, 6, 6)} for _ in range(3)])
    assert found.ops() == ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]
    assert found.deviation < LOOSE


def test_the_scale_inside_and_the_mean_behind() -> None:
    """x * (rsqrt * gamma) + (beta - mean * (rsqrt * gamma))"""
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH])
    mean = graph.reduce("ReduceMean", x, [-1])
    c = graph.op("Sub", [x, mean], "")
    variance = graph.reduce("ReduceMean", graph.op("Mul", [c, c], ""), [-1])
    root = graph.op("Sqrt", [graph.op("Add", [variance, graph.number(1e-5)], "")], "")
    gamma, beta = graph.weight("gamma", RNG.uniform(0.5, 2, WIDTH)), graph.weight("beta", RNG.uniform(-1, 1, WIDTH))
    factor = graph.op("Mul", [graph.op("Reciprocal", [root], ""), gamma], "")
    rest = graph.op("Sub", [beta, graph.op("Mul", [mean, factor], "")], "")
    graph.output(graph.op("Add", [graph.op("Mul", [x, factor], ""), rest], ""), "y", [2, 5, WIDTH])
    found = effect(RULE, graph.model(), [{"x": outliers(2, 5, WIDTH)} for _ in range(3)])
    assert found.ops() == ["LayerNormalization"]
    assert found.deviation < LOOSE


def test_variance_by_moments_becomes_the_operator_too() -> None:
    case = SHAPES["variance_by_moments"]()
    found = effect(RULE, case.model, case.inputs)
    assert ways(found) == ["LayerNormalization"]
    assert found.deviation < RULE.bound
    assert found.after < 2.0 < found.before  # what is left is the rounding of the input


def test_layer_norm_spelled_with_batch_normalization() -> None:
    graph = Graph()
    x = graph.input("x", [1, 6, WIDTH, 1])
    mean = graph.reduce("ReduceMean", x, [0, 2, 3])
    c = graph.op("Sub", [x, mean], "")
    variance = graph.reduce("ReduceMean", graph.op("Mul", [c, c], ""), [0, 2, 3], keepdims=0)
    flat = graph.reduce("ReduceMean", x, [0, 2, 3], keepdims=0)
    ones, zeros = graph.number(np.full(6, 1.5)), graph.number(np.full(6, 0.25))
    graph.output(graph.op("BatchNormalization", [x, ones, zeros, flat, variance], ""), "y", [1, 6, WIDTH, 1])
    found = effect(RULE, graph.model(), [{"x": outliers(1, 6, WIDTH, 1)} for _ in range(3)])
    assert found.ops() == ["InstanceNormalization"]
    assert found.deviation < LOOSE


# -- where no operator is to be had -----------------------------------------------------------------------------------

GUARDS: dict[str, dict[str, Any]] = {
    "a channel axis": {"axes": [1]},
    "an open last axis": {"axes": [-1], "open": True, "centre": False},
    "max inside": {"guard": lambda g, v: g.op("Max", [v, g.number(1e-5)], "")},
    "clip inside": {"guard": lambda g, v: g.op("Clip", [v, g.number(1e-5)], "")},
    "add outside": {
        "guard": lambda g, v: v,
        "quotient": lambda g, c, v: g.op("Div", [c, g.op("Add", [g.op("Sqrt", [v], ""), g.number(1e-3)], "")], ""),
    },
    "max outside": {
        "guard": lambda g, v: v,
        "quotient": lambda g, c, v: g.op("Div", [c, g.op("Max", [g.op("Sqrt", [v], ""), g.number(1e-3)], "")], ""),
    },
    "no guard": {"guard": lambda g, v: v, "axes": [1]},
    "unbiased": {"axes": [1], "mean": lambda g, s: g.op("Mul", [g.reduce("ReduceMean", s, [1]), g.number(1.25)], "")},
}


def scaled_graph(name: str, opset: int = 17) -> Graph:
    parts = dict(GUARDS[name])
    axes, last = parts.pop("axes", [-1]), "w" if parts.pop("open", False) else WIDTH
    graph = Graph(opset)
    graph.output(written(graph, graph.input("x", [2, 5, last]), axes, **parts), "y", [2, 5, last])
    return graph


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("opset", [13, 18])
def test_elsewhere_the_norm_is_scaled(name: str, opset: int) -> None:
    feeds = [{"x": outliers(2, 5, WIDTH, size=size)} for size in (900.0, 20000.0, 300.0)]
    found = effect(RULE, scaled_graph(name, opset).model(opset), feeds)
    assert ways(found) == ["shifted" if name == "no guard" else "by rows"]
    assert found.deviation < LOOSE
    assert found.after < 0.5 < found.before


@pytest.mark.parametrize("name", ["a channel axis", "add outside", "max inside"])
def test_a_constant_scale_where_the_epsilon_survives_it(name: str) -> None:
    feeds = [{"x": np.clip(outliers(2, 5, WIDTH, size=500.0), -600, 600)} for _ in range(3)]
    feeds[1]["x"][0] = 0.0  # nothing but the epsilon to divide by
    found = effect(RULE, scaled_graph(name).model(), feeds)
    assert ways(found) == ["shifted"]
    assert found.deviation < LOOSE
    assert found.after < 0.5 < found.before


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0, 300.0, 1e4])
@pytest.mark.parametrize("name", ["a channel axis", "max inside", "add outside"])
def test_rows_of_any_size_and_rows_of_zeros(name: str, size: float) -> None:
    rows = np.float32(size) * RNG.standard_normal((2, 5, WIDTH)).astype(np.float32)
    rows[0] = 0.0
    rows[1, 0] *= 1e-3
    feeds = [{"x": outliers(2, 5, WIDTH, size=3e4)}, {"x": np.clip(rows, -3e4, 3e4)}]
    found = effect(RULE, scaled_graph(name).model(), feeds, searched=1)
    assert ways(found) == ["by rows"]
    assert found.deviation < LOOSE
    assert found.after < 1.0


def test_a_norm_that_fits_is_not_scaled() -> None:
    found = effect(RULE, scaled_graph("a channel axis").model(), [{"x": outliers(2, 5, WIDTH, size=30.0)}])
    assert found.repairs == ()


# -- what is left alone -----------------------------------------------------------------------------------------------


def near_misses() -> dict[str, Callable[[Graph], str]]:
    shape: list[int | str] = [2, 5, WIDTH]

    def norm(graph: Graph, **parts: Any) -> str:
        return written(graph, graph.input("x", shape), [-1], **parts)

    def two_guards(graph: Graph, c: str, v: str) -> str:
        return graph.op("Div", [c, graph.op("Add", [graph.op("Sqrt", [v], ""), graph.number(1e-3)], "")], "")

    def open_sum(graph: Graph) -> str:
        x = graph.input("x", [2, 5, "w"])
        total = graph.reduce("ReduceSum", graph.op("Mul", [x, x], ""), [-1])
        mean = graph.op("Div", [total, graph.number(float(WIDTH))], "")
        return graph.op("Div", [x, graph.op("Sqrt", [graph.op("Add", [mean, graph.number(1e-5)], "")], "")], "")

    def reversed_numerator(graph: Graph) -> str:
        x = graph.input("x", shape)
        c = graph.op("Sub", [graph.reduce("ReduceMean", x, [-1]), x], "")
        variance = graph.reduce("ReduceMean", graph.op("Mul", [c, c], ""), [-1])
        root = graph.op("Sqrt", [graph.op("Add", [variance, graph.number(1e-5)], "")], "")
        return graph.op("Div", [c, root], "")

    return {
        "two epsilons": lambda g: norm(g, quotient=two_guards),
        "a variance limited from above": lambda g: norm(
            g, guard=lambda g, v: g.op("Clip", [v, g.number(1e-5), g.number(10.0)], "")
        ),
        "an epsilon that is computed": lambda g: norm(g, guard=lambda g, v: g.op("Add", [v, g.input("e", [1])], "")),
        "a sum over an open axis": open_sum,
        "mean minus x": reversed_numerator,
        "a cube": lambda g: norm(g, square=lambda g, c: g.op("Pow", [c, g.number(3.0)], "")),
        "another axis": lambda g: norm(g, mean=lambda g, s: g.reduce("ReduceMean", s, [1])),
        "a sum over one too many": lambda g: norm(
            g, mean=lambda g, s: g.op("Div", [g.reduce("ReduceSum", s, [-1]), g.number(WIDTH + 2.0)], "")
        ),
        "no division": lambda g: norm(g, quotient=lambda g, c, v: g.op("Mul", [c, g.op("Sqrt", [v], "")], "")),
    }


@pytest.mark.parametrize("name", near_misses())
def test_near_misses_are_left_alone(name: str) -> None:
    graph = Graph()
    graph.output(near_misses()[name](graph), "y", [2, 5, "any"])
    model = graph.loaded()
    assert NEWEST.find(model, Ranges()) == ()


def test_a_norm_that_the_model_computes_in_fp16_is_left_alone() -> None:
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH], TensorProto.FLOAT16)
    c = graph.op("Sub", [x, graph.reduce("ReduceMean", x, [-1])], "")
    variance = graph.reduce("ReduceMean", graph.op("Mul", [c, c], ""), [-1])
    guarded = graph.op("Add", [variance, graph.number(1e-3, np.float16)], "")
    graph.output(graph.op("Div", [c, graph.op("Sqrt", [guarded], "")], ""), "y", [2, 5, WIDTH], TensorProto.FLOAT16)
    assert RULE.find(graph.loaded(), Ranges()) == ()


def test_fp32_statistics_between_casts_keep_their_casts() -> None:
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH], TensorProto.FLOAT16)
    wide = graph.op("Cast", [x], "", to=TensorProto.FLOAT)
    graph.output(
        graph.op("Cast", [written(graph, wide, [-1])], "", to=TensorProto.FLOAT16), "y", [2, 5, WIDTH],
        TensorProto.FLOAT16,
    )  # fmt: skip
    found = effect(RULE, graph.model(), [{"x": outliers(2, 5, WIDTH).astype(np.float16)}])
    assert found.ops() == ["Cast", "LayerNormalization", "Cast"]


# -- the graph around -------------------------------------------------------------------------------------------------


def test_what_others_read_stays_and_shared_constants_stay_as_they_are() -> None:
    graph = Graph(13)
    x = graph.input("x", [2, 5, WIDTH])
    two, epsilon, gamma = graph.number(2.0), graph.number(1e-5), graph.weight("gamma", RNG.uniform(0.5, 2, WIDTH))
    for _ in range(2):
        c = graph.op("Sub", [x, graph.reduce("ReduceMean", x, [-1])], "")
        variance = graph.reduce("ReduceMean", graph.op("Pow", [c, two], ""), [-1])
        root = graph.op("Sqrt", [graph.op("Add", [variance, epsilon], "")], "")
        x = graph.op("Mul", [graph.op("Div", [c, root], ""), gamma], "")
    twice = graph.op("Mul", [x, two], "")
    graph.output(root, "deviation", [2, 5, 1])
    graph.output(x, "y", [2, 5, WIDTH])
    graph.output(twice, "twice", [2, 5, WIDTH])
    found = effect(RULE, graph.model(13), [{"x": outliers(2, 5, WIDTH)}])
    assert ways(found) == ["LayerNormalization"] * 2
    assert found.repaired.output_names == ("deviation", "y", "twice")
    assert found.ops().count("LayerNormalization") == 2
    assert found.ops().count("Sqrt") == 1
    assert found.deviation < LOOSE
    assert [value.name for node in found.repaired.nodes if node.op_type == "LayerNormalization" for value in
            node.inputs if value is not None and value.is_initializer()] == ["gamma", "gamma"]  # fmt: skip


def test_norms_in_branches_are_repaired_inside() -> None:
    case = SHAPES["if_with_norms"]()
    found = effect(RULE, case.model, case.inputs, case.tolerance)
    assert len(found.repairs) == 2
    assert found.deviation < LOOSE
    assert found.after < 1.0 < found.before


def test_a_place_that_changed_meanwhile_is_not_touched() -> None:
    graph = Graph()
    graph.output(written(graph, graph.input("x", [2, 5, WIDTH]), [-1]), "y", [2, 5, WIDTH])
    model = graph.loaded()
    (repair,) = RULE.find(model, Ranges())
    once, done = repaired(model, [(RULE, repair)])
    assert done == (repair,)
    again, done = repaired(once, [(RULE, repair)])
    assert done == ()
    assert [node.op_type for node in again.nodes] == ["LayerNormalization"]
    elsewhere = Repair(repair.rule, ("/Gone", *repair.nodes[1:]), repair.algebra, repair.parameters)
    assert repaired(model, [(RULE, elsewhere)])[1] == ()
    assert len(model.nodes) == 7


@settings(deadline=None, max_examples=40)
@given(
    data=st.data(),
    width=st.integers(1, 24),
    factor=st.sampled_from([1e-3, 1.0, 50.0, 4e3]),
    offset=st.sampled_from([0.0, 1.0, -30.0]),
    name=st.sampled_from(["layer", "rms", "channel", "outside"]),
)
def test_the_fp32_answer_stays(data: st.DataObject, width: int, factor: float, offset: float, name: str) -> None:
    graph = Graph(16)
    x = graph.input("x", [2, 3, width])
    parts = GUARDS["add outside"] if name == "outside" else {}
    y = written(graph, x, [1] if name == "channel" else [-1], centre=name != "rms", **parts)
    graph.output(y, "y", [2, 3, width])
    seed = data.draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).standard_normal((2, 3, width)) * factor + offset * factor
    values[0, 0] = data.draw(st.sampled_from([0.0, 1.0, -65000.0]))
    found = effect(RULE, graph.model(16), [{"x": values.astype(np.float32)}])
    if found.repairs:
        assert found.deviation < RULE.bound


# -- the failing models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("layer_norm_overflow", "LayerNormalization"),
        ("rms_norm_overflow", "by rows"),
        ("instance_norm_overflow", "InstanceNormalization"),
        ("group_norm_overflow", "InstanceNormalization"),
    ],
)
def test_the_failing_shapes_need_no_fp32_node(name: str, way: str) -> None:
    case = SHAPES[name]()
    found = effect(RULE, case.model, case.inputs, case.tolerance)
    assert ways(found) == [way]
    assert found.deviation < LOOSE
    assert found.after < 0.2 < 1.0 < found.before


def test_the_encoder_of_305_nodes_needs_no_fp32_node_at_one_percent() -> None:
    case = encoder()
    found = effect(RULE, case.model, case.inputs, 0.01)
    assert len(found.model.nodes) == 305
    assert ways(found) == ["LayerNormalization"] * 13
    assert found.deviation < LOOSE
    sites = Sites(found.repaired)
    assert sites.pinned == ()  # nothing is FP32 but what is asked for, and nothing is asked for
    assert found.before > 50.0
    assert found.after < 0.2


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_the_compiler_takes_the_statistics_in_fp32_and_fuses_as_before(tmp_path: Path) -> None:
    case = encoder(layers=1)
    found = effect(RULE, case.model, case.inputs[:1])
    kernels = {}
    for word, model in (("before", found.model), ("after", found.repaired)):
        path = write_typed(Assignment.all_narrow(Sites(model)), tmp_path / f"{word}.onnx").path
        kernels[word] = [re.sub(r"Name: ([^,]*),.*", r"\1", line) for line in rtx.build(path).kernels]
    assert len(kernels["after"]) <= len(kernels["before"])
    wide = "CastMeanSubMulMeanAddSqrtDivMulCast"  # into FP32 before the first mean, back behind the quotient
    assert sum(wide in name for name in kernels["after"]) == 3
    assert not any(wide in name for name in kernels["before"])
    assert any("_gemm_mha" in name for name in kernels["after"])
