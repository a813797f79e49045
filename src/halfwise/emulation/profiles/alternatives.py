"""Kernels that some machine may have: other ways to round than those that were seen of a known one."""

from __future__ import annotations

import math

import numpy as np
import onnx

from halfwise.emulation.profiles.conversions import LARGEST, LEAST_NORMAL
from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.reductions import axes_of
from halfwise.emulation.profiles.rows import stored_sums, sum_like
from halfwise.emulation.profiles.steps import Steps, attribute

__all__ = [
    "as_power_of_two",
    "by_reciprocal",
    "exponentials_stored",
    "factors_stored",
    "flushed",
    "norm_folded",
    "pooled_sum_stored",
    "root_of_stored",
    "saturated",
    "sigmoid_in_steps",
    "sum_one_by_one",
    "tanh_by_sigmoid",
]


def flushed(kernel: Kernel | None) -> Kernel:
    """Results below FP16's least normal number become 0."""

    def spelled(proto: onnx.NodeProto, steps: Steps) -> str | None:
        narrow = steps.round(_result(kernel, proto, steps))
        small = steps.op("Less", steps.op("Abs", narrow), steps.constant(LEAST_NORMAL))
        return steps.op("Where", small, steps.constant(0.0), narrow)

    return spelled


def saturated(kernel: Kernel | None) -> Kernel:
    """Results beyond FP16's range become its largest number."""

    def spelled(proto: onnx.NodeProto, steps: Steps) -> str | None:
        result = _result(kernel, proto, steps)
        return steps.op("Max", steps.op("Min", result, steps.constant(LARGEST)), steps.constant(-LARGEST))

    return spelled


def _result(kernel: Kernel | None, proto: onnx.NodeProto, steps: Steps) -> str:
    result = kernel(proto, steps) if kernel is not None else None
    return result if result is not None else steps.keep(proto)


def factors_stored(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A Gemm whose factors are rounded; product and bias are stored once."""
    stated = [each for each in proto.attribute if each.name in ("alpha", "beta")]
    if not stated:
        return None
    for each in stated:
        each.f = float(steps.rounded(each.f))
    return steps.keep(proto)


def sum_one_by_one(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A sum or mean over the last axis whose every partial sum is stored."""
    axes, dims = axes_of(proto, steps), steps.dims(0)
    if dims is None or axes != (len(dims) - 1,):
        return None
    start = steps.constant(np.zeros(dims[:-1]))
    total = stored_sums(steps, proto.input[0], start, len(dims) - 1, len(dims) - 1)[0]
    if int(attribute(proto, "keepdims", 1)):
        total = steps.op("Reshape", total, steps.constant([*dims[:-1], 1], np.int64))
    return total if proto.op_type == "ReduceSum" else steps.op("Div", total, steps.constant(float(dims[-1])))


def root_of_stored(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """An L2 norm whose sum of squares is stored before its root is taken."""
    axes, x = axes_of(proto, steps), proto.input[0]
    if axes is None:
        return None
    return steps.op("Sqrt", steps.round(sum_like(proto, steps, steps.op("Mul", x, x), axes)))


def pooled_sum_stored(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Average pooling whose sum is stored before it is divided; every window is whole."""
    dims = steps.dims(0)
    if proto.op_type == "GlobalAveragePool":
        terms = math.prod(dims[2:]) if dims is not None else 0
    else:
        partial = any(attribute(proto, "pads", [0])) or attribute(proto, "ceil_mode", 0)
        partial = partial or attribute(proto, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
        terms = 0 if partial else math.prod(attribute(proto, "kernel_shape", [0]))
    if not terms:
        return None
    total = steps.rop("Mul", steps.keep(proto), steps.constant(float(terms)))
    return steps.op("Div", total, steps.constant(float(terms)))


def exponentials_stored(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A softmax over the last axis that stores its powers and adds these; the quotient is taken wide."""
    rank = steps.rank(0)
    axis = int(attribute(proto, "axis", -1 if steps.opset >= 13 else 1))
    if rank is None or axis % rank != rank - 1 or steps.opset < 18:
        return None
    last = steps.constant([-1], np.int64)
    powers = steps.rop("Exp", steps.op("Sub", proto.input[0], steps.op("ReduceMax", proto.input[0], last)))
    return steps.op("Div", powers, steps.op("ReduceSum", powers, last))


def norm_folded(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A BatchNormalization as one stored factor and one stored summand for each channel."""
    rank = steps.rank(0)
    if rank is None or len(proto.output) > 1 or len(proto.input) < 5:
        return None
    x, scale, bias, mean, variance = proto.input[:5]
    root = steps.op("Sqrt", steps.op("Add", variance, steps.constant(attribute(proto, "epsilon", 1e-5))))
    factor = steps.op("Div", scale, root)
    summand = steps.round(steps.op("Sub", bias, steps.op("Mul", mean, factor)))
    shape = steps.constant([1, -1, *[1] * (rank - 2)], np.int64)
    product = steps.op("Mul", x, steps.op("Reshape", steps.round(factor), shape))
    return steps.op("Add", product, steps.op("Reshape", summand, shape))


def tanh_by_sigmoid(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """2 sigmoid(2x) - 1, the sigmoid stored: no values between 0 and 2^-11."""
    two = steps.constant(2.0)
    bent = steps.rop("Sigmoid", steps.op("Mul", two, proto.input[0]))
    return steps.op("Sub", steps.op("Mul", two, bent), steps.constant(1.0))


def sigmoid_in_steps(proto: onnx.NodeProto, steps: Steps) -> str | None:
    one = steps.constant(1.0)
    power = steps.rop("Exp", steps.op("Neg", proto.input[0]))
    return steps.op("Div", one, steps.rop("Add", one, power))


def as_power_of_two(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """exp(x) as 2 to the power of x log2(e), that product stored."""
    scaled = steps.rop("Mul", proto.input[0], steps.constant(1.0 / math.log(2.0)))
    return steps.op("Pow", steps.constant(2.0), scaled)


def by_reciprocal(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A quotient as the product with the stored reciprocal."""
    return steps.op("Mul", proto.input[0], steps.rop("Div", steps.constant(1.0), proto.input[1]))
