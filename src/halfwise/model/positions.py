"""Finds float arithmetic that ends as a position: an index, a size, a count. Rounded, it names another place, or none.

A position is followed backwards, over integers to the Cast that made them, then over the floats that were cast, as far
as operators only do sums with them. What such a stretch starts from decides. From integers, shapes, constants and
inputs alone, the stretch is positions throughout. Behind a network's own arithmetic it is so where it scales or bounds
by an integer or a number that the format does not count to; else what is rounded is the network, and is measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.moving import MOVES, Move, movers
from halfwise.model.operator_slots import index_slots, shape_slots

__all__ = ["position_arithmetic"]

_SUMS = MOVES | frozenset(
    """Add Sub Mul Div Mod Neg Abs Sign Floor Ceil Round Clip Min Max Relu Sum Sqrt Log Exp Pow Reciprocal CumSum Range
    ReduceMax ReduceMin ReduceSum ReduceProd""".split()
)
_MOST = 2.0**62  # a larger bound is none
_TABLE = 1 << 16  # elements
_CASTS = movers(Move.CAST)


def position_arithmetic(model: Model, counts_to: float) -> set[ir.Node]:
    """The nodes that do it; `counts_to` is the largest number up to which the format holds every integer."""
    found: set[ir.Node] = set()
    seen: set[ir.Value] = set()
    for value in _cast_to_positions(model):
        if value not in seen:
            stretch = _Stretch(model, value, counts_to)
            if stretch.is_position:
                seen |= stretch.values
                found |= stretch.nodes
    return found


def _cast_to_positions(model: Model) -> Iterator[ir.Value]:
    """The float tensors that become positions, each once."""
    slots = (
        node.inputs[slot]
        for node in model.nodes
        for slot in (*index_slots(node.op_type, node.domain), *shape_slots(node.op_type, node.domain))
        if slot < len(node.inputs)
    )
    waiting = [value for value in slots if value is not None]
    seen = set(waiting)
    while waiting:
        value = waiting.pop()
        if _is_float(value):
            yield value
            continue
        node = value.producer()
        if node is None or node.domain or node.op_type not in _SUMS:
            continue
        fresh = [
            each for each in _operands(node) if each not in seen and (node.op_type in _CASTS or not _is_float(each))
        ]
        seen.update(fresh)
        waiting += fresh


class _Stretch:
    """The nodes that a float position comes from, back to where something else than sums is done."""

    def __init__(self, model: Model, end: ir.Value, counts_to: float) -> None:
        self.nodes: set[ir.Node] = set()
        self.values = {end}
        behind_a_network, far = False, False
        waiting = [end]
        while waiting:
            value = waiting.pop()
            node = value.producer()
            if node is None:
                far |= counts_to < _largest(value) < _MOST
                behind_a_network |= _is_a_table(value) or (value.is_graph_input() and value.graph is not model.graph)
                continue
            if node.domain or node.op_type not in _SUMS:
                behind_a_network = True
                continue
            self.nodes.add(node)
            far |= any(counts_to < abs(_number(node, name)) < _MOST for name in ("min", "max"))
            for each in _operands(node):
                if not _is_float(each):
                    far |= node.op_type in _CASTS
                elif each not in self.values:
                    self.values.add(each)
                    waiting.append(each)
        self.is_position = far or not behind_a_network


def _operands(node: ir.Node) -> Iterator[ir.Value]:
    """What a node computes with: no shapes, no indices, no conditions."""
    others = (*index_slots(node.op_type, node.domain), *shape_slots(node.op_type, node.domain))
    if node.op_type == "Range":
        others = ()
    for slot, value in enumerate(node.inputs):
        if value is not None and slot not in others and not (node.op_type == "Where" and slot == 0):
            yield value


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _is_a_table(value: ir.Value) -> bool:
    """Weights, of which a network reads rows."""
    return value.const_value is not None and value.const_value.size > _TABLE


def _largest(value: ir.Value) -> float:
    """Of a constant's elements; a table is none."""
    if not value.is_initializer() or value.const_value is None or _is_a_table(value):
        return 0.0
    return float(np.max(np.abs(np.asarray(value.const_value.numpy(), dtype=np.float64)), initial=0.0))


def _number(node: ir.Node, name: str) -> float:
    attribute = node.attributes.get(name)
    return attribute.as_float() if attribute is not None and attribute.type is ir.AttributeType.FLOAT else 0.0
