"""Writes what an operator computes in ONNX's own operators; what a kernel that is not fused would store is marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = [
    "LARGEST",
    "PlainSteps",
    "StepWriter",
    "cut",
    "dims_of",
    "heads_apart",
    "heads_together",
    "is_fp32",
    "joined",
    "mean",
    "number",
    "shaped",
    "single",
    "size",
    "spread",
    "stored",
    "whole",
]

LARGEST = 1 << 22  # elements of a matrix that takes an operator's place


class StepWriter(Protocol):
    """What nodes are written with. `node` is the operator as the model has it; `store` marks what memory would hold."""

    @property
    def node(self) -> ir.Node: ...

    @property
    def opset(self) -> int: ...

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str: ...

    def constant(self, array: Any, dtype: Any = np.float32) -> str: ...

    def store(self, value: str) -> str: ...


@dataclass
class PlainSteps:
    """Nodes as they are, nothing rounded; `fresh` makes names that are not taken, `stored` gathers what is marked."""

    node: ir.Node
    opset: int
    fresh: Callable[[str], str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        result = self.fresh(op_type.lower())
        self.nodes.append(helper.make_node(op_type, list(inputs), [result], **attributes))
        return result

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        result = self.fresh("constant")
        tensor = numpy_helper.from_array(np.asarray(array, dtype=dtype))
        self.nodes.append(helper.make_node("Constant", [], [result], value=tensor))
        return result

    def store(self, value: str) -> str:
        self.stored.append(value)
        return value


def number(node: ir.Node, name: str, default: float) -> float:
    return float(node.attributes[name].value) if name in node.attributes else default


def whole(node: ir.Node, name: str, default: int = 0) -> int:
    return int(node.attributes[name].value) if name in node.attributes else default


def dims_of(node: ir.Node, slot: int) -> tuple[int | None, ...] | None:
    """The dimensions of an input, None for each that is open; None where even their count is not known."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None for dim in value.shape)


def is_fp32(node: ir.Node) -> bool:
    """Whether its first input is."""
    value = node.inputs[0] if node.inputs else None
    return value is not None and value.dtype == ir.DataType.FLOAT


def stored(node: ir.Node, slot: int) -> NDArray[Any] | None:
    """What an input holds that is stored with the model."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return None if value is None or value.const_value is None else np.asarray(value.const_value.numpy())


def single(node: ir.Node, slot: int) -> float | None:
    """The same, where it is one number."""
    held = stored(node, slot)
    return held.item() if held is not None and held.size == 1 else None


def axes(write: StepWriter, axes: Sequence[int]) -> str:
    return write.constant(axes, np.int64)


def spread(write: StepWriter, value: str, places: Sequence[int]) -> str:
    """With dimensions of 1 at these places."""
    if write.opset < 13:
        return write.op("Unsqueeze", value, axes=list(places))
    return write.op("Unsqueeze", value, axes(write, places))


def mean(write: StepWriter, value: str, places: Sequence[int]) -> str:
    if write.opset < 18:
        return write.op("ReduceMean", value, axes=list(places), keepdims=1)
    return write.op("ReduceMean", value, axes(write, places), keepdims=1)


def cut(write: StepWriter, value: str, axis: int, start: int | str, end: int | str, step: int = 1) -> str:
    """A stretch of one axis; its ends are numbers, or names of tensors of one element."""
    first, last = (at if isinstance(at, str) else write.constant([at], np.int64) for at in (start, end))
    if step == 1:
        return write.op("Slice", value, first, last, axes(write, [axis]))
    return write.op("Slice", value, first, last, axes(write, [axis]), axes(write, [step]))


def shaped(write: StepWriter, value: str, *dims: int) -> str:
    return write.op("Reshape", value, write.constant(list(dims), np.int64))


def size(write: StepWriter, value: str, axis: int) -> str:
    """One dimension, as a tensor of one element."""
    return write.op("Gather", write.op("Shape", value), write.constant([axis], np.int64), axis=0)


def joined(write: StepWriter, *values: str, axis: int) -> str:
    return write.op("Concat", *values, axis=axis)


def heads_apart(write: StepWriter, value: str, heads: int, head: int = -1) -> str:
    """(batch, sequence, heads * head) as (batch, heads, sequence, head)."""
    split = write.op("Reshape", value, write.constant([0, 0, heads, head], np.int64))
    return write.op("Transpose", split, perm=[0, 2, 1, 3])


def heads_together(write: StepWriter, value: str) -> str:
    """The way back."""
    turned = write.op("Transpose", value, perm=[0, 2, 1, 3])
    return write.op("Reshape", turned, write.constant([0, 0, -1], np.int64))
