"""What a node takes of a large table: without a copy of it, or once for all inputs that go beside one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.emulation.compiled_node import Compiled
from halfwise.emulation.large_tables import is_turned, places_in, turns
from halfwise.emulation.row_products import results_of_rows, rows_of, shape_of
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment

__all__ = ["made_for_all", "of_table", "turned_table"]

Array = NDArray[Any]


def made_for_all(node: ir.Node, compiled: Compiled, store: Store, feeds: Mapping[str, Array]) -> bool:
    """Whether the product with a weight was made for all that go beside a store: it reads the weight once."""
    if len(store.beside) < 2 or node.op_type != "MatMul" or node.domain:
        return False
    (name, value, fmt), *others = compiled.reads
    if len(others) != 1 or not others[0][1].is_initializer() or any(value not in each for each in store.beside):
        return False
    table, taken = feeds[others[0][0]], [each.read(value, fmt) for each in store.beside]
    shape = shape_of(table)
    rows = rows_of(taken, shape[0]) if len(shape) == 2 else None
    if rows is None:
        return False

    def run(each: Array, part: Array) -> Array:
        made: Array = compiled.session.run({name: each, others[0][0]: part}, compiled.names)[compiled.names[0]]
        return made

    for each, of, made in zip(store.beside, taken, results_of_rows(rows, shape[1], [table], run), strict=True):
        each.ahead[node] = made.reshape(*of.shape[:-1], shape[1])
    return True


def of_table(node: ir.Node, compiled: Compiled, assignment: Assignment, store: Store) -> Array | None:
    """What is picked of a large weight, or its transpose, which is no copy; None where the runtime has to make it."""
    (_, table, fmt), *others = compiled.reads
    if table is not node.inputs[0] or fmt is not assignment.stored(node.outputs[0]):
        return None
    if turns(node):
        turned: Array = store.read(table, fmt).T
        return turned
    indices = store.read(others[0][1], None) if others else None
    assert table.const_value is not None
    known = indices is not None and places_in(indices, table.const_value.shape.numpy()[0])
    return store.picked(table, fmt, indices) if known and indices is not None else None


def turned_table(node: ir.Node, compiled: Compiled, store: Store, changed: Mapping[ir.Value, Array]) -> Array | None:
    """The table of a product, if it lies the other way."""
    if node.op_type != "MatMul" or node.domain:
        return None
    value = compiled.reads[-1][1]
    if value is not node.inputs[1] or value not in store:
        return None
    array = changed[value] if value in changed else store.read(value, None)
    return array if is_turned(array) else None
