"""TensorRT's kernels as the names that its compiler gives them say; nothing of it was seen to run on a GPU.

A step that stands between two casts in a name works in FP32; every other one in the type of the tensors, so that its
result counts as stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.steps import Steps, attribute

__all__ = ["TENSORRT_KERNELS", "affine_after_norm", "bias_after_product", "norm_in_narrow_steps"]


def _normal_then_affine(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Cast Mean Sub Mul Mean Add Sqrt Div Mul Cast Mul Add`: stored before the scale, and again before the bias."""
    if len(proto.output) > 1:
        return None
    scale = proto.input[1]
    bias = proto.input[2] if len(proto.input) > 2 else ""
    ones = steps.op("Add", steps.op("Mul", scale, steps.constant(0.0)), steps.constant(1.0))
    del proto.input[1:]
    proto.input.append(ones)
    return _affine(steps.keep(proto), scale, bias, steps)


def _affine(normal: str, scale: str, bias: str, steps: Steps) -> str:
    result = steps.op("Mul", steps.round(normal), scale)
    return steps.op("Add", steps.round(result), bias) if bias else result


def norm_in_narrow_steps(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Mean Sub Mul Mean Add Sqrt Div Mul Mul Add` without a cast: the squares are stored, and overflow."""
    rank = steps.rank(0)
    if len(proto.output) > 1 or rank is None:
        return None
    axes = list(range(int(attribute(proto, "axis", -1)) % rank, rank))
    x, scale = proto.input[0], proto.input[1]
    bias = proto.input[2] if len(proto.input) > 2 else ""
    epsilon = steps.rounded_constant(attribute(proto, "epsilon", 1e-5))
    if proto.op_type == "LayerNormalization":
        x = steps.rop("Sub", x, steps.round(_reduced("ReduceMean", x, axes, steps)))
    variance = steps.round(_reduced("ReduceMean", steps.rop("Mul", x, x), axes, steps))
    deviation = steps.rop("Sqrt", steps.rop("Add", variance, epsilon))
    return _affine(steps.op("Mul", x, steps.rop("Div", steps.constant(1.0), deviation)), scale, bias, steps)


def affine_after_norm(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A GroupNormalization as `Inor`, and a kernel with `Mul Add` behind it: stored before its scale and its bias."""
    rank, channels = steps.rank(0), steps.dims(1)
    if rank is None or channels is None or steps.opset < 21:
        return None
    scale, bias = proto.input[1], proto.input[2]
    proto.input[1], proto.input[2] = steps.constant(np.ones(channels)), steps.constant(np.zeros(channels))
    normal = steps.keep(proto)
    shape = steps.constant([1, -1, *[1] * (rank - 2)], np.int64)
    return _affine(normal, steps.op("Reshape", scale, shape), steps.op("Reshape", bias, shape), steps)


def _reduced(op: str, x: str, axes: Sequence[int], steps: Steps) -> str:
    """A reduction that keeps its dimensions; axes became an input with opset 13 for sums, with 18 for all others."""
    if steps.opset < (13 if op == "ReduceSum" else 18):
        return steps.op(op, x, axes=list(axes), keepdims=1)
    return steps.op(op, x, steps.constant(axes, np.int64), keepdims=1)


def _softmax(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Maxr Sub Exp Sum Div`: no casts, so every step counts as stored."""
    rank = steps.rank(0)
    if rank is None:
        return None
    axis = int(attribute(proto, "axis", -1 if steps.opset >= 13 else 1)) % rank
    if steps.opset < 13 and axis != rank - 1:  # over all that follows the axis
        return None
    x = proto.input[0]
    raised = steps.rop("Exp", steps.rop("Sub", x, _reduced("ReduceMax", x, [axis], steps)))
    return steps.op("Div", raised, steps.round(_reduced("ReduceSum", raised, [axis], steps)))


def _log_softmax(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """`Maxr Sub Exp Sum Div Log`: a share below FP16's range becomes 0, and its logarithm infinite."""
    share = _softmax(proto, steps)
    return None if share is None else steps.op("Log", steps.round(share))


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


def bias_after_product(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A Gemm whose bias is added by a kernel of its own: the product is stored first."""
    if len(proto.input) < 3 or not proto.input[2]:
        return None
    bias, beta = proto.input[2], attribute(proto, "beta", 1.0)
    product = steps.round(steps.keep_unbiased(proto))
    return steps.op("Add", product, bias if beta == 1.0 else steps.op("Mul", bias, steps.constant(beta)))


TENSORRT_KERNELS: Mapping[str, Kernel] = {
    "Gelu": _gelu,
    "LayerNormalization": _normal_then_affine,
    "LogSoftmax": _log_softmax,
    "RMSNormalization": _normal_then_affine,
    "ReduceSumSquare": _sum_of_squares,
    "Softmax": _softmax,
}
