"""The kernels of ONNX Runtime's CUDA provider that round on the way: docs/numerics-profiles.md.

Which of them run is told by `halfwise prove`; the file that comes with this package has its answer of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.recurrent import RECURRENT
from halfwise.emulation.profiles.reductions import REDUCTIONS
from halfwise.emulation.profiles.resize import resize_linear
from halfwise.emulation.profiles.steps import Steps, attribute
from halfwise.model.contrib.schemas import DOMAIN

__all__ = ["CUDA_KERNELS", "SPLIT_LENGTH", "bias_joins_sum", "fast_gelu", "quick_gelu"]


def _convolution(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """The sum of products is stored, the bias is added after that."""
    if len(proto.input) < 3 or not proto.input[2]:
        return None
    bias = proto.input[2]
    del proto.input[2:]
    product = steps.round(steps.keep(proto))
    rank = steps.rank(1) or steps.rank(0) or 4
    spread = steps.op("Reshape", bias, steps.constant([1, -1, *[1] * (rank - 2)], np.int64))
    return steps.op("Add", product, spread)


def bias_joins_sum(rows: int, length: int, columns: int) -> bool:
    """Whether a product of matrices takes its bias before it is stored.

    Seen of 1,078 sizes: where rows of eight do not fill the matrices, and where a long sum is split because its
    result is small; otherwise the product is stored first.
    """
    if length % 8 or columns % 8:
        return True
    tiles = -(-rows // 128) * -(-columns // 128)
    return length >= SPLIT_LENGTH and tiles < _SPLIT_TILES


SPLIT_LENGTH = 1536  # between 768, where no sum was split, and 3072
_SPLIT_TILES = 16


def _gemm(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """A vector as a bias may be added after the product was stored; factors other than 1 are themselves rounded."""
    alpha, beta = attribute(proto, "alpha", 1.0), attribute(proto, "beta", 1.0)
    biased = len(proto.input) > 2 and bool(proto.input[2])
    if biased and alpha == beta == 1.0 and steps.rank(2) == 1:
        weight, data = steps.dims(1), steps.dims(0)
        turned = int(attribute(proto, "transB", 0))
        rows = 1 if data is None else data[int(attribute(proto, "transA", 0))]
        if weight is not None and bias_joins_sum(rows, weight[turned], weight[1 - turned]):
            return None
        bias = proto.input[2]
        return steps.op("Add", steps.round(steps.keep_unbiased(proto)), bias)
    if alpha == beta == 1.0:
        return None
    for each in proto.attribute:
        if each.name in ("alpha", "beta"):
            each.f = float(steps.rounded(each.f))
    return steps.keep(proto)


def _where_positive(x: str, steps: Steps, positive: str, negative: str) -> str:
    return steps.op("Where", steps.op("Greater", x, steps.constant(0.0)), positive, negative)


def _sigmoid(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """In FP32, but below 0 as one less what it is above: tiny results lose their last bits."""
    x, one = proto.input[0], steps.constant(1.0)
    falling = steps.op("Exp", steps.op("Neg", steps.op("Abs", x)))
    upper = steps.op("Div", one, steps.op("Add", one, falling))
    return _where_positive(x, steps, upper, steps.op("Sub", one, upper))


def _hard_sigmoid(proto: onnx.NodeProto, steps: Steps) -> str | None:
    for name, default in (("alpha", 0.2), ("beta", 0.5)):
        value = float(steps.rounded(attribute(proto, name, default)))
        kept = [each for each in proto.attribute if each.name != name]
        del proto.attribute[:]
        proto.attribute.extend([*kept, helper.make_attribute(name, value)])
    return steps.keep(proto)


def _hard_swish(proto: onnx.NodeProto, steps: Steps) -> str | None:
    x = proto.input[0]
    line = steps.rop("Add", steps.rop("Div", x, steps.constant(6.0)), steps.constant(0.5))
    return steps.op("Mul", x, _clip01(line, steps))


def _clip01(x: str, steps: Steps) -> str:
    return steps.op("Min", steps.op("Max", x, steps.constant(0.0)), steps.constant(1.0))


def _elu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    x, alpha = proto.input[0], steps.rounded_constant(attribute(proto, "alpha", 1.0))
    below = steps.rop("Sub", steps.rop("Exp", x), steps.constant(1.0))
    return _where_positive(x, steps, x, steps.op("Mul", alpha, below))


def _selu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    x = proto.input[0]
    alpha = steps.rounded(attribute(proto, "alpha", 1.67326319217681884765625))
    gamma = steps.rounded(attribute(proto, "gamma", 1.05070102214813232421875))
    below = steps.rop("Sub", steps.rop("Exp", x), steps.constant(1.0))
    negative = steps.op("Mul", steps.rounded_constant(alpha * gamma), below)
    return _where_positive(x, steps, steps.op("Mul", steps.constant(gamma), x), negative)


def _softplus_of(x: str, steps: Steps) -> str:
    one = steps.constant(1.0)
    small = steps.rop("Log", steps.rop("Add", steps.rop("Exp", steps.op("Neg", steps.op("Abs", x))), one))
    return _where_positive(x, steps, steps.op("Add", x, small), small)


def _softplus(proto: onnx.NodeProto, steps: Steps) -> str | None:
    return _softplus_of(proto.input[0], steps)


def _mish(proto: onnx.NodeProto, steps: Steps) -> str | None:
    x = proto.input[0]
    return steps.op("Mul", x, steps.rop("Tanh", steps.round(_softplus_of(x, steps))))


def _softsign(proto: onnx.NodeProto, steps: Steps) -> str | None:
    x = proto.input[0]
    return steps.op("Div", x, steps.rop("Add", steps.constant(1.0), steps.op("Abs", x)))


def _leaky_relu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    x = proto.input[0]
    slope = steps.rounded_constant(attribute(proto, "alpha", 0.01))
    return _where_positive(x, steps, x, steps.op("Mul", slope, x))


def _gelu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    if attribute(proto, "approximate", b"none") != b"tanh":
        return None
    return fast_gelu(proto.input[0], steps)


def _own_fast_gelu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """The operator that a Gelu in small operators is fused to; a bias is added first."""
    x = proto.input[0]
    if len(proto.input) > 1 and proto.input[1]:
        x = steps.rop("Add", x, proto.input[1])
    return fast_gelu(x, steps)


def _own_quick_gelu(proto: onnx.NodeProto, steps: Steps) -> str | None:
    return quick_gelu(proto.input[0], steps, attribute(proto, "alpha", 1.702))


def fast_gelu(x: str, steps: Steps) -> str:
    """Gelu by tanh in narrow arithmetic, products and sums in one step where they follow each other."""
    cubic, linear = steps.rounded_constant(0.035677408136300125), steps.rounded_constant(0.7978845608028654)
    inner = steps.rop("Add", steps.op("Mul", cubic, steps.rop("Mul", x, x)), linear)
    bent = steps.rop("Tanh", steps.rop("Mul", x, inner))
    half = steps.constant(0.5)
    return steps.op("Mul", x, steps.rop("Add", half, steps.op("Mul", half, bent)))


def quick_gelu(x: str, steps: Steps, alpha: float) -> str:
    """x * sigmoid(alpha x), every step stored."""
    one = steps.constant(1.0)
    v = x if alpha == 1.0 else steps.rop("Mul", x, steps.rounded_constant(alpha))
    upper = steps.rop("Div", one, steps.rop("Add", one, steps.rop("Exp", steps.op("Neg", steps.op("Abs", v)))))
    return steps.op("Mul", x, _where_positive(v, steps, upper, steps.rop("Sub", one, upper)))


def _group_norm(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Written out: normalised, scaled and shifted, each stored."""
    rank, channels = steps.rank(0), steps.dims(1)
    if rank is None or channels is None or steps.opset < 21:
        return None
    scale, bias = proto.input[1], proto.input[2]
    proto.input[1] = steps.constant(np.ones(channels))
    proto.input[2] = steps.constant(np.zeros(channels))
    normal = steps.round(steps.keep(proto))
    shape = steps.constant([1, -1, *[1] * (rank - 2)], np.int64)
    scaled = steps.rop("Mul", normal, steps.op("Reshape", scale, shape))
    return steps.op("Add", scaled, steps.op("Reshape", bias, shape))


