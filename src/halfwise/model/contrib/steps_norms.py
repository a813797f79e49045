"""Norms and activations in ONNX's own operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from halfwise.model.contrib.writer import StepWriter, cut, dims_of, mean, number, size, spread, whole

__all__ = ["ACTIVATIONS", "NORMS", "normalised"]

# What a decomposition takes: the names of the inputs, "" where one is absent. What it gives: names by output slot.
Inputs = Sequence[str]
Results = Mapping[int, str]


def normalised(
    write: StepWriter, x: str, places: Sequence[int], epsilon: float, *, centre: bool
) -> tuple[str, str, str]:
    """The normalised tensor, the mean and one over the deviation."""
    middle = mean(write, x, places)
    if centre:
        x = write.op("Sub", x, middle)
    variance = mean(write, write.op("Mul", x, x), places)
    rate = write.op("Reciprocal", write.op("Sqrt", write.op("Add", variance, write.constant(epsilon))))
    return write.op("Mul", x, rate), middle, rate


def _affine(write: StepWriter, normal: str, scale: str, bias: str) -> str:
    result = write.op("Mul", normal, scale)
    return write.op("Add", result, bias) if bias else result


def _skip_norm(write: StepWriter, inputs: Inputs, *, centre: bool) -> Results:
    x, skip, scale = inputs[:3]
    bias_slot = 4 if centre else 3
    beta = inputs[3] if centre and len(inputs) > 3 else ""
    bias = inputs[bias_slot] if len(inputs) > bias_slot else ""
    total = write.op("Add", x, skip)
    if bias:
        total = write.op("Add", total, bias)
    total = write.store(total)
    normal, middle, rate = normalised(write, total, [-1], number(write.node, "epsilon", 1e-12), centre=centre)
    return {0: _affine(write, normal, scale, beta), 1: middle, 2: rate, 3: total}


def _layer_norm(write: StepWriter, inputs: Inputs, *, centre: bool) -> Results | None:
    dims = dims_of(write.node, 0)
    if dims is None:
        return None
    axis = whole(write.node, "axis", -1) % len(dims)
    places = list(range(axis - len(dims), 0))
    normal, middle, rate = normalised(write, inputs[0], places, number(write.node, "epsilon", 1e-5), centre=centre)
    result = _affine(write, normal, inputs[1], inputs[2] if len(inputs) > 2 else "")
    return {0: result, 1: middle, 2: rate} if centre else {0: result, 1: rate}


def _embedding(write: StepWriter, inputs: Inputs) -> Results:
    ids, segments, words, positions, kinds, scale, bias = inputs[:7]
    mask, places = (inputs[slot] if len(inputs) > slot else "" for slot in (7, 8))
    total = write.op("Gather", words, ids)
    if places:
        position = write.op("Gather", positions, places)
    else:
        position = cut(write, positions, 0, 0, size(write, ids, 1))
    total = write.op("Add", total, position)
    if segments:
        total = write.op("Add", total, write.op("Gather", kinds, segments))
    total = write.store(total)
    normal, _, _ = normalised(write, total, [-1], number(write.node, "epsilon", 1e-12), centre=True)
    results = {0: _affine(write, normal, scale, bias), 2: total}
    if len(write.node.outputs) > 1 and write.node.outputs[1].name:
        results[1] = _count(write, mask, ids)
    return results


def _count(write: StepWriter, mask: str, ids: str) -> str:
    """How many are not masked, in each row."""
    if not mask:
        zeros = write.op("Mul", ids, write.constant(0, np.int32))
        mask = zeros
    if write.opset < 13:
        return write.op("ReduceSum", mask, axes=[1], keepdims=0)
    return write.op("ReduceSum", mask, write.constant([1], np.int64), keepdims=0)


def _group_norm(write: StepWriter, inputs: Inputs, *, skip: bool) -> Results | None:
    """Over groups of channels, which are last or second; SiLU behind it where `activation` says so."""
    node, x = write.node, inputs[0]
    dims = dims_of(node, 0)
    if dims is None or len(dims) != 4:
        return None
    last = whole(node, "channels_last", 1)
    results: dict[int, str] = {}
    if skip:
        beside = dims_of(node, 3)
        other = inputs[3]
        if beside is not None and len(beside) == 2:
            other = spread(write, other, [1, 2] if last else [2, 3])
        x = write.op("Add", x, other)
        if len(inputs) > 4 and inputs[4]:
            bias = inputs[4] if last else spread(write, inputs[4], [1, 2])
            x = write.op("Add", x, bias)
        x = results[1] = write.store(x)
    groups = whole(node, "groups", 1)
    first = write.op("Transpose", x, perm=[0, 3, 1, 2]) if last else x
    rows = write.op("Reshape", first, write.constant([0, groups, -1], np.int64))
    normal, _, _ = normalised(write, rows, [-1], number(node, "epsilon", 1e-5), centre=True)
    back = write.op("Reshape", normal, write.op("Shape", first))
    scale, bias = (spread(write, value, [1, 2]) for value in inputs[1:3])
    y = _affine(write, back, scale, bias)
    if whole(node, "activation"):
        y = write.op("Mul", y, write.op("Sigmoid", y))
    results[0] = write.op("Transpose", y, perm=[0, 2, 3, 1]) if last else y
    return results


def gelu(write: StepWriter, x: str) -> str:
    bent = write.op("Erf", write.op("Mul", x, write.constant(np.sqrt(0.5))))
    half = write.op("Mul", x, write.constant(0.5))
    return write.op("Mul", half, write.op("Add", bent, write.constant(1.0)))


def fast_gelu(write: StepWriter, x: str) -> str:
    cubic = write.op("Mul", write.op("Mul", x, x), write.constant(0.044715))
    inner = write.op("Mul", x, write.op("Add", cubic, write.constant(1.0)))
    bent = write.op("Tanh", write.op("Mul", inner, write.constant(np.sqrt(2 / np.pi))))
    return write.op("Mul", write.op("Mul", x, write.constant(0.5)), write.op("Add", bent, write.constant(1.0)))


def _plain_gelu(write: StepWriter, inputs: Inputs) -> Results:
    return {0: gelu(write, inputs[0])}


def _bias_gelu(write: StepWriter, inputs: Inputs) -> Results:
    return {0: gelu(write, write.store(write.op("Add", inputs[0], inputs[1])))}


def _fast_gelu(write: StepWriter, inputs: Inputs) -> Results:
    x = inputs[0]
    if len(inputs) > 1 and inputs[1]:
        x = write.store(write.op("Add", x, inputs[1]))
    return {0: fast_gelu(write, x)}


def _quick_gelu(write: StepWriter, inputs: Inputs) -> Results:
    alpha = number(write.node, "alpha", 1.702)
    bent = write.op("Sigmoid", write.op("Mul", inputs[0], write.constant(alpha)))
    return {0: write.op("Mul", inputs[0], bent)}


def _split_gelu(write: StepWriter, inputs: Inputs) -> Results | None:
    dims = dims_of(write.node, 0)
    if dims is None or dims[-1] is None:
        return None
    x = write.store(write.op("Add", inputs[0], inputs[1]))
    half = dims[-1] // 2
    left, right = cut(write, x, -1, 0, half), cut(write, x, -1, half, 2 * half)
    return {0: write.op("Mul", left, write.store(gelu(write, right)))}


def _bias_add(write: StepWriter, inputs: Inputs) -> Results:
    return {0: write.op("Add", write.store(write.op("Add", inputs[0], inputs[1])), inputs[2])}


def _bias_softmax(write: StepWriter, inputs: Inputs) -> Results | None:
    dims = dims_of(write.node, 0)
    if dims is None or whole(write.node, "axis", 1) not in (-1, len(dims) - 1):
        return None
    if whole(write.node, "is_inner_broadcast"):
        return None
    return {0: write.op("Softmax", write.store(write.op("Add", inputs[0], inputs[1])), axis=-1)}


NORMS = {
    "EmbedLayerNormalization": _embedding,
    "GroupNorm": lambda write, inputs: _group_norm(write, inputs, skip=False),
    "LayerNormalization": lambda write, inputs: _layer_norm(write, inputs, centre=True),
    "SimplifiedLayerNormalization": lambda write, inputs: _layer_norm(write, inputs, centre=False),
    "SkipGroupNorm": lambda write, inputs: _group_norm(write, inputs, skip=True),
    "SkipLayerNormalization": lambda write, inputs: _skip_norm(write, inputs, centre=True),
    "SkipSimplifiedLayerNormalization": lambda write, inputs: _skip_norm(write, inputs, centre=False),
}

ACTIVATIONS = {
    "BiasAdd": _bias_add,
    "BiasGelu": _bias_gelu,
    "BiasSoftmax": _bias_softmax,
    "BiasSplitGelu": _split_gelu,
    "FastGelu": _fast_gelu,
    "Gelu": _plain_gelu,
    "QuickGelu": _quick_gelu,
}
