"""Operators on images that have a linear form: Col2Im as a transposed convolution, antialiased Resize as products."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from halfwise.model.contrib.writer import LARGEST, StepWriter, dims_of, is_fp32, shaped, stored, whole

__all__ = ["IMAGES"]

_SCALES, _SIZES = 2, 3  # the slots


def _col2im(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """Each column is laid where its block lies: the kernel has one output for each place in a block."""
    node, dims = write.node, dims_of(write.node, 0)
    image, block = (_whole_numbers(stored(node, slot)) for slot in (1, 2))
    if dims is None or dims[1] is None or not image or len(image) != len(block) or not is_fp32(node):
        return None
    places = math.prod(block)
    count = len(image)
    strides, dilations = (_sizes(node, name, [1] * count) for name in ("strides", "dilations"))
    pads = _sizes(node, "pads", [0] * 2 * count)
    spread = [(size - 1) * apart + 1 for size, apart in zip(block, dilations, strict=True)]
    room = [size + pads[at] + pads[at + count] - spread[at] for at, size in enumerate(image)]
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


def _resize(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """Along each of the last two axes a product with what the operator makes of a unit matrix, for others to compute
    once."""
    node, dims = write.node, dims_of(write.node, 0)
    if dims is None or not whole(node, "antialias") or not is_fp32(node) or _depends_on_more(node):
        return None
    result, rank = inputs[0], len(dims)
    for axis, (slot, factor) in _asked(node, dims).items():
        size = dims[axis]
        if size is None or axis < rank - 2:
            return None
        made = int(factor) if slot == _SIZES else math.floor(size * factor)
        if size * max(size, made) > LARGEST:
            return None
        matrix = _resized(write, size, axis - rank, slot, factor)
        result = write.op("MatMul", *((result, matrix) if axis == rank - 1 else (matrix, result)))
    return {0: result}


def _asked(node: ir.Node, dims: Sequence[int | None]) -> dict[int, tuple[int, float]]:
    """For each axis that changes the slot and the number that say how; for all axes what says too little."""
    rank = len(dims)
    given = {slot: held for slot in (_SCALES, _SIZES) if (held := stored(node, slot)) is not None and held.size}
    if len(given) != 1:
        return dict.fromkeys(range(rank), (_SIZES, 0))
    ((slot, numbers),) = given.items()
    axes = [axis % rank for axis in _sizes(node, "axes", list(range(rank)))]
    same = [1.0 if slot == _SCALES else dims[axis] for axis in axes]
    return {
        axis: (slot, each)
        for axis, each, unchanged in zip(axes, numbers.tolist(), same, strict=True)
        if each != unchanged
    }


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
