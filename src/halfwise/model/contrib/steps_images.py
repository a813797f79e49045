"""Operators on images in other forms: Col2Im as a transposed convolution, antialiased Resize as products, Resize to
TensorFlow's nearest place with its middle elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from halfwise.model.contrib.writer import LARGEST, StepWriter, dims_of, is_fp32, shaped, stored, whole

__all__ = ["IMAGES", "is_tensorflows_nearest"]

_SCALES, _SIZES = 2, 3  # the slots


def _col2im(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """Each column is laid where its block lies: the kernel has one output for each place in a block."""
    node, dims = write.node, dims_of(write.node, 0)
    image, block = (_whole_numbers(stored(node, slot)) for slot in (1, 2))
    count, places = len(image), math.prod(block)
    strides, dilations = (_sizes(node, name, [1] * count) for name in ("strides", "dilations"))
    pads = _sizes(node, "pads", [0] * 2 * count)
    if dims is None or len(dims) != 3 or dims[1] is None or not is_fp32(node) or not count or len(pads) != 2 * count:
        return None
    if not count == len(block) == len(strides) == len(dilations) or min(*image, *block, *strides, *dilations) < 1:
        return None
    spread = [(size - 1) * apart + 1 for size, apart in zip(block, dilations, strict=True)]
    room = [size + pads[at] + pads[at + count] - spread[at] for at, size in enumerate(image)]
    if min(room) < 0 or places * math.prod(spread) > LARGEST:
        return None
    blocks = [left // stride + 1 for left, stride in zip(room, strides, strict=True)]
    kernel = np.zeros((places, 1, *spread))  # with holes: dilation beside strides has no kernel everywhere
    spots = np.indices(block).reshape(count, places) * np.array(dilations)[:, None]
    kernel[(np.arange(places), 0, *spots)] = 1
    laid = write.op(
        "ConvTranspose",
        shaped(write, inputs[0], -1, places, *blocks),
        write.constant(kernel),
        output_padding=[left % stride for left, stride in zip(room, strides, strict=True)],
        pads=pads,
        strides=strides,
    )
    return {0: shaped(write, laid, -1, dims[1] // places, *image)}


def is_tensorflows_nearest(node: ir.Node) -> bool:
    """Whether a Resize reads the place that holds the middle of each output: floor((i + 1/2) / scale)."""
    text = {name: each.value for name, each in node.attributes.items()}
    modes = text.get("mode", "nearest"), text.get("coordinate_transformation_mode"), text.get("nearest_mode")
    return modes == ("nearest", "tf_half_pixel_for_nn", "floor")


def _resize(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """TensorFlow's nearest place in the form that others have: floor(x) = floor((x - 1/2) + 1/2). Antialiased, see
    below."""
    if not is_tensorflows_nearest(write.node):
        return _antialiased(write, inputs)
    kept = {name: each.value for name, each in write.node.attributes.items()}
    changed = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    return {0: write.op("Resize", *inputs, **{**kept, **changed})}


def _antialiased(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """Along each of the last two axes a product with what the operator makes of a unit matrix, for others to compute
    once."""
    node, dims = write.node, dims_of(write.node, 0)
    if not dims or not whole(node, "antialias") or not is_fp32(node) or _depends_on_more(node):
        return None
    result, rank = inputs[0], len(dims)
    for axis, (slot, factor) in _asked(node, dims).items():
        size = dims[axis]
        if size is None or axis < rank - 2:
            return None
        made = int(factor) if slot == _SIZES else math.floor(size * factor)
        if made < 1 or size * max(size, made) > LARGEST:
            return None
        matrix = _resized(write, size, axis - rank, slot, factor)
        result = write.op("MatMul", *((result, matrix) if axis == rank - 1 else (matrix, result)))
    return {0: result}


def _asked(node: ir.Node, dims: Sequence[int | None]) -> dict[int, tuple[int, float]]:
    """For each axis that changes the slot and the number that say how; for all axes what says too little."""
    axes = [axis % len(dims) for axis in _sizes(node, "axes", list(range(len(dims))))]
    for slot in (_SCALES, _SIZES):
        given = stored(node, slot)
        if given is not None and given.size:
            wanted = dict(zip(axes, given.ravel().tolist(), strict=False))
            same = {axis: 1.0 if slot == _SCALES else dims[axis] for axis in axes}
            return {axis: (slot, number) for axis, number in wanted.items() if number != same[axis]}
    computed = len(node.inputs) > _SIZES and node.inputs[_SIZES] is not None
    ends = _ends(node) if computed else None
    return {axis: (_SIZES, end) for axis, end in (dict.fromkeys(axes, 0) if ends is None else ends).items()}


def _ends(node: ir.Node) -> dict[int, int] | None:
    """The sizes of the axes that change, by the shapes that were inferred; None where one of them is open."""
    old, new = (None if value is None else value.shape for value in (node.inputs[0], node.outputs[0]))
    if old is None or new is None or len(old) != len(new):
        return None
    changed = {axis: end for axis, (begun, end) in enumerate(zip(old, new, strict=True)) if not _is_same(begun, end)}
    ends = {axis: end for axis, end in changed.items() if isinstance(end, int)}
    return ends if len(ends) == len(changed) else None


def _is_same(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    return one == other and (isinstance(one, int) or one.value is not None)


def _resized(write: StepWriter, size: int, axis: int, slot: int, factor: float) -> str:
    """What a resize along this axis makes of a unit matrix."""
    wanted = np.array([size, size] if slot == _SIZES else [1.0, 1.0])
    wanted[axis] = factor
    unit, wish = write.constant(np.eye(size)), write.constant(wanted, np.int64 if slot == _SIZES else np.float32)
    kept = {name: each.value for name, each in write.node.attributes.items() if name != "axes"}
    return write.op("Resize", unit, *[""] * (slot - 1), wish, **kept)


def _depends_on_more(node: ir.Node) -> bool:
    """On a region that is cropped, or on the ratio of sizes."""
    text = {name: each.value for name, each in node.attributes.items()}
    mode, policy = text.get("coordinate_transformation_mode"), text.get("keep_aspect_ratio_policy", "stretch")
    return mode == "tf_crop_and_resize" or policy != "stretch"


def _sizes(node: ir.Node, name: str, default: list[int]) -> list[int]:
    return _whole_numbers(node.attributes[name].value) if name in node.attributes else default


def _whole_numbers(given: Iterable[Any] | None) -> list[int]:
    return [int(each) for each in given] if given is not None else []


IMAGES = {"Col2Im": _col2im, "Resize": _resize}