def _instance_norm(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Of several samples: mean and variance are stored, and so is every step after them. Of one sample: wide."""
    rank, samples = steps.rank(0), steps.size(0, 0)
    if rank is None or rank < 3 or samples == 1:
        return None
    x, scale, bias = proto.input[:3]
    axes = tuple(range(2, rank))
    mean = _mean_like(x, axes, steps)
    centred = steps.op("Sub", x, mean)
    squares = _mean_like(steps.op("Mul", centred, centred), axes, steps)
    counts = (steps.op("Cast", steps.op("Size", name), to=onnx.TensorProto.FLOAT) for name in (x, mean))
    share = steps.op("Sub", steps.constant(1.0), steps.op("Reciprocal", steps.op("Div", *counts)))
    variance = steps.round(steps.op("Div", squares, share))  # of so many less one; the kernel takes that back
    epsilon = steps.rounded_constant(max(attribute(proto, "epsilon", 1e-5), _CUDNN_EPSILON))
    variance = steps.rop("Add", steps.op("Mul", variance, steps.round(share)), epsilon)
    shape = steps.constant([1, -1, *[1] * (rank - 2)], np.int64)
    normal = steps.rop("Mul", steps.op("Reshape", scale, shape), steps.rop("Sub", x, steps.round(mean)))
    normal = steps.rop("Div", normal, steps.rop("Sqrt", variance))
    result = steps.op("Add", normal, steps.op("Reshape", bias, shape))
    if samples is not None:
        return result
    first = steps.op("Gather", steps.op("Shape", x), steps.constant(0, np.int64), axis=0)
    return steps.op("Where", steps.op("Equal", first, steps.constant(1, np.int64)), steps.keep(proto), result)


_CUDNN_EPSILON = 1e-5  # the provider takes no smaller one


def _mean_like(x: str, axes: tuple[int, ...], steps: Steps) -> str:
    if steps.opset < 18:
        return steps.op("ReduceMean", x, axes=list(axes), keepdims=1)
    return steps.op("ReduceMean", x, steps.constant(axes, np.int64), keepdims=1)


CUDA_KERNELS: Mapping[str, Kernel] = {
    **RECURRENT,
    **REDUCTIONS,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Elu": _elu,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "InstanceNormalization": _instance_norm,
    "LeakyRelu": _leaky_relu,
    "Mish": _mish,
    "Resize": resize_linear,
    "Selu": _selu,
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": _softsign,
    f"{DOMAIN}:FastGelu": _own_fast_gelu,
    f"{DOMAIN}:QuickGelu": _own_quick_gelu,
}
