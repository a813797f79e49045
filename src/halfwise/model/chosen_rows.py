"""Inputs that choose rows of a constant table, as words do: which numbers they may hold."""

from __future__ import annotations

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, behind, beyond

__all__ = ["last_row"]

_TABLE_FROM = frozenset({"Cast", "DequantizeLinear", "Reshape"})  # a table stored in another type, or as a weight
_LOOKUPS = frozenset({"Gather", "GatherBlockQuantized"})
_STEPS = 8


def last_row(value: ir.Value) -> int | None:
    """The largest number that chooses a row in every table that is read with it; None where none is."""
    passed = (FROM_FIRST | {"Cast"}) - _LOOKUPS
    rows = [_rows(node) for node, slot in beyond(value, passed, _STEPS) if node.op_type in _LOOKUPS and slot == 1]
    return min((count - 1 for count in rows if count), default=None)


def _rows(node: ir.Node) -> int | None:
    stored, table = behind(node.inputs[0], _TABLE_FROM), node.inputs[0]
    if stored is None or not stored.is_initializer() or table is None or table.shape is None or not table.shape.rank():
        return None
    axis = node.attributes.get_int("axis", 0)
    if not -table.shape.rank() <= axis < table.shape.rank():  # a damaged file says so
        return None
    size = table.shape[axis]
    return size if isinstance(size, int) else None
