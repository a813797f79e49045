"""Patterns are found in every spelling that exporters write, and what only looks alike is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto

from benchmarks.zoo import SHAPES, detr_head, encoder, norm_log_head
from benchmarks.zoo.graph_writer import GraphWriter
from halfwise.model import load
from halfwise.patterns import KINDS, Pattern, find_patterns

SHARED = Path(__file__).parents[1].parent / "shared" / "models"
WIDTH = 8


class Graph(GraphWriter):
    """A writer with constants that name themselves."""

    def __init__(self, opset: int = 17) -> None:
        super().__init__("test")
        self.opset = opset
        self.count = 0

    def number(self, value: Any, dtype: Any = np.float32) -> str:
        self.count += 1
        return self.weight(f"constant_{self.count}", value, dtype)

    def reduce(self, op: str, x: str, axes: list[int], keepdims: int = 1) -> str:
        """Axes as attribute or as input, as the opset wants them."""
        if self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13):
            return self.op(op, [x, self.number(axes, np.int64)], "", keepdims=keepdims)
        return self.op(op, [x], "", axes=axes, keepdims=keepdims)

    def found(self, *kinds: str) -> list[Pattern]:
        """The patterns of these kinds (of all, if none is named)."""
        patterns = find_patterns(load(self.model(self.opset)))
        return [pattern for pattern in patterns if not kinds or pattern.kind in kinds]

    def names(self) -> set[str]:
        return {node.name for node in self.graph().node}


def kinds(patterns: list[Pattern]) -> list[str]:
    return [pattern.kind for pattern in patterns]


# -- norms ------------------------------------------------------------------------------------------------------------

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


# -- lengths, softmax, attention --------------------------------------------------------------------------------------


def length(graph: Graph, form: str) -> str:
    x = graph.input("x", [2, 5, WIDTH])
    if form.startswith("l2"):
        total = graph.reduce("ReduceL2", x, [-1])
    elif form.startswith("sumsquare"):
        total = graph.op("Sqrt", [graph.reduce("ReduceSumSquare", x, [-1])], "")
    else:
        square = graph.reduce("ReduceSum", graph.op("Mul", [x, x], ""), [-1])
        if "inside" in form:
            square = graph.op("Add", [square, graph.number(1e-12)], "")
        total = graph.op("Sqrt", [square], "")
    if "clip" in form:
        total = graph.op("Clip", [total, graph.number(1e-12)], "")
    if "max" in form:
        total = graph.op("Max", [total, graph.number(1e-12)], "")
    if "plus" in form:
        total = graph.op("Add", [total, graph.number(1e-12)], "")
    if "expand" in form:
        total = graph.op("Expand", [total, graph.op("Shape", [x], "")], "")
    if "times" in form:
        return graph.op("Mul", [graph.op("Reciprocal", [total], ""), x], "")
    return graph.op("Div", [x, total], "")


@pytest.mark.parametrize(
    ("form", "guard"),
    [
        ("l2", "none"),
        ("l2 clip expand", "length"),
        ("sumsquare max", "length"),
        ("sum inside", "square"),
        ("sum plus times", "length"),
        ("l2 max times", "length"),
    ],
)
def test_l2_normalisation(form: str, guard: str) -> None:
    graph = Graph()
    graph.output(length(graph, form), "y", [2, 5, WIDTH])
    (found,) = graph.found()
    assert (found.kind, found.details["guard"], found.details["axes"]) == ("l2norm", guard, (2,))
    assert found.details["epsilon"] == (0.0 if guard == "none" else pytest.approx(1e-12))
    assert set(found.nodes) == graph.names() - {"/Shape"}


def test_the_length_of_another_vector_is_no_normalisation() -> None:
    graph = Graph()
    x, other = graph.input("x", [2, WIDTH]), graph.input("other", [2, WIDTH])
    graph.output(graph.op("Div", [x, graph.reduce("ReduceL2", other, [-1])], ""), "y", [2, WIDTH])
    assert graph.found() == []


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("form", ["softmax, div", "softmax, mul", "logsumexp"])
def test_softmax_and_logsumexp_by_hand(stable: bool, form: str) -> None:
    graph = Graph()
    x = graph.input("x", [4, WIDTH])
    shifted = graph.op("Sub", [x, graph.reduce("ReduceMax", x, [-1])], "") if stable else x
    power = graph.op("Exp", [shifted], "")
    total = graph.reduce("ReduceSum", power, [-1])
    if form == "logsumexp":
        y = graph.op("Log", [total], "")
    elif form == "softmax, div":
        y = graph.op("Div", [power, total], "")
    else:
        y = graph.op("Mul", [graph.op("Reciprocal", [total], ""), power], "")
    graph.output(y, "y", [4, 1 if form == "logsumexp" else WIDTH])
    (found,) = graph.found()
    assert found.kind == form.partition(",")[0]
    assert (found.details["stable"], found.details["input"], found.anchor) == (stable, "x", "/Exp")
    assert set(found.nodes) == graph.names()


def test_what_is_no_softmax_is_left_alone() -> None:
    graph = Graph()
    x, other = graph.input("x", [4, WIDTH]), graph.input("other", [4, WIDTH])
    power = graph.op("Exp", [x], "")
    by_other = graph.op("Div", [power, graph.reduce("ReduceSum", graph.op("Exp", [other], ""), [-1])], "")
    by_largest = graph.op("Div", [power, graph.reduce("ReduceMax", power, [-1])], "")
    graph.output(graph.op("Add", [by_other, by_largest], ""), "y", [4, WIDTH])
    graph.output(graph.op("Log", [graph.reduce("ReduceSum", x, [-1])], ""), "z", [4, 1])
    assert graph.found() == []


ATTENTIONS: dict[str, tuple[float, float, int]] = {
    "plain": (1.0, 1.0, 0),
    "scaled after": (0.5, 1.0, 0),
    "divided after": (0.5, 1.0, 0),
    "scaled before": (1.0, 0.5, 0),
    "mask added": (0.5, 1.0, 1),
    "mask chosen": (1.0, 1.0, 1),
    "two masks": (1.0, 1.0, 2),
    "reshaped, dropped and masked again": (1.0, 1.0, 1),
}


@pytest.mark.parametrize("form", ATTENTIONS)
def test_attention(form: str) -> None:
    graph = Graph()
    query, key, value = (graph.input(name, [2, 4, 4]) for name in ("query", "key", "value"))
    if form == "scaled before":
        query = graph.op("Mul", [query, graph.number(0.5)], "")
    scores = graph.op("MatMul", [query, key], "")
    if form in ("scaled after", "mask added"):
        scores = graph.op("Mul", [graph.number(0.5), scores], "")
    if form == "divided after":
        scores = graph.op("Div", [scores, graph.number(2.0)], "")
    if form in ("mask added", "two masks"):
        scores = graph.op("Add", [graph.input("mask", [4, 4]), scores], "")
    if form == "two masks":
        scores = graph.op("Add", [scores, graph.weight("causal", np.triu(np.full([4, 4], -1e4), 1))], "")
    if form == "mask chosen":
        keep = graph.input("mask", [4, 4], TensorProto.BOOL)
        scores = graph.op("Where", [keep, scores, graph.number(-1e9)], "")
    if form.startswith("reshaped"):
        scores = graph.op("Reshape", [scores, graph.number([1, 2, 4, 4], np.int64)], "")
        scores = graph.op("Add", [scores, graph.input("mask", [4, 4])], "")
        scores = graph.op("Reshape", [scores, graph.number([2, 4, 4], np.int64)], "")
    weights = graph.op("Softmax", [scores], "", axis=-1)
    if form.startswith("reshaped"):
        weights = graph.op("Mul", [graph.op("Dropout", [weights], ""), graph.input("kept", [4, 4])], "")
    graph.output(graph.op("MatMul", [weights, value], ""), "y", [2, 4, 4])

    (found,) = graph.found()
    scale, before, masks = ATTENTIONS[form]
    assert (found.kind, found.anchor) == ("attention", "/Softmax")
    details = found.details
    assert (details["query"], details["key"], details["value"], details["output"]) == ("query", "key", "value", "y")
    assert (details["scale"], details["scale_before"], len(details["masks"])) == (scale, before, masks)
    assert set(found.nodes) == graph.names() - {"/Dropout"}


def test_a_classifier_is_no_attention() -> None:
    graph = Graph()
    x = graph.input("x", [2, WIDTH])
    logits = graph.op("MatMul", [x, graph.number(np.ones([WIDTH, 3]))], "")
    mixed = graph.op("MatMul", [graph.op("Softmax", [logits], "", axis=-1), graph.input("palette", [3, 4])], "")
    graph.output(mixed, "y", [2, 4])
    scores = graph.op("MatMul", [x, graph.input("other", [WIDTH, 3])], "")
    graph.output(graph.op("Softmax", [scores], "", axis=-1), "z", [2, 3])
    assert graph.found() == []


# -- logarithms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Add", "Max", "Clip"])
def test_guarded_logarithm(op: str) -> None:
    graph = Graph()
    guard = graph.op(op, [graph.input("x", [4]), graph.number(1e-10)], "")
    graph.output(graph.op("Log", [guard], ""), "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["input"]) == ("log-epsilon", f"/{op}", "x")
    assert found.details["epsilon"] == pytest.approx(1e-10)


def test_log1p_is_no_guard() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    graph.output(graph.op("Log", [graph.op("Add", [x, graph.number(1.0)], "")], ""), "y", [4])
    graph.output(graph.op("Log", [graph.op("Add", [x, x], "")], ""), "z", [4])
    assert graph.found() == []


def test_inverse_sigmoid_as_detr_writes_it() -> None:
    graph = Graph()
    inside = graph.op("Clip", [graph.input("x", [4]), graph.number(0.0), graph.number(1.0)], "")
    low = graph.op("Clip", [inside, graph.number(1e-5)], "")
    rest = graph.op("Clip", [graph.op("Sub", [graph.number(1.0), inside], ""), graph.number(1e-5)], "")
    graph.output(graph.op("Log", [graph.op("Div", [low, rest], "")], ""), "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.details["input"], found.anchor) == ("inverse-sigmoid", "x", "/Sub")
    assert found.details["low"] == found.details["low_rest"] == pytest.approx(1e-5)
    assert found.details["high"] == 1.0
    assert set(found.nodes) == graph.names()


def test_inverse_sigmoid_as_a_difference_of_logarithms() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    rest = graph.op("Sub", [graph.number(1.0), x], "")
    y = graph.op("Sub", [graph.op("Log", [x], ""), graph.op("Log", [rest], "")], "")
    graph.output(y, "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.details["low"], found.details["high"]) == ("inverse-sigmoid", None, None)


@pytest.mark.parametrize(("one", "of"), [(2.0, "x"), (1.0, "other")])
def test_what_is_no_inverse_sigmoid_is_left_alone(one: float, of: str) -> None:
    graph = Graph()
    x, _ = graph.input("x", [4]), graph.input("other", [4])
    ratio = graph.op("Div", [x, graph.op("Sub", [graph.number(one), of], "")], "")
    graph.output(graph.op("Log", [ratio], ""), "y", [4])
    assert graph.found() == []


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shape", "count", "sums"),
    [
        ("ReduceSum", [1, 2, 64, 64], 4096, True),
        ("ReduceSumSquare", [1, 2, 512, 512], 262144, True),
        ("ReduceMean", [1, 2, 64, 64], 4096, False),
        ("GlobalAveragePool", [1, 2, 64, 64], 4096, False),
        ("ReduceSum", [1, 2, 64, 63], None, True),
        ("ReduceSum", [1, 2, "height", "width"], None, True),
    ],
)
def test_large_reductions(op: str, shape: list[int | str], count: int | None, sums: bool) -> None:
    graph = Graph()
    x = graph.input("x", shape)
    y = graph.op(op, [x], "") if op == "GlobalAveragePool" else graph.reduce(op, x, [2, 3])
    graph.output(y, "y", [1, 2, 1, 1])
    found = graph.found()
    assert [(p.kind, p.details["count"], p.details["sums"]) for p in found] == (
        [] if count is None else [("large-reduction", count, sums)]
    )


def test_gram_matrix_and_its_near_misses() -> None:
    graph = Graph()
    x, other = graph.input("x", [2, 6, 50]), graph.input("other", [2, 6, 50])
    turned = graph.op("Transpose", [x], "", perm=[0, 2, 1])
    graph.output(graph.op("MatMul", [x, turned], "/gram"), "y", [2, 6, 6])
    graph.output(graph.op("MatMul", [other, turned], "/other"), "z", [2, 6, 6])
    square = graph.input("square", [5, 5, 5])
    cycled = graph.op("Transpose", [square], "", perm=[2, 0, 1])
    graph.output(graph.op("MatMul", [square, cycled], "/cycled"), "w", [5, 5, 5])
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["count"]) == ("gram", "/gram/MatMul", 50)


def test_running_sums_of_floats_only() -> None:
    graph = Graph()
    axis = graph.number(1, np.int64)
    graph.output(graph.op("CumSum", [graph.input("x", [1, 300]), axis], "/float"), "y", [1, 300])
    graph.output(
        graph.op("CumSum", [graph.input("ids", [1, 300], TensorProto.INT64), axis], "/int"),
        "z",
        [1, 300],
        TensorProto.INT64,
    )
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["count"]) == ("cumsum", "/float/CumSum", 300)


# -- coordinates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "values", "largest"),
    [
        ("Sub", np.arange(3000), 3000 - 1),
        ("Add", np.arange(3000) + 0.5, 2999.5),
        ("Mul", [4000.0] * 4, 4000),
        ("Mul", 4096.0, 4096),
        ("Sub", np.arange(2000), None),  # FP16 holds them all
        ("Add", [2920.51, 3.0], None),  # a bias
        ("Div", [4000.0], None),  # makes large numbers small
        ("Mul", [1e9], None),  # no coordinate any more
        ("Add", [-1e4, 0.0], None),  # a mask
    ],
)
def test_large_coordinates(op: str, values: Any, largest: float | None) -> None:
    graph = Graph()
    size = np.size(values)
    graph.output(graph.op(op, [graph.input("x", [2, size]), graph.weight("grid", values)], ""), "y", [2, size])
    found = graph.found()
    assert [(p.kind, p.details["largest"], p.details["step"]) for p in found] == (
        [] if largest is None else [("large-coordinates", largest, 4.0 if largest == 4096 else 2.0)]
    )


@pytest.mark.parametrize(("limit", "hit"), [(4000, True), (1000, False)])
def test_a_range_of_constants_is_a_grid(limit: int, hit: bool) -> None:
    graph = Graph()
    bounds = [graph.number(value, np.int64) for value in (0, limit, 1)]
    grid = graph.op("Cast", [graph.op("Range", bounds, "")], "", to=TensorProto.FLOAT)
    graph.output(graph.op("Sub", [graph.input("x", [2, 1]), grid], ""), "y", [2, limit])
    assert kinds(graph.found("large-coordinates")) == (["large-coordinates"] if hit else [])


@pytest.mark.parametrize("same", [True, False])
def test_a_remainder_by_hand(same: bool) -> None:
    graph = Graph()
    x, other, step = graph.input("x", [4]), graph.input("other", [4]), graph.number(16.0)
    cell = graph.op("Floor", [graph.op("Div", [x if same else other, step], "")], "")
    graph.output(graph.op("Sub", [x, graph.op("Mul", [cell, step], "")], ""), "y", [4])
    found = graph.found()
    assert [(p.kind, p.anchor, p.details["remainder"]) for p in found] == (
        [("large-coordinates", "/Sub", True)] if same else []
    )


def test_sine_embedding_of_pixels() -> None:
    graph = Graph()
    pixels = graph.op("Mul", [graph.input("boxes", [5, 1]), graph.number(4000.0)], "")
    turned = graph.op("Mul", [pixels, graph.number(2.0)], "")
    phase = graph.op("Div", [turned, graph.weight("dim_t", [1.0, 10.0, 100.0, 1000.0])], "")
    starts = [[graph.number([at], np.int64) for at in (first, 4)] for first in (0, 1)]
    every = [graph.number([1], np.int64), graph.number([2], np.int64)]
    halves = [graph.op("Slice", [phase, *bounds, *every], "") for bounds in starts]
    waves = [graph.op(op, [half], "") for op, half in zip(("Sin", "Cos"), halves, strict=True)]
    graph.output(graph.op("Concat", waves, "", axis=-1), "y", [5, 4])
    (found,) = graph.found("sincos-embedding")
    assert set(found.nodes) == {"/Mul_1", "/Div", "/Sin", "/Cos"}
    assert (found.details["factor"], found.details["largest"]) == (2.0, 4000.0)


@pytest.mark.parametrize("miss", ["one wave", "two phases", "no frequency", "constant"])
def test_what_is_no_sine_embedding_is_left_alone(miss: str) -> None:
    graph = Graph()
    x, rates = graph.input("x", [4, 1]), graph.weight("rates", [1.0, 2.0, 3.0])
    one = graph.op("Mul", [x, rates], "") if miss not in ("no frequency", "constant") else x
    if miss == "constant":
        one = graph.op("Mul", [graph.number(np.ones([4, 1])), rates], "")
    two = graph.op("Mul", [graph.input("other", [4, 1]), rates], "") if miss == "two phases" else one
    y = graph.op("Sin", [one], "")
    if miss != "one wave":
        y = graph.op("Add", [y, graph.op("Cos", [two], "")], "")
    graph.output(graph.op("Add", [y, x], ""), "y", [4, "columns"])
    assert graph.found() == []


# -- selections and ids -----------------------------------------------------------------------------------------------


def test_selections_of_computed_floats_only() -> None:
    graph = Graph()
    scores = graph.op("Sigmoid", [graph.input("x", [4, WIDTH])], "")
    ids = graph.input("ids", [4, WIDTH], TensorProto.INT64)
    table = graph.weight("table", np.ones([4, WIDTH]))
    for name, source in (("float", scores), ("int", ids), ("constant", table)):
        graph.output(graph.op("ArgMax", [source], f"/{name}"), name, [1, WIDTH], TensorProto.INT64)
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["op"]) == ("selection", "/float/ArgMax", "ArgMax")


def test_ids_given_as_floats() -> None:
    graph = Graph()
    ids = graph.op("Cast", [graph.input("ids", [4])], "", to=TensorProto.INT64)
    row = graph.op("Gather", [graph.weight("table", np.ones([5000, 3])), ids], "")
    graph.output(row, "y", [4, 3])
    (found,) = graph.found()
    assert (found.kind, found.anchor) == ("id-cast", "/Cast")
    assert (found.details["direction"], found.details["table"]) == ("to-index", 5000)


def test_integers_from_outside_calculated_with_as_floats() -> None:
    graph = Graph()
    steps = graph.op("Cast", [graph.input("steps", [4], TensorProto.INT64)], "", to=TensorProto.FLOAT)
    graph.output(graph.op("Mul", [steps, graph.number(0.1)], ""), "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.details["direction"]) == ("id-cast", "from-id")


def test_masks_and_shapes_are_no_ids() -> None:
    graph = Graph()
    x = graph.input("x", [4, WIDTH])
    mask = graph.op("Cast", [graph.input("mask", [4, 1], TensorProto.BOOL)], "", to=TensorProto.FLOAT)
    sizes = graph.op("Cast", [graph.op("Shape", [x], "")], "", to=TensorProto.FLOAT)
    total = graph.reduce("ReduceSum", sizes, [0])
    graph.output(graph.op("Add", [graph.op("Mul", [x, mask], ""), total], ""), "y", [4, WIDTH])
    rounded = graph.op("Cast", [x], "", to=TensorProto.INT64)
    graph.output(rounded, "z", [4, WIDTH], TensorProto.INT64)
    assert graph.found() == []


# -- all of them ------------------------------------------------------------------------------------------------------

EXPECTED = {
    "layer_norm_overflow": ["layernorm"],
    "rms_norm_overflow": ["rmsnorm"],
    "instance_norm_overflow": ["instancenorm"],
    "group_norm_overflow": ["groupnorm"],
    "l2_norm_of_padding": ["l2norm"],
    "l2_norm_of_small_vectors": ["l2norm"],
    "variance_by_moments": ["layernorm", "variance-by-moments"],
    "mask_minus_1e9": ["attention"],
    "two_masks_added": ["attention"],
    "sum_over_512x512": ["large-reduction"],
    "gram_matrix": ["gram"],
    "cumulative_sum": ["cumsum"],
    "log_sum_exp_by_hand": ["logsumexp"],
    "softmax_by_hand": ["softmax"],
    "log_of_probability": ["log-epsilon"],
    "top_k_selection": ["selection"],
    "inverse_sigmoid": ["inverse-sigmoid"],
    "large_coordinates": ["large-coordinates"],
    "large_phase": ["sincos-embedding"],
    "subnormal_weights": [],
    "healthy_mlp": [],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_shapes_of_the_zoo(name: str) -> None:
    model = load(SHAPES[name]().model)
    before = ir.to_proto(model.ir).SerializeToString(deterministic=True)
    assert [pattern.kind for pattern in find_patterns(model)] == EXPECTED[name]
    assert ir.to_proto(model.ir).SerializeToString(deterministic=True) == before, "looking changes nothing"


@pytest.mark.parametrize(
    ("build", "counts"),
    [
        (encoder, {"layernorm": 13, "attention": 6}),
        (detr_head, {"attention": 4, "inverse-sigmoid": 2, "sincos-embedding": 2, "large-coordinates": 2}),
        (norm_log_head, {"large-reduction": 1, "l2norm": 1, "gram": 1, "logsumexp": 1, "log-epsilon": 1}),
    ],
)
def test_networks_of_the_zoo(build: Callable[[], Any], counts: dict[str, int]) -> None:
    model = load(build().model)
    patterns = find_patterns(model)
    found = [pattern.kind for pattern in patterns]
    assert {kind: found.count(kind) for kind in found} == counts
    place = {node.name: index for index, node in enumerate(model.nodes)}
    assert [place[p.anchor] for p in patterns] == sorted(place[p.anchor] for p in patterns)
    for pattern in patterns:
        assert pattern.kind in KINDS
        assert pattern.anchor in pattern.nodes
        assert [place[name] for name in pattern.nodes] == sorted(place[name] for name in pattern.nodes)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("gtcrn_stream", {"layernorm": 4}),
        ("lighterglue_L3", {"attention": 12, "sincos-embedding": 2, "selection": 2}),
        ("magika_v1", {"layernorm": 2, "id-cast": 1}),
        ("yolox_nano", {}),
    ],
)
def test_real_models(name: str, counts: dict[str, int]) -> None:
    path = SHARED / name / "model.onnx"
    if not path.exists():
        pytest.skip("the shared models are not beside the project")
    found = [pattern.kind for pattern in find_patterns(load(path))]
    assert {kind: found.count(kind) for kind in found} == counts


def test_operators_that_lack_operands_are_no_patterns() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    for op in ("Div", "Mul", "Add", "Sub", "Pow", "Max"):
        x = graph.op(op, [x], "")
    graph.output(graph.op("Log", [graph.op("Sqrt", [x], "")], ""), "y", [4])
    assert graph.found() == []


def test_a_graph_of_one_node_has_no_pattern() -> None:
    graph = Graph()
    graph.output(graph.op("Relu", [graph.input("x", [4])], ""), "y", [4])
    assert graph.found() == []
