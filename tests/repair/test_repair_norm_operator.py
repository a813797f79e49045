"""Norms written out become the operator in every spelling; what is not quite a norm stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from halfwise.repair import Ranges
from halfwise.repair.norm_operator import NormOperator
from tests.models.zoo import SHAPES
from tests.support.norm_graphs import LOOSE, RNG, RULE, WIDTH, Graph, outliers, ways, written
from tests.support.repairing import effect

NEWEST = NormOperator(opset=23)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(402).bit_generator.state


def affine(graph: Graph, y: str, shape: list[int], *, bias: bool = True) -> str:
    y = graph.op("Mul", [graph.weight("gamma", RNG.uniform(0.5, 1.5, shape)), y], "")
    return graph.op("Add", [y, graph.weight("beta", RNG.uniform(-1, 1, shape))], "") if bias else y


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


@pytest.mark.parametrize("rest", ["beta - mean * f", "-mean * f + beta", "beta + -mean * f", "-mean * f"])
def test_the_scale_inside_and_the_mean_behind(rest: str) -> None:
    """x * f + rest, with f = rsqrt * gamma"""
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH])
    mean = graph.reduce("ReduceMean", x, [-1])
    c = graph.op("Sub", [x, mean], "")
    variance = graph.reduce("ReduceMean", graph.op("Mul", [c, c], ""), [-1])
    root = graph.op("Sqrt", [graph.op("Add", [variance, graph.number(1e-5)], "")], "")
    gamma, beta = graph.weight("gamma", RNG.uniform(0.5, 2, WIDTH)), graph.weight("beta", RNG.uniform(-1, 1, WIDTH))
    factor = graph.op("Mul", [graph.op("Reciprocal", [root], ""), gamma], "")
    taken = graph.op("Mul", [graph.op("Neg", [mean], "") if "-mean" in rest else mean, factor], "")
    if "beta" in rest:
        sides = [beta, taken] if rest.startswith("beta") else [taken, beta]
        taken = graph.op("Add" if "-mean" in rest else "Sub", sides, "")
    graph.output(graph.op("Add", [graph.op("Mul", [x, factor], ""), taken], ""), "y", [2, 5, WIDTH])
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
