"""Writes the steps of one kernel as FP32 nodes, with a rounding wherever the kernel stores a narrow value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from halfwise.core.formats import Format, round_to
from halfwise.precision.rewrite import Names

__all__ = ["Steps", "attribute", "cast"]

_FLOAT = onnx.TensorProto.FLOAT


@dataclass
class Steps:
    """The nodes written so far. `node` is the node as the model has it, `fmt` the format that its kernel stores.

    `results`: by slot, the names of what the kernel gives, where it gives more than one result. `stores`: whether it
    stores what `store` marks.
    """

    node: ir.Node
    fmt: Format
    names: Names
    opset: int
    base: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    results: dict[int, str] = field(default_factory=dict)
    stores: bool = True

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """One operator in FP32; the name of its result."""
        result = self.names.value(f"{self.base}__{op_type.lower()}")
        self.nodes.append(helper.make_node(op_type, list(inputs), [result], **attributes))
        return result

    def round(self, value: str) -> str:
        """A value as the kernel stores it."""
        narrow, result = self.names.value(f"{self.base}__narrow"), self.names.value(f"{self.base}__rounded")
        self.nodes.extend((cast(value, narrow, self.fmt.onnx_type), cast(narrow, result, _FLOAT)))
        return result

    def store(self, value: str) -> str:
        """A value that memory holds between two kernels, where these are not one."""
        return self.round(value) if self.stores and self.fmt is not Format.FP32 else value

    def rop(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """One operator whose result is rounded."""
        return self.round(self.op(op_type, *inputs, **attributes))

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        result = self.names.value(f"{self.base}__constant")
        tensor = numpy_helper.from_array(np.asarray(array, dtype=dtype))
        self.nodes.append(helper.make_node("Constant", [], [result], value=tensor))
        return result

    def rounded_constant(self, array: Any) -> str:
        return self.constant(self.rounded(array))

    def rounded(self, array: Any) -> NDArray[np.float32]:
        return round_to(np.asarray(array, dtype=np.float32), self.fmt)

    def keep(self, proto: onnx.NodeProto, op_type: str | None = None) -> str:
        """The node itself, or another operator in its place, with a fresh result."""
        copy = onnx.NodeProto()
        copy.CopyFrom(proto)
        copy.op_type = op_type or proto.op_type
        result = self.names.value(f"{self.base}__{copy.op_type.lower()}")
        del copy.output[:]
        copy.output.append(result)
        self.nodes.append(copy)
        return result

    def keep_unbiased(self, proto: onnx.NodeProto) -> str:
        """A product without its third input, which opsets before 11 do not leave out."""
        del proto.input[2:]
        if self.opset < 11 and proto.op_type == "Gemm":
            proto.input.append(self.constant(0.0))
        return self.keep(proto)

    def rank(self, slot: int) -> int | None:
        value = self.node.inputs[slot] if slot < len(self.node.inputs) else None
        return None if value is None or value.shape is None else len(value.shape)

    def dims(self, slot: int) -> tuple[int, ...] | None:
        """The shape of an input where every dimension of it is known."""
        value = self.node.inputs[slot] if slot < len(self.node.inputs) else None
        return _static(value)

    def size(self, slot: int, axis: int) -> int | None:
        """One dimension of an input, where it is known."""
        value = self.node.inputs[slot] if slot < len(self.node.inputs) else None
        size = None if value is None or value.shape is None or axis >= len(value.shape) else value.shape[axis]
        return size if isinstance(size, int) else None

    def result_dims(self) -> tuple[int, ...] | None:
        return _static(self.node.outputs[0])

    def known(self, slot: int) -> NDArray[Any] | None:
        """The value of an input that is a constant."""
        value = self.node.inputs[slot] if slot < len(self.node.inputs) else None
        return None if value is None or value.const_value is None else value.const_value.numpy()


def _static(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(int(size) for size in value.shape)  # type: ignore[arg-type]


def cast(source: str, target: str, element_type: int) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type="Cast", input=[source], output=[target])
    node.attribute.add(name="to", type=onnx.AttributeProto.INT, i=element_type)
    return node


def attribute(proto: onnx.NodeProto, name: str, default: Any) -> Any:
    for each in proto.attribute:
        if each.name == name:
            return helper.get_attribute_value(each)
    return default
