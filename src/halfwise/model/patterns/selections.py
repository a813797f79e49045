"""Decisions made by comparing floats, and ids that pass through floats."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.operator_slots import index_slots
from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.view import View, attribute, is_float

__all__ = ["find_id_casts", "find_selections"]

_TABLES = movers(Move.LOOKUP | Move.SCATTER) | {"OneHot"}
_ON_THE_WAY = FROM_FIRST | movers(Move.CAST)
_WIDE = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64)
_STEPS = 5


def find_selections(view: View) -> Iterator[Pattern]:
    """TopK, ArgMax, ArgMin, NonMaxSuppression of computed floats. Details: `input`, `op`."""
    for node in view.of("TopK", "ArgMax", "ArgMin", "NonMaxSuppression"):
        source = node.inputs[1 if node.op_type == "NonMaxSuppression" else 0]
        if source is not None and is_float(source) and view.weight(source) is None:
            yield view.pattern("selection", node, (), {"input": source.name, "op": node.op_type})


def find_id_casts(view: View) -> Iterator[Pattern]:
    """Floats cast to integers that index a table, and integers from outside cast to floats that are calculated with.

    Details: `direction` ("to-index" or "from-id"), `input`, `table` (how many ids there are; None where not known).
    """
    for node in view.of("Cast"):
        source, result = node.inputs[0], node.outputs[0]
        if source is None or source.dtype is None or result.dtype is None or view.weight(source) is not None:
            continue
        if source.dtype.is_floating_point() and result.dtype in _WIDE:
            table = _indexed(view, result, _STEPS)
            if table is not None:
                details = {"direction": "to-index", "input": source.name, "table": table or None}
                yield view.pattern("id-cast", node, (), details)
        elif source.dtype in _WIDE and result.dtype.is_floating_point() and _from_outside(source):
            details = {"direction": "from-id", "input": source.name, "table": None}
            yield view.pattern("id-cast", node, (), details)


def _indexed(view: View, value: ir.Value, steps: int) -> int | None:
    """How many entries the table has that a value indexes: 0 where that is not known; None where it indexes none."""
    for node, slot in view.uses(value, _ON_THE_WAY, steps):
        if node.op_type in _TABLES and slot in index_slots(node.op_type, node.domain):
            return _entries(view, node)
    return None


def _entries(view: View, node: ir.Node) -> int:
    if node.op_type == "OneHot":
        return view.integer(node.inputs[1]) or 0
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    axis = attribute(node, "axis", 0)  # GatherND and the scatters have none: their first index counts the first axis
    if shape is None or not -len(shape) <= axis < len(shape):
        return 0
    size = shape[axis]
    return size if isinstance(size, int) else 0


def _from_outside(value: ir.Value) -> bool:
    """Whether an integer is an input of the model, perhaps reshaped: shape arithmetic is none."""
    source = behind(value, _ON_THE_WAY, _STEPS)
    return source is not None and source.is_graph_input()
