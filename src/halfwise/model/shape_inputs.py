"""Tells the inputs that hold a shape: TensorRT must know the range of their values, not of their own shape."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["holds_shape"]

# The slots of operators that take a shape, an index or an amount which decides the shape of what comes out.
_SLOTS = {
    "Reshape": (1,), "Expand": (1,), "ConstantOfShape": (0,), "Tile": (1,), "Resize": (3,), "Range": (0, 1, 2),
    "Slice": (1, 2, 3), "Pad": (1,), "TopK": (1,), "OneHot": (1,), "Upsample": (1,),
}  # fmt: skip


def holds_shape(value: ir.Value) -> bool:
    """Whether the value, an integer one, reaches such a slot over nothing but integers."""
    waiting, seen = [value], {value}
    while waiting:
        current = waiting.pop()
        if current.dtype is None or not current.dtype.is_integer():
            continue
        for node, slot in current.uses():
            if slot in _SLOTS.get(node.op_type, ()):
                return True
            fresh = [output for output in node.outputs if output not in seen]
            seen.update(fresh)
            waiting += fresh
    return False
