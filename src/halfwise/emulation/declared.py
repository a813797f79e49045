"""How a tensor that a node reads or makes is declared in a model of that node alone."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from halfwise.core.formats import Format

__all__ = ["declared"]


def declared(name: str, value: ir.Value, fmt: Format | None, shaped: bool) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    if type(value.type) is ir.TensorType and not shaped:
        info.type.tensor_type.elem_type = value.type.dtype.value
    elif value.type is not None:
        info.type.CopyFrom(ir.serde.serialize_value(value).type)
    if value.const_value is not None:  # whatever the file says of it elsewhere
        info.type.tensor_type.elem_type = value.const_value.dtype.value
    if fmt is not None:
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    if info.type.HasField("tensor_type") and not shaped:
        info.type.tensor_type.ClearField("shape")
    return info
