"""Norms are found in every spelling that exporters write, and what only looks like one is left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto

from tests.models.pattern_graph import WIDTH, Graph, kinds

SQUARES: dict[str, Callable[[Graph, str], str]] = {
    "pow": lambda g, x: g.op("Pow", [x, g.number(2.0)], ""),
    "mul": lambda g, x: g.op("Mul", [x, x], ""),
}
QUOTIENTS: dict[str, Callable[[Graph, str, str], str]] = {
    "sqrt, div": lambda g, x, v: g.op("Div", [x, g.op("Sqrt", [v], "")], ""),
    "sqrt, reciprocal, mul": lambda g, x, v: g.op("Mul", [x, g.op("Reciprocal", [g.op("Sqrt", [v], "")], "")], ""),
    "sqrt, 1 / it, mul": lambda g, x, v: g.op("Mul", [g.op("Div", [g.number(1.0), g.op("Sqrt", [v], "")], ""), x], ""),
    "reciprocal, sqrt, mul": lambda g, x, v: g.op("Mul", [x, g.op("Sqrt", [g.op("Reciprocal", [v], "")], "")], ""),
    "pow 0.5, div": lambda g, x, v: g.op("Div", [x, g.op("Pow", [v, g.number(0.5)], "")], ""),
    "pow -0.5, mul": lambda g, x, v: g.op("Mul", [x, g.op("Pow", [v, g.number(-0.5)], "")], ""),
    "sqrt, pow -1, mul": lambda g, x, v: g.op("Mul", [x, g.op("Pow", [g.op("Sqrt", [v], ""), g.number(-1.0)], "")], ""),
}
MEANS: dict[str, Callable[[Graph, str, list[int], int], str]] = {
    "mean": lambda g, x, axes, n: g.reduce("ReduceMean", x, axes),
    "sum / n": lambda g, x, axes, n: g.op("Div", [g.reduce("ReduceSum", x, axes), g.number(float(n))], ""),
    "sum * 1 / n": lambda g, x, axes, n: g.op("Mul", [g.number(1.0 / n), g.reduce("ReduceSum", x, axes)], ""),
}


def scaled(graph: Graph, x: str, shape: list[int], bias: bool = True) -> str:
    y = graph.op("Mul", [graph.weight("gamma", np.ones(shape)), x], "")
    return graph.op("Add", [y, graph.weight("beta", np.zeros(shape))], "") if bias else y


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("quotient", QUOTIENTS)
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("opset", [11, 17, 18])
def test_layer_norm_in_every_spelling(square: str, quotient: str, mean: str, opset: int) -> None:
    graph = Graph(opset)
    x = graph.input("x", [2, 5, WIDTH])
    centred = graph.op("Sub", [x, MEANS[mean](graph, x, [-1], WIDTH)], "")
    variance = MEANS[mean](graph, SQUARES[square](graph, centred), [-1], WIDTH)
    guarded = graph.op("Add", [graph.number(1e-5), variance], "")
    y = scaled(graph, QUOTIENTS[quotient](graph, centred, guarded), [WIDTH])
    graph.output(y, "y", [2, 5, WIDTH])

    (found,) = graph.found()
    assert found.kind == "layernorm"
    assert set(found.nodes) == graph.names()
    assert found.anchor in ("/Pow", "/Mul", "/Mul_1")
    details = found.details
    assert (details["input"], details["output"]) == ("x", "y")
    assert (details["scale"], details["bias"]) == ("gamma", "beta")
    assert details["axes"] == (2,)
    assert details["epsilon"] == pytest.approx(1e-5)
    assert details["variance_factor"] == 1.0
    assert not details["by_moments"]


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("quotient", QUOTIENTS)
def test_rms_norm_in_every_spelling(square: str, quotient: str) -> None:
    graph = Graph()
    x = graph.input("x", ["batch", "tokens", WIDTH])
    variance = graph.reduce("ReduceMean", SQUARES[square](graph, x), [-1])
    guarded = graph.op("Add", [variance, graph.number(1e-6)], "")
    y = scaled(graph, QUOTIENTS[quotient](graph, x, guarded), [WIDTH], bias=False)
    graph.output(y, "y", ["batch", "tokens", WIDTH])

    (found,) = graph.found()
    assert found.kind == "rmsnorm"
    assert set(found.nodes) == graph.names()
    assert (found.details["scale"], found.details["bias"], found.details["axes"]) == ("gamma", None, (2,))


def norm(
    graph: Graph,
    shape: list[int | str],
    axes: list[int],
    *,
    centre: Callable[[Graph, str, str], str] = lambda g, x, m: g.op("Sub", [x, m], ""),
    squared: Callable[[Graph, str], str] = SQUARES["mul"],
    variance_axes: list[int] | None = None,
    numerator: Callable[[Graph, str, str, str], str] = lambda g, x, mean, centred: centred,
    x: str = "x",
) -> str:
    """(x - mean) / sqrt(variance + epsilon), with parts to exchange."""
    if x == "x":
        graph.input("x", shape)
    mean = graph.reduce("ReduceMean", x, axes)
    centred = centre(graph, x, mean)
    variance = graph.reduce("ReduceMean", squared(graph, centred), variance_axes or axes)
    deviation = graph.op("Sqrt", [graph.op("Add", [variance, graph.number(1e-5)], "")], "")
    return graph.op("Div", [numerator(graph, x, mean, centred), deviation], "")


@pytest.mark.parametrize(
    ("shape", "axes", "scale", "kind"),
    [
        ([2, 5, WIDTH], [-1], [WIDTH], "layernorm"),
        ([2, 3, 5, WIDTH], [-2, -1], [5, WIDTH], "layernorm"),
        ([2, WIDTH, 5, 5], [1], [WIDTH, 1, 1], "layernorm"),
        ([2, WIDTH, 5, 5], [2, 3], [WIDTH, 1, 1], "instancenorm"),
        ([2, WIDTH, 5, 5], [2, 3], None, "instancenorm"),
        ([2, WIDTH, 5], [2], [WIDTH, 1], "instancenorm"),
        ([2, WIDTH, 5], [2], None, "layernorm"),
        ([2, WIDTH, 4, 5, 6], [-3, -2, -1], [1, WIDTH, 1, 1, 1], "instancenorm"),
    ],
)
def test_axes_and_scale_tell_the_kind_of_norm(
    shape: list[int | str], axes: list[int], scale: list[int] | None, kind: str
) -> None:
    graph = Graph()
    y = norm(graph, shape, axes)
    graph.output(scaled(graph, y, scale) if scale else y, "y", shape)
    (found,) = graph.found()
    assert found.kind == kind
    assert found.details["axes"] == tuple(sorted(axis % len(shape) for axis in axes))


@pytest.mark.parametrize(("groups", "kind"), [(4, "groupnorm"), (8, "instancenorm")])
def test_groups_are_reshaped_and_back(groups: int, kind: str) -> None:
    graph = Graph()
    x = graph.input("x", [2, 8, 6, 6])
    flat = graph.op("Reshape", [x, graph.number([2, groups, -1], np.int64)], "")
    normal = norm(graph, [], [2], x=flat)
    maps = graph.op("Reshape", [normal, graph.number([2, 8, 6, 6], np.int64)], "")
    graph.output(scaled(graph, maps, [8, 1, 1]), "y", [2, 8, 6, 6])
    (found,) = graph.found()
    assert found.kind == kind
    assert (found.details["input"], found.details["output"]) == ("x", "y")


def test_subtracting_twice_and_the_other_way_round() -> None:
    graph = Graph()
    y = norm(
        graph,
        [2, 5, WIDTH],
        [-1],
        centre=lambda g, x, m: g.op("Sub", [m, x], ""),
        numerator=lambda g, x, m, c: g.op("Sub", [x, m], ""),
    )
    graph.output(y, "y", [2, 5, WIDTH])
    (found,) = graph.found()
    assert found.kind == "layernorm"
    assert set(found.nodes) == graph.names()


def test_a_mean_computed_twice_is_one_mean() -> None:
    graph = Graph()
    y = norm(
        graph,
        [2, 5, WIDTH],
        [-1],
        numerator=lambda g, x, m, c: g.op("Sub", [x, g.reduce("ReduceMean", x, [-1])], ""),
    )
    graph.output(y, "y", [2, 5, WIDTH])
    assert kinds(graph.found()) == ["layernorm"]


def test_identity_dropout_and_idle_casts_are_seen_through() -> None:
    graph = Graph()
    y = norm(
        graph,
        [2, 5, WIDTH],
        [-1],
        squared=lambda g, c: g.op("Mul", [g.op("Identity", [c], ""), g.op("Dropout", [c], "")], ""),
        numerator=lambda g, x, m, c: g.op("Cast", [c], "", to=TensorProto.FLOAT),
    )
    graph.output(y, "y", [2, 5, WIDTH])
    assert kinds(graph.found()) == ["layernorm"]


def test_the_scale_multiplied_in_before_and_the_mean_after() -> None:
    """x * (rsqrt * gamma) + (beta - mean * (rsqrt * gamma)), as TensorFlow spells a batch norm."""
    graph = Graph()
    x = graph.input("x", [2, WIDTH, 5])
    mean = graph.reduce("ReduceMean", x, [1])
    square = graph.op("Mul", [graph.op("Sub", [x, mean], "")] * 2, "")
    variance = graph.op("Add", [graph.reduce("ReduceMean", square, [1]), graph.number(1e-3)], "")
    inverse = graph.op("Reciprocal", [graph.op("Sqrt", [variance], "")], "")
    factor = graph.op("Mul", [inverse, graph.weight("gamma", np.ones([1, WIDTH, 1]))], "")
    rest = graph.op("Sub", [graph.weight("beta", np.ones([1, WIDTH, 1])), graph.op("Mul", [mean, factor], "")], "")
    graph.output(graph.op("Add", [graph.op("Mul", [x, factor], ""), rest], ""), "y", [2, WIDTH, 5])
    (found,) = graph.found()
    assert found.kind == "layernorm"
    assert set(found.nodes) == graph.names()
    assert (found.details["scale"], found.details["bias"], found.details["output"]) == ("gamma", "beta", "y")


@pytest.mark.parametrize("factors", [[8 / 7], [8.0, 1 / 7]])
def test_unbiased_variance_is_told(factors: list[float]) -> None:
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH])
    centred = graph.op("Sub", [x, graph.reduce("ReduceMean", x, [-1])], "")
    variance = graph.reduce("ReduceMean", graph.op("Mul", [centred, centred], ""), [-1])
    for factor in factors:
        variance = graph.op("Mul", [variance, graph.number(factor)], "")
    deviation = graph.op("Add", [graph.op("Sqrt", [variance], ""), graph.number(1e-5)], "")
    graph.output(graph.op("Div", [centred, deviation], ""), "y", [2, 5, WIDTH])
    (found,) = graph.found()
    assert found.details["variance_factor"] == pytest.approx(8 / 7, rel=1e-3)
    assert found.details["epsilon_outside"]


def test_variance_by_moments_is_a_pattern_of_its_own() -> None:
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH])
    mean = graph.reduce("ReduceMean", x, [-1])
    moment = graph.reduce("ReduceMean", graph.op("Pow", [x, graph.number(2.0)], ""), [-1])
    variance = graph.op("Sub", [moment, graph.op("Mul", [mean, mean], "")], "")
    kept = graph.op("Relu", [variance], "")
    deviation = graph.op("Sqrt", [graph.op("Add", [kept, graph.number(1e-5)], "")], "")
    graph.output(graph.op("Div", [graph.op("Sub", [x, mean], ""), deviation], ""), "y", [2, 5, WIDTH])
    found = {pattern.kind: pattern for pattern in graph.found()}
    assert set(found) == {"layernorm", "variance-by-moments"}
    assert found["layernorm"].details["by_moments"]
    assert found["variance-by-moments"].anchor == "/Sub"


def near_misses_of_norms() -> dict[str, Callable[[Graph], str]]:
    shape: list[int | str] = [2, WIDTH, WIDTH]

    def other(graph: Graph) -> str:
        return graph.input("other", shape)

    return {
        "mean and variance over different axes": lambda g: norm(g, shape, [-1], variance_axes=[-2]),
        "a cube": lambda g: norm(g, shape, [-1], squared=lambda g, c: g.op("Pow", [c, g.number(3.0)], "")),
        "a product of two tensors": lambda g: norm(g, shape, [-1], squared=lambda g, c: g.op("Mul", [c, other(g)], "")),
        "the mean of something else": lambda g: norm(
            g,
            shape,
            [-1],
            centre=lambda g, x, m: g.op("Sub", [other(g), m], ""),
            numerator=lambda g, x, m, c: x,
        ),
        "a numerator that is not centred": lambda g: norm(g, shape, [-1], numerator=lambda g, x, m, c: x),
        "another numerator": lambda g: norm(g, shape, [-1], numerator=lambda g, x, m, c: other(g)),
        "no root": lambda g: g.op(
            "Div", [g.input("x", shape), g.reduce("ReduceMean", g.op("Mul", ["x", "x"], ""), [-1])], ""
        ),
        "energy, never divided by": lambda g: g.op(
            "Sqrt", [g.reduce("ReduceMean", g.op("Mul", [g.input("x", shape), "x"], ""), [-1])], ""
        ),
        "a root that is divided": lambda g: g.op(
            "Div",
            [
                g.op("Sqrt", [g.reduce("ReduceMean", g.op("Mul", [g.input("x", shape), "x"], ""), [-1])], ""),
                "x",
            ],
            "",
        ),
    }


@pytest.mark.parametrize("name", near_misses_of_norms())
def test_what_is_no_norm_is_left_alone(name: str) -> None:
    graph = Graph()
    graph.output(near_misses_of_norms()[name](graph), "y", [2, WIDTH, WIDTH])
    assert graph.found() == []


def test_x_plus_its_mean_is_no_layer_norm() -> None:
    """It is an RMSNorm of the sum, though."""
    graph = Graph()
    y = norm(graph, [2, 5, WIDTH], [-1], centre=lambda g, x, m: g.op("Add", [x, m], ""))
    graph.output(y, "y", [2, 5, WIDTH])
    (found,) = graph.found()
    assert (found.kind, found.details["input"]) == ("rmsnorm", "/Add_output_0")


def test_a_sum_divided_by_another_number_is_no_mean() -> None:
    graph = Graph()
    x = graph.input("x", [2, 5, WIDTH])
    total = graph.reduce("ReduceSum", graph.op("Mul", [x, x], ""), [-1])
    root = graph.op("Sqrt", [graph.op("Div", [total, graph.number(3.0)], "")], "")
    graph.output(graph.op("Div", [x, root], ""), "y", [2, 5, WIDTH])
    assert graph.found() == []


def test_a_scale_computed_from_inputs_is_not_part_of_the_norm() -> None:
    graph = Graph()
    y = norm(graph, [2, 5, WIDTH], [-1])
    graph.output(graph.op("Mul", [y, graph.input("style", [2, 1, WIDTH])], ""), "y", [2, 5, WIDTH])
    (found,) = graph.found()
    assert found.details["scale"] is None
    assert "/Mul_1" not in found.nodes


def test_a_normed_value_that_is_read_twice_ends_the_norm() -> None:
    graph = Graph()
    y = norm(graph, [2, 5, WIDTH], [-1])
    graph.output(graph.op("Add", [scaled(graph, y, [WIDTH]), y], ""), "out", [2, 5, WIDTH])
    (found,) = graph.found()
    assert found.details["scale"] is None
