"""Graphs with norms in every spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.model.model import Model, load
from halfwise.repair.norm_operator import NormOperator
from tests.models.numbered_graph import NumberedGraph
from tests.support.repairing import Effect

__all__ = ["GUARDS", "LOOSE", "RNG", "RULE", "WIDTH", "Array", "Graph", "outliers", "ways", "written"]


Array = NDArray[Any]
RULE = NormOperator()
LOOSE = 2e-6  # what another order of summation may change in FP32
WIDTH = 16
RNG = np.random.default_rng()


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


def ways(found: Effect) -> list[str]:
    return [str(repair.parameters["way"]) for repair in found.repairs]


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
