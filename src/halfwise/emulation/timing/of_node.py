"""A node of a model as an operation: shapes as they were seen in a run, and what else may bear on its kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from halfwise.emulation.timing.operation import Attribute, Operand, Operation

__all__ = ["Shapes", "attributes_of", "operand_of", "operation_of", "shape_of"]

Shapes = Mapping[ir.Value, tuple[int, ...]]

_FEW = 8  # values of a constant that may bear on the time
_SHAPED_BY = frozenset({"Expand", "Pad", "Resize", "Slice", "Split", "Tile", "TopK"})


def operation_of(node: ir.Node, shapes: Shapes) -> Operation:
    inputs = tuple(operand_of(node, slot, shapes) for slot in range(len(node.inputs)))
    outputs = tuple(shape_of(value, shapes) for value in node.outputs if value.name)
    opset = node.version or node.graph.opset_imports.get("", 20) if node.graph is not None else 20
    return Operation(node.op_type, inputs, outputs, attributes_of(node), node.domain, opset)


def operand_of(node: ir.Node, slot: int, shapes: Shapes) -> Operand | None:
    value = node.inputs[slot]
    if value is None:
        return None
    dtype = value.dtype
    kind = "float" if dtype is None or dtype.is_floating_point() else "bool" if dtype == ir.DataType.BOOL else "int"
    constant = value.const_value
    values: tuple[float, ...] = ()
    if constant is not None and (constant.size == 1 or (constant.size <= _FEW and node.op_type in _SHAPED_BY)):
        values = tuple(float(each) for each in np.asarray(constant.numpy(), np.float64).reshape(-1))
    return Operand(shape_of(value, shapes), kind, constant is not None, values)  # type: ignore[arg-type]


def shape_of(value: ir.Value, shapes: Shapes) -> tuple[int, ...]:
    """As it was seen in a run; else as the model states it."""
    seen = shapes.get(value)
    if seen is not None:
        return seen
    if value.const_value is not None:
        return tuple(int(size) for size in value.const_value.shape.numpy())
    if value.shape is None:
        return ()
    return tuple(size if isinstance(size, int) else 1 for size in value.shape)


def attributes_of(node: ir.Node) -> dict[str, Attribute]:
    """Those that may bear on the time."""
    found: dict[str, Attribute] = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        if attribute.type in (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING):
            found[name] = value
        elif attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS):
            found[name] = tuple(float(each) for each in value)
    return found
