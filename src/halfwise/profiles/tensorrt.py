"""TensorRT's kernels as the names that its compiler gives them say; nothing of it was seen to run on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from halfwise.profiles.profile import Kernel
from halfwise.profiles.steps import Steps, attribute

__all__ = ["TENSORRT_KERNELS"]


def _normal_then_affine(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Cast Mean Sub Mul Mean Add Sqrt Div Mul Cast Mul Add`: stored before the scale, and again before the bias."""
    scale = proto.input[1]
    bias = proto.input[2] if len(proto.input) > 2 else ""
    ones = steps.op("Add", steps.op("Mul", scale, steps.constant(0.0)), steps.constant(1.0))
    del proto.input[1:]
    proto.input.append(ones)
    if len(proto.output) > 1:
        return None
    result = steps.op("Mul", steps.round(steps.keep(proto)), scale)
    return steps.op("Add", steps.round(result), bias) if bias else result


def _gelu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Div Cast Erf Cast Add Mul Mul`: the error function is computed wide, all else stored."""
    if attribute(proto, "approximate", b"none") != b"none":
        return None
    x = proto.input[0]
    error = steps.rop("Erf", steps.rop("Div", x, steps.rounded_constant(np.sqrt(2.0))))
    product = steps.rop("Mul", x, steps.rop("Add", error, steps.constant(1.0)))
    return steps.op("Mul", product, steps.constant(0.5))


def _sum_of_squares(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Mul Sum`: the squares are stored."""
    squares = steps.rop("Mul", proto.input[0], proto.input[0])
    proto.input[0] = squares
    if steps.opset < 13:
        return steps.keep(proto, "ReduceSum")
    axes = attribute(proto, "axes", None)
    if axes is not None:
        kept = [each for each in proto.attribute if each.name != "axes"]
        del proto.attribute[:]
        proto.attribute.extend(kept)
        proto.input.append(steps.constant(axes, np.int64))
    if not any(each.name == "keepdims" for each in proto.attribute):
        proto.attribute.append(helper.make_attribute("keepdims", 1))
    return steps.keep(proto, "ReduceSum")


TENSORRT_KERNELS: Mapping[str, Kernel] = {
    "Gelu": _gelu,
    "LayerNormalization": _normal_then_affine,
    "RMSNormalization": _normal_then_affine,
    "ReduceSumSquare": _sum_of_squares,
}
