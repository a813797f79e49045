"""Kernels that stand for several nodes and round on the way: what they compute from the tensors that enter them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir

from halfwise.emulation.profiles.cuda import fast_gelu, quick_gelu
from halfwise.emulation.profiles.fusion import Fusion
from halfwise.emulation.profiles.steps import Steps, attribute

__all__ = ["FUSED_KERNELS", "Inside", "conv_norm_folded_once", "tanh_gelu_exact"]

# How the nodes of a fusion were spelled, with the names of what they read.
Inside = Mapping[ir.Node, onnx.NodeProto]


def _gelu(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    """Wide, and with exact numbers whatever those of the model were rounded to."""
    name = _name_of(fusion, inside)
    if name is None:
        return None
    bent = steps.op("Erf", steps.op("Mul", name, steps.constant(np.sqrt(0.5))))
    return steps.op("Mul", steps.op("Mul", name, steps.constant(0.5)), steps.op("Add", bent, steps.constant(1.0)))


def _fast_gelu(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    name = _name_of(fusion, inside)
    return None if name is None else fast_gelu(name, steps)


def tanh_gelu_exact(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    """Wide, and with exact numbers."""
    x = _name_of(fusion, inside)
    if x is None:
        return None
    cube = steps.op("Mul", steps.op("Mul", x, x), steps.op("Mul", x, steps.constant(0.044715)))
    bent = steps.op("Tanh", steps.op("Mul", steps.op("Add", x, cube), steps.constant(np.sqrt(2 / np.pi))))
    return steps.op("Mul", steps.op("Mul", x, steps.constant(0.5)), steps.op("Add", bent, steps.constant(1.0)))


def _quick_gelu(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    name = _name_of(fusion, inside)
    return None if name is None else quick_gelu(name, steps, fusion.factor)


def _scaled_product(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    """The factor itself is rounded."""
    return steps.op("Mul", _bare_product(fusion, inside, steps), steps.rounded_constant(fusion.factor))


def _split_product(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    """A long sum is split, and its parts are stored before the factor meets them: they may overflow."""
    product = steps.round(_bare_product(fusion, inside, steps))
    return steps.op("Mul", product, steps.rounded_constant(fusion.factor))


def _bare_product(fusion: Fusion, inside: Inside, steps: Steps) -> str:
    """The product of what enters the fusion, without the factors before it."""
    node = next(node for node in fusion.nodes if node.op_type == "MatMul")
    bare = onnx.NodeProto()
    bare.CopyFrom(inside[node])
    for slot, value in enumerate(node.inputs):
        scaling = value.producer() if value is not None else None
        if scaling in fusion.nodes and scaling is not None:
            bare.input[slot] = inside[scaling].input[0]
    return steps.keep(bare)


def _conv_batch_norm(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    """The norm's factors are multiplied into the stored weights, each step of it stored; then a Conv with a bias."""
    conv, norm = (inside[node] for node in fusion.nodes)
    rank = _weight_rank(fusion.nodes[0])
    if rank is None:
        return None
    scale, shift, mean, variance = norm.input[1:5]
    epsilon = steps.rounded_constant(attribute(norm, "epsilon", 1e-5))
    deviation = steps.rop("Sqrt", steps.rop("Add", variance, epsilon))
    factor = steps.rop("Div", scale, deviation)
    spread = steps.op("Reshape", factor, steps.constant([-1, *[1] * (rank - 1)], np.int64))
    weight = steps.rop("Mul", conv.input[1], spread)
    if len(conv.input) > 2 and conv.input[2]:
        mean = steps.rop("Sub", conv.input[2], mean)
        shift = steps.rop("Add", steps.rop("Mul", mean, factor), shift)
    else:
        shift = steps.rop("Sub", shift, steps.rop("Mul", mean, factor))
    folded = onnx.NodeProto()
    folded.CopyFrom(conv)
    del folded.input[:]
    folded.input.extend([conv.input[0], weight])
    product = steps.round(steps.keep(folded))
    return steps.op("Add", product, steps.op("Reshape", shift, steps.constant([1, -1, *[1] * (rank - 2)], np.int64)))


def conv_norm_folded_once(fusion: Fusion, inside: Inside, steps: Steps) -> str | None:
    """The norm's factors in the weights, and its summand in the bias, each computed wide and stored once."""
    conv, norm = (inside[node] for node in fusion.nodes)
    rank = _weight_rank(fusion.nodes[0])
    if rank is None:
        return None
    scale, shift, mean, variance = norm.input[1:5]
    epsilon = steps.constant(attribute(norm, "epsilon", 1e-5))
    factor = steps.op("Div", scale, steps.op("Sqrt", steps.op("Add", variance, epsilon)))
    weight = steps.op(
        "Mul", conv.input[1], steps.op("Reshape", factor, steps.constant([-1, *[1] * (rank - 1)], np.int64))
    )
    if len(conv.input) > 2 and conv.input[2]:
        mean = steps.op("Sub", mean, conv.input[2])
    bias = steps.op("Sub", shift, steps.op("Mul", mean, factor))
    folded = onnx.NodeProto()
    folded.CopyFrom(conv)
    del folded.input[:]
    folded.input.extend([conv.input[0], steps.round(weight), steps.round(bias)])
    return steps.keep(folded)


def _weight_rank(conv: ir.Node) -> int | None:
    value = conv.inputs[1]
    return None if value is None or value.shape is None else len(value.shape)


def _name_of(fusion: Fusion, inside: Inside) -> str | None:
    """The name under which the fusion's tensor is read."""
    for node, proto in inside.items():
        for value, name in zip(node.inputs, proto.input, strict=True):
            if value is fusion.data and value is not None:
                return str(name)
    return None


FUSED_KERNELS: Mapping[str, Callable[[Fusion, Inside, Steps], str | None]] = {
    "gelu": _gelu,
    "fast-gelu": _fast_gelu,
    "quick-gelu": _quick_gelu,
    "scaled-product": _scaled_product,
    "split-product": _split_product,
    "conv-batch-norm": _conv_batch_norm,
}
