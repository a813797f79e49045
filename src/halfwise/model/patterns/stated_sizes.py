"""What a graph states of the dimensions that its inputs leave open: how many channels a convolution reads, how large
the picture is that a table of positions is for, and how large it has to be for something to be left behind strides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute

__all__ = ["Stated", "stated_sizes"]

Axes = tuple[int | None, ...]  # of a tensor, those of the input that they are

# Operators that leave each value at its place.
_ALIKE = frozenset(
    "Identity Cast Dropout Neg Abs Sqrt Exp Log Relu LeakyRelu PRelu Sigmoid Tanh Erf Gelu HardSigmoid HardSwish Mish "
    "Elu Selu Softplus Clip Min Max Add Sub Mul Div Pow BatchNormalization InstanceNormalization LayerNormalization "
    "GroupNormalization QuantizeLinear DequantizeLinear".split()
)
_WITH_CONSTANT = frozenset("Add Sub Mul Div PRelu".split())
_BY_CHANNEL = frozenset("BatchNormalization InstanceNormalization".split())
_STRIDING = frozenset("Conv MaxPool AveragePool LpPool".split())
_FAR = 16  # so many times over
_TOKENS = 5  # in front of the positions of a picture, at most: of its class, or to write on


@dataclass(frozen=True)
class Stated:
    """By symbol, or by place where there is none. `edges`: further sizes that belong together, the likeliest first."""

    sizes: Mapping[str, int]
    edges: tuple[Mapping[str, int], ...] = ()


def stated_sizes(model: Model, keys: Mapping[tuple[str, int], str]) -> Stated:
    """`keys` are the open dimensions by input and axis."""
    sizes: dict[str, int] = {}
    edges: list[dict[str, int]] = []
    for value in model.graph.inputs:
        name = value.name or ""
        if value.shape is None or not any((name, axis) in keys for axis in range(len(value.shape))):
            continue
        for node, slot, axes in _readers(value):
            for axis, size in _reads(node, slot):
                at = axes[axis] if -len(axes) <= axis < len(axes) else None
                if at is not None and (name, at) in keys:
                    sizes.setdefault(keys[name, at], size)
            open_edges = [keys[name, at] for at in axes[2:] if at is not None and (name, at) in keys]
            if node.op_type == "Conv" and slot == 0 and len(open_edges) == len(axes) - 2:
                edges += [dict.fromkeys(open_edges, edge) for edge in (*_edges(model, node), *_least(model, value))]
    return Stated(sizes, tuple(each for each in edges if each))


def _readers(value: ir.Value) -> Iterator[tuple[ir.Node, int, Axes]]:
    """Of an input, and of what has each of its values at its place, or its axes in another order."""
    rank = len(value.shape) if value.shape is not None else 0
    waiting: list[tuple[ir.Value, Axes]] = [(value, tuple(range(rank)))]
    seen = {value}
    while waiting:
        current, axes = waiting.pop()
        for node, slot in current.uses():
            if node.domain:
                continue
            yield node, slot, axes
            order = attribute(node, "perm", None) if node.op_type == "Transpose" else range(len(axes))
            follows = node.op_type == "Transpose" or (node.op_type in _ALIKE and slot == 0)
            if follows and order is not None and len(order) == len(axes) and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                waiting.append((node.outputs[0], tuple(axes[at] for at in order)))


def _reads(node: ir.Node, slot: int) -> list[tuple[int, int]]:
    """The axes of what a node reads at a slot whose sizes its weights state, and these."""
    other = _sizes(node, 1 - slot) if slot < 2 else ()
    match node.op_type:
        case "Conv" if slot == 0 and len(other) > 1:
            return [(1, other[1] * attribute(node, "group", 1))]
        case "ConvTranspose" if slot == 0 and other:
            return [(1, other[0])]
        case "MatMul" if other:
            own, theirs = (-1, other[-2:][0]) if slot == 0 else (-2, other[-1])
            return [(own, theirs)]
        case "Gemm" if slot == 0 and len(other) == 2:
            return [(0 if attribute(node, "transA", 0) else 1, other[1 if attribute(node, "transB", 0) else 0])]
        case "LSTM" | "GRU" | "RNN" if slot == 0 and len(other) == 3:
            return [(2, other[2])]
        case "LayerNormalization" if slot == 0 and other:
            return [(-1, other[-1])]
        case op if op in _BY_CHANNEL and slot == 0 and other:
            return [(1, other[0])]
        case op if op in _WITH_CONSTANT:
            return [(at - len(other), size) for at, size in enumerate(other) if size > 1]
        case _:
            return []


def _sizes(node: ir.Node, slot: int) -> tuple[int, ...]:
    """Of a weight, or of what is made of weights; nothing where inputs may be of other sizes."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    dims = () if value is None or value.shape is None else tuple(value.shape)
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    return sizes if len(sizes) == len(dims) else ()


def _edges(model: Model, node: ir.Node) -> Iterator[int]:
    """How long the edges of a picture are, by the tables that may hold a row for each place behind the convolutions
    that it goes through first."""
    stride, channels, rank = 1, 0, len(_sizes(node, 1)) - 2
    current: ir.Node | None = node
    while current is not None and current.op_type == "Conv":
        strides = attribute(current, "strides", [1])
        sizes = _sizes(current, 1)
        if len(set(strides)) != 1 or not sizes:
            return
        stride, channels = stride * strides[0], sizes[0]
        readers = _readers(current.outputs[0])
        current = next((each for each, slot, _ in readers if each.op_type == "Conv" and slot == 0), None)
    for rows in _tables(model, channels):
        for tokens in range(1 + _TOKENS if rank > 1 else 1):
            edge = round((rows - tokens) ** (1 / rank)) if rows > tokens and rank > 0 else 0
            if edge > 1 and edge**rank == rows - tokens:
                yield edge * stride


def _least(model: Model, value: ir.Value) -> Iterator[int]:
    """An edge of which 4 places or more are left behind all strides, where the usual size leaves one: a picture of one
    place has no variance."""
    strides = {value: 1}
    for node in model.graph:
        own = max(attribute(node, "strides", [1])) if node.op_type in _STRIDING and not node.domain else 1
        before = [strides[each] for each in node.inputs if each is not None and each in strides]
        strides.update(dict.fromkeys(node.outputs, own * max(before)) if before else {})
    if (most := max(strides.values())) >= _FAR:
        yield 4 << (most - 1).bit_length()


def _tables(model: Model, width: int) -> list[int]:
    """The rows of weights of so many columns."""
    found = []
    for value in model.initializers():
        tensor = value.const_value
        sizes = tuple(int(size) for size in tensor.shape.numpy()) if tensor is not None else ()
        if sizes[-1:] == (width,) and len(sizes) > 1 and math.prod(sizes[:-2]) == 1:
            found.append(sizes[-2])
    return list(dict.fromkeys(found))
