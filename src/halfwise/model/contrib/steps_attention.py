"""Attention and MultiHeadAttention in ONNX's own operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halfwise.model.contrib.steps_norms import Inputs, Results
from halfwise.model.contrib.writer import (
    StepWriter,
    cut,
    dims_of,
    heads_apart,
    heads_together,
    joined,
    number,
    size,
    spread,
    whole,
)

__all__ = ["ATTENTION", "Scores", "attend"]

LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Scores:
    """How scores become shares: the names of what is added, `stored` as a tensor that memory holds or on the fly.

    `sink`: a further score of each row whose share is left out.
    """

    scale: float
    cap: float = 0.0
    stored: Sequence[str] = ()
    added: Sequence[str] = ()
    sink: str = ""


def attend(write: StepWriter, q: str, k: str, v: str, how: Scores) -> str:
    """(batch, heads, sequence, head) for each, the values' heads in the result."""
    turned = write.op("Transpose", k, perm=[0, 1, 3, 2])
    scores = write.store(write.op("Mul", write.op("MatMul", q, turned), write.constant(how.scale)))
    if how.cap:
        bent = write.op("Tanh", write.op("Div", scores, write.constant(how.cap)))
        scores = write.store(write.op("Mul", bent, write.constant(how.cap)))
    for each in how.stored:
        scores = write.store(write.op("Add", scores, each))
    for each in how.added:
        scores = write.op("Add", scores, each)
    if how.sink:
        column = write.op(
            "Expand", how.sink, joined(write, *(size(write, q, a) for a in (0, 1, 2)), _one(write), axis=0)
        )
        shares = write.op("Softmax", joined(write, scores, column, axis=3), axis=-1)
        shares = cut(write, shares, 3, 0, size(write, k, 2))
    else:
        shares = write.op("Softmax", scores, axis=-1)
    return write.op("MatMul", write.store(shares), v)


def _one(write: StepWriter) -> str:
    return write.constant([1], np.int64)


def _given(inputs: Inputs, slot: int) -> str:
    return inputs[slot] if slot < len(inputs) else ""


