"""What of a node besides its operator may choose its kernel: its form in a word or two, its terms, all its sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from halfwise.emulation.timing.of_node import operation_of

__all__ = ["CHOSEN_BY_SIZE", "ShapeClass", "shape_class"]

CHOSEN_BY_SIZE = frozenset({"AveragePool", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "MatMul"})


@dataclass(frozen=True)
class ShapeClass:
    """`length` is None where the model does not state it, 0 where nothing is added up.

    `sizes`: shapes and attributes of what has a kernel chosen by them; empty where the model does not state all.
    """

    variant: str = ""
    length: int | None = 0
    sizes: str = ""


def shape_class(node: ir.Node) -> ShapeClass:
    find = _CLASSES.get(node.op_type) if not node.domain else None
    found = find(node) if find is not None else ShapeClass()
    return replace(found, sizes=_sizes(node)) if node.op_type in CHOSEN_BY_SIZE and not node.domain else found


def _sizes(node: ir.Node) -> str:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    known = all(v.shape is not None and all(isinstance(size, int) for size in v.shape) for v in values)
    return operation_of(node, {}).key if known else ""


def _dims(node: ir.Node, slot: int) -> tuple[int | None, ...] | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def _product(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def _words(*words: str) -> str:
    return ", ".join(word for word in words if word)


def _has(node: ir.Node, slot: int) -> bool:
    return slot < len(node.inputs) and node.inputs[slot] is not None


def _aligned(*sizes: int | None) -> str:
    """Tensor cores read eight FP16 numbers at a time."""
    return "odd sizes" if any(size is not None and size % 8 for size in sizes) else ""


def _matmul(node: ir.Node) -> ShapeClass:
    x, w = _dims(node, 0), _dims(node, 1)
    length = x[-1] if x else w[-2] if w and len(w) > 1 else None
    return ShapeClass(_aligned(length, w[-1] if w else None), length)


def _gemm(node: ir.Node) -> ShapeClass:
    x, w = _dims(node, 0), _dims(node, 1)
    turned = _attribute(node, "transA", 0), _attribute(node, "transB", 0)
    length = x[0 if turned[0] else 1] if x else w[1 if turned[1] else 0] if w else None
    columns = w[0 if turned[1] else 1] if w else None
    factors = _attribute(node, "alpha", 1.0), _attribute(node, "beta", 1.0)
    scaled = "" if factors == (1.0, 1.0) else "factors"
    return ShapeClass(_words("bias" if _has(node, 2) else "", scaled, _aligned(length, columns)), length)


def _convolution(node: ir.Node) -> ShapeClass:
    weight = _dims(node, 1)
    group = int(_attribute(node, "group", 1))
    bias = "bias" if _has(node, 2) else ""
    if weight is None:
        return ShapeClass(bias, None)
    turned = node.op_type == "ConvTranspose"
    ins = None if weight[0] is None else weight[0] // group if turned else weight[1]
    channels = weight[0] if turned else ins
    kind = "" if group == 1 else "depthwise" if ins == 1 else "groups"
    return ShapeClass(_words(kind, bias), _product((ins, *weight[2:])) if channels is not None else None)


def _reduction(node: ir.Node) -> ShapeClass:
    dims, axes = _dims(node, 0), _attribute(node, "axes", None)
    if axes is None and _has(node, 1):
        held = node.inputs[1]
        axes = None if held is None or held.const_value is None else held.const_value.numpy().tolist()
    if axes is None and not _has(node, 1) and not _attribute(node, "noop_with_empty_axes", 0):
        axes = ()  # all of them
    if dims is None or axes is None:
        return ShapeClass("", None)
    reduced = {axis % len(dims) for axis in axes} or set(range(len(dims)))
    length = _product([dims[axis] for axis in reduced])
    places = {_place([unknown if size is None else size for size in dims], reduced) for unknown in (1, 2)}
    return ShapeClass(f"{places.pop()} axes" if len(places) == 1 else "", length)


def _place(dims: Sequence[int], reduced: Collection[int]) -> str:
    """Of the axes that are longer than 1, where those that are reduced stand."""
    long = [axis for axis, size in enumerate(dims) if size != 1]
    inner = [axis for axis in long if axis in reduced]
    if not inner or long[-len(inner) :] == inner:
        return "last"
    return "first" if long[: len(inner)] == inner else "middle"


def _along_axis(default: int) -> Callable[[ir.Node], ShapeClass]:
    def find(node: ir.Node) -> ShapeClass:
        dims = _dims(node, 0)
        if dims is None:
            return ShapeClass("", None)
        axis = int(_attribute(node, "axis", default)) % len(dims)
        return ShapeClass("last axis" if axis == len(dims) - 1 else "middle axis", dims[axis])

    return find


def _norm(node: ir.Node) -> ShapeClass:
    dims = _dims(node, 0)
    if dims is None:
        return ShapeClass("", None)
    axis = int(_attribute(node, "axis", -1)) % len(dims)
    return ShapeClass("", _product(dims[axis:]))


def _instance_norm(node: ir.Node) -> ShapeClass:
    dims = _dims(node, 0)
    if dims is None:
        return ShapeClass("", None)
    return ShapeClass("one sample" if dims[0] == 1 else "several samples", _product(dims[2:]))


def _pool(node: ir.Node) -> ShapeClass:
    kernel = _attribute(node, "kernel_shape", None)
    if kernel is None:
        dims = _dims(node, 0)
        return ShapeClass("", None if dims is None else _product(dims[2:]))
    return ShapeClass("padded" if any(_attribute(node, "pads", ())) else "", math.prod(kernel))


def _recurrent(node: ir.Node) -> ShapeClass:
    form = "reset before" if node.op_type == "GRU" and not _attribute(node, "linear_before_reset", 0) else ""
    return ShapeClass(form, int(_attribute(node, "hidden_size", 0)) or None)


def _resize(node: ir.Node) -> ShapeClass:
    return ShapeClass(
        _words(_attribute(node, "mode", "nearest"), _attribute(node, "coordinate_transformation_mode", ""))
    )


_CLASSES: Mapping[str, Callable[[ir.Node], ShapeClass]] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), _convolution),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), _pool),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _norm),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _along_axis(-1)),
    **{f"Reduce{what}": _reduction for what in ("L1", "L2", "LogSum", "LogSumExp", "Mean", "Sum", "SumSquare")},
    "CumSum": lambda node: ShapeClass("", (_dims(node, 0) or (None,))[-1]),
    "Gelu": lambda node: ShapeClass(_attribute(node, "approximate", "none")),
    "Gemm": _gemm,
    "InstanceNormalization": _instance_norm,
    "MatMul": _matmul,
    "Resize": _resize,
    "Sum": lambda node: ShapeClass("", len(node.inputs)),
}
