"""Tells the inputs that hold a shape: TensorRT must know the range of their values, not of their own shape."""

from __future__ import annotations

import onnx_ir as ir

from halfwise.model.operator_slots import SHAPE_READERS, States, states

__all__ = ["holds_shape"]


def holds_shape(value: ir.Value) -> bool:
    """Whether the value, an integer one, decides the shape of something over nothing but integers."""
    waiting, seen = [value], {value}
    while waiting:
        current = waiting.pop()
        if current.dtype is None or not current.dtype.is_integer():
            continue
        for node, slot in current.uses():
            if states(node.op_type, node.domain, slot) is States.SHAPE:
                return True
            if node.op_type in SHAPE_READERS and not node.domain:  # its own shape matters, not its values
                continue
            fresh = [output for output in node.outputs if output not in seen]
            seen.update(fresh)
            waiting += fresh
    return False
