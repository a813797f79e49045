"""Lengths, softmax and attention in every spelling, and what only looks like them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.models.pattern_graph import WIDTH, Graph


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