def _attention(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    weight, heads = dims_of(node, 1), whole(node, "num_heads")
    if weight is None or weight[1] is None or whole(node, "do_rotary") or whole(node, "past_present_share_buffer"):
        return None
    sizes = tuple(node.attributes["qkv_hidden_sizes"].as_ints()) if "qkv_hidden_sizes" in node.attributes else ()
    sizes = sizes or (weight[1] // 3,) * 3
    whole_product = write.op("MatMul", inputs[0], inputs[1])
    if _given(inputs, 2):
        whole_product = write.op("Add", whole_product, inputs[2])
    whole_product = write.store(whole_product)
    ends = np.cumsum((0, *sizes))
    q, k, v = (
        heads_apart(write, cut(write, whole_product, 2, int(first), int(last)), heads)
        for first, last in itertools.pairwise(ends)
    )
    past = _given(inputs, 4)
    if past:
        halves = [write.op("Gather", past, write.constant(half, np.int64), axis=0) for half in (0, 1)]
        k, v = joined(write, halves[0], k, axis=2), joined(write, halves[1], v, axis=2)
    masks = _masks(write, _given(inputs, 3), 3, q, k)
    if masks is None:
        return None
    stored = [name for name in (_given(inputs, 5),) if name]
    how = Scores(number(node, "scale", 0.0) or 1 / math.sqrt(sizes[0] / heads), stored=stored, added=masks)
    results = {0: heads_together(write, attend(write, q, k, v, how))}
    if len(node.outputs) > 1 and node.outputs[1].name:
        results[1] = joined(write, spread(write, k, [0]), spread(write, v, [0]), axis=0)
    return results


def _multi_head(write: StepWriter, inputs: Inputs) -> Results | None:
    node, heads = write.node, whole(write.node, "num_heads")
    query = dims_of(node, 0)
    present = [slot for slot, value in enumerate(node.outputs) if value.name]
    if query is None or 3 in present or _given(inputs, 8) or _given(inputs, 9):
        return None
    parts = _parts(write, inputs, heads, len(query))
    if parts is None:
        return None
    q, k, v, head = parts
    if _given(inputs, 6):
        k, v = joined(write, inputs[6], k, axis=2), joined(write, inputs[7], v, axis=2)
    masks = _masks(write, _given(inputs, 4), 4, q, k)
    scale = number(node, "scale", 0.0) or (1 / math.sqrt(head) if head else 0.0)
    if masks is None or not scale:
        return None
    stored = [name for name in (_given(inputs, 5),) if name]
    y = heads_together(write, attend(write, q, k, v, Scores(scale, stored=stored, added=masks)))
    return {0: y, 1: k, 2: v}


def _parts(write: StepWriter, inputs: Inputs, heads: int, rank: int) -> tuple[str, str, str, int] | None:
    """Query, key and value with their heads apart, and the size of a head where it is known."""
    node, bias = write.node, _given(inputs, 3)
    query, key = dims_of(node, 0), dims_of(node, 1)
    if rank == 5:
        packed = [_piece(write, inputs[0], place) for place in range(3)]
        head = query[4] if query is not None else None
        return None if bias else (packed[0], packed[1], packed[2], head or 0)
    width = query[2] if query is not None else None
    head = width // heads if width else 0
    q = inputs[0]
    if bias:
        if not width:
            return None
        q = write.store(write.op("Add", q, cut(write, bias, 0, 0, width)))
    q = heads_apart(write, q, heads)
    if key is None:
        return None
    if len(key) == 5:
        return None if bias else (q, _piece(write, inputs[1], 0), _piece(write, inputs[1], 1), head)
    k, v = inputs[1], inputs[2]
    if len(key) == 4:
        return q, k, v, head
    if bias:
        k = write.store(write.op("Add", k, cut(write, bias, 0, width or 0, 2 * (width or 0))))
        v = write.store(write.op("Add", v, cut(write, bias, 0, 2 * (width or 0), 1 << 31)))
    return q, heads_apart(write, k, heads), heads_apart(write, v, heads), head


def _piece(write: StepWriter, packed: str, place: int) -> str:
    """(batch, sequence, heads, several, head): one of the several, with the heads in front of the sequence."""
    one = write.op("Gather", packed, write.constant(place, np.int64), axis=3)
    return write.op("Transpose", one, perm=[0, 2, 1, 3])


def _masks(write: StepWriter, mask: str, slot: int, q: str, k: str) -> list[str] | None:
    """What is added to the scores; None where a mask is of a form that is not known."""
    found = []
    if mask:
        allowed = _allowed(write, mask, slot, q, k)
        if allowed is None:
            return None
        filled = write.constant(number(write.node, "mask_filter_value", -10000.0))
        found.append(write.op("Where", allowed, write.constant(0.0), filled))
    if whole(write.node, "unidirectional"):
        keys, rows = _count(write, size(write, k, 2)), _count(write, size(write, q, 2))
        ahead = write.op("Sub", size(write, k, 2), size(write, q, 2))
        latest = spread(write, write.op("Add", rows, ahead), [1])
        later = write.op("Greater", spread(write, keys, [0]), latest)
        found.append(write.op("Where", later, write.constant(LOWEST), write.constant(0.0)))
    return found


def _count(write: StepWriter, length: str) -> str:
    """0, 1, ... below a length."""
    return write.op("Range", *(write.constant(n, np.int64) for n in (0,)), _scalar(write, length), _step(write))


def _scalar(write: StepWriter, one: str) -> str:
    return write.op("Reshape", one, write.constant(np.zeros(0), np.int64))


def _step(write: StepWriter) -> str:
    return write.constant(1, np.int64)


def _allowed(write: StepWriter, mask: str, slot: int, q: str, k: str) -> str | None:
    """Which keys a row sees, for batch, heads, rows and keys."""
    dims = dims_of(write.node, slot)
    if dims is None:
        return None
    if len(dims) in (2, 3):
        seen = write.op("Greater", mask, write.constant(0, np.int32))
        return spread(write, seen, [1, 2] if len(dims) == 2 else [1])
    batch = (dims_of(write.node, 0) or (None,))[0]
    if len(dims) != 1 or (dims[0] is not None and batch is not None and dims[0] not in (batch, 2 * batch)):
        return None
    # Ends, and behind them starts where there are any: else zeros stand there.
    rows = size(write, q, 0)
    zeros = write.op("Expand", write.constant([0], np.int32), rows)
    padded = joined(write, mask, zeros, axis=0)
    ends = cut(write, padded, 0, 0, rows)
    starts = cut(write, padded, 0, rows, write.op("Add", rows, rows))
    places = write.op("Cast", _count(write, size(write, k, 2)), to=6)  # int32
    before = write.op("Less", spread(write, places, [0]), spread(write, ends, [1]))
    early = write.op("Less", spread(write, places, [0]), spread(write, starts, [1]))
    return spread(write, write.op("And", before, write.op("Not", early)), [1, 2])


ATTENTION = {"Attention": _attention, "MultiHeadAttention": _multi_head}
