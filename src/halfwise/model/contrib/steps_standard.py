"""The Attention of ONNX in its steps, as its definition has them: scaled operands, scores, mask, softmax, values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from halfwise.model.contrib.writer import (
    StepWriter,
    dims_of,
    heads_apart,
    heads_together,
    joined,
    number,
    size,
    spread,
    whole,
)

__all__ = ["STANDARD"]

_SOFTMAX_ANY_AXIS = 13
_KNOWN = frozenset("is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision".split())


def _attention(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    node, rank = write.node, len(dims_of(write.node, 0) or ())
    query, key, value, mask, past_key, past_value, nonpad = (*inputs, *[""] * 7)[:7]
    heads, groups = whole(node, "q_num_heads"), whole(node, "kv_num_heads")
    if rank == 4:
        heads, groups = ((dims_of(node, slot) or (None,) * 4)[1] or 0 for slot in (0, 1))
    written = node.attributes.keys() <= _KNOWN and not nonpad and write.opset >= _SOFTMAX_ANY_AXIS
    if rank not in (3, 4) or not written or not heads or not groups or heads % groups:
        return None
    if rank == 3:
        query = heads_apart(write, query, heads)
        key, value = (heads_apart(write, each, groups) for each in (key, value))
    if past_key and past_value:
        key, value = joined(write, past_key, key, axis=2), joined(write, past_value, value, axis=2)
    results = {1: key, 2: value}
    scale = _root_of_scale(write, query)
    wide_key, wide_value = (_repeated(write, each, heads // groups) for each in (key, value))
    turned = write.op("Transpose", wide_key, perm=[0, 1, 3, 2])
    operands = (write.store(write.op("Mul", each, scale)) for each in (query, turned))
    scores = write.store(write.op("MatMul", *operands))
    seen = {0: scores}
    softcap = number(node, "softcap", 0.0)
    if softcap:
        cap = write.constant(softcap)
        scores = write.store(write.op("Mul", write.op("Tanh", write.store(write.op("Div", scores, cap))), cap))
    seen[1] = scores
    bias = _bias(write, mask, scores, size(write, past_key, 2) if past_key else None)
    if bias:
        scores = write.store(write.op("Add", scores, bias))
    seen[2] = scores
    shares = write.store(_shares(write, scores, bias))
    results[3] = {**seen, 3: shares}.get(whole(node, "qk_matmul_output_mode"), seen[0])
    found = write.op("MatMul", shares, wide_value)
    return {0: heads_together(write, found) if rank == 3 else found, **results}


def _root_of_scale(write: StepWriter, query: str) -> str:
    """The number that queries and keys are both multiplied with."""
    given = number(write.node, "scale", 0.0)
    dims = dims_of(write.node, 0) or ()
    heads = whole(write.node, "q_num_heads")
    last = dims[-1] if dims else None
    head = last // heads if last and len(dims) == 3 and heads else last
    if given or head:
        return write.constant(math.sqrt(given or 1 / math.sqrt(head or 1)))
    length = write.op("Cast", size(write, query, 3), to=onnx.TensorProto.FLOAT)
    return write.op("Sqrt", write.op("Reciprocal", write.op("Sqrt", length)))


def _repeated(write: StepWriter, value: str, times: int) -> str:
    """Each head of keys or values beside itself, once for each query head of its group."""
    if times == 1:
        return value
    apart = spread(write, value, [2])
    wide = write.op("Expand", apart, write.constant([1, 1, times, 1, 1], np.int64))
    shape = joined(
        write,
        size(write, value, 0),
        write.constant([-1], np.int64),
        size(write, value, 2),
        size(write, value, 3),
        axis=0,
    )
    return write.op("Reshape", wide, shape)


def _bias(write: StepWriter, mask: str, scores: str, past: str | None) -> str:
    """What is added to the scores; empty where nothing is."""
    node, bias = write.node, ""
    zero, never = write.constant(0.0), write.constant(-np.inf)
    if mask:
        value = node.inputs[3]
        is_bool = value is not None and value.dtype is not None and value.dtype.value == onnx.TensorProto.BOOL
        bias = write.op("Where", mask, zero, never) if is_bool else mask
    if whole(node, "is_causal"):
        rows, columns = (_count(write, size(write, scores, axis)) for axis in (2, 3))
        if past is not None:
            rows = write.op("Add", rows, past)
        later = write.op("Less", spread(write, rows, [1]), spread(write, columns, [0]))
        causal = write.op("Where", later, never, zero)
        bias = write.op("Add", bias, causal) if bias else causal
    return bias


def _count(write: StepWriter, length: str) -> str:
    start, step = write.constant(0, np.int64), write.constant(1, np.int64)
    end = write.op("Reshape", length, write.constant(np.zeros(0), np.int64))
    return write.op("Range", start, end, step)


def _shares(write: StepWriter, scores: str, bias: str) -> str:
    """The softmax; a row that is masked throughout has no share of anything."""
    shares = write.op("Softmax", scores, axis=-1)
    if not bias:
        return shares
    if write.opset < 18:
        largest = write.op("ReduceMax", bias, axes=[-1], keepdims=1)
    else:
        largest = write.op("ReduceMax", bias, write.constant([-1], np.int64), keepdims=1)
    return write.op("Where", write.op("IsInf", largest, detect_positive=0), write.constant(0.0), shares)


STANDARD = {"Attention": _attention}
