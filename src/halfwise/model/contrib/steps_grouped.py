"""GroupQueryAttention and RotaryEmbedding in ONNX's own operators."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir

from halfwise.model.contrib.steps_attention import LOWEST, Scores, attend
from halfwise.model.contrib.steps_norms import Inputs, Results, normalised
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

__all__ = ["GROUPED", "norms_heads", "slides_cache"]

_INT64 = 7
_FLOAT = 1


def _rotated(write: StepWriter, x: str, cos: str, sin: str, half: int, head: int, *, pairs: bool) -> str:
    """(batch, heads, sequence, head) turned by angles of (batch, 1, sequence, half)."""
    turned = 2 * half
    if pairs:
        first, second = (cut(write, x, 3, start, turned, 2) for start in (0, 1))
    else:
        first, second = cut(write, x, 3, 0, half), cut(write, x, 3, half, turned)
    products = [
        write.store(write.op("Mul", *each)) for each in ((first, cos), (second, sin), (second, cos), (first, sin))
    ]
    real, other = write.op("Sub", *products[:2]), write.op("Add", *products[2:])
    if pairs:
        both = joined(write, spread(write, real, [4]), spread(write, other, [4]), axis=4)
        result = write.op("Reshape", both, write.constant([0, 0, 0, -1], np.int64))
    else:
        result = joined(write, real, other, axis=3)
    rest = [cut(write, x, 3, turned, head)] if head > turned else []
    return joined(write, result, *rest, axis=3) if rest else result


def _rotary(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    x, places, cache = dims_of(node, 0), dims_of(node, 1), dims_of(node, 2)
    if x is None or places is None or cache is None or cache[1] is None or number(node, "scale", 1.0) != 1.0:
        return None
    if whole(node, "is_packed_batching"):
        return None
    half, heads = cache[1], whole(node, "num_heads")
    flat = len(x) == 3
    head = (x[2] // heads if heads and x[2] else 2 * half) if flat else x[3]
    if head is None:
        return None
    value = heads_apart(write, inputs[0], heads or -1, head) if flat else inputs[0]
    at = inputs[1]
    if len(places) == 1:  # where the first one stands
        rows = write.op(
            "Range", write.constant(0, np.int64), _scalar(write, size(write, value, 2)), write.constant(1, np.int64)
        )
        at = spread(write, write.op("Add", rows, at), [0])
    cos, sin = (spread(write, write.op("Gather", name, at), [1]) for name in inputs[2:4])
    y = _rotated(write, value, cos, sin, half, head, pairs=bool(whole(node, "interleaved")))
    return {0: heads_together(write, y) if flat else y}


def _scalar(write: StepWriter, one: str) -> str:
    return write.op("Reshape", one, write.constant(np.zeros(0), np.int64))


_UNKNOWN_SLOTS = (12, 13, 16)  # scales of a quantised cache, lengths of padded queries
_NORMS = (14, 15)  # the weights of the norm of each query, and of each key


def _grouped(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    heads, kept = whole(node, "num_heads"), whole(node, "kv_num_heads")
    query = dims_of(node, 0)
    given = [name if slot < len(inputs) else "" for slot, name in enumerate(inputs)] + [""] * 17
    cache, cos_dims = given[3], dims_of(node, 7)
    others = whole(node, "qk_output") or not whole(node, "causal", 1)
    if query is None or query[2] is None or others or any(given[slot] for slot in _UNKNOWN_SLOTS):
        return None
    if given[10] and cache:  # a bias for places of a buffer that may be longer
        return None
    slides = slides_cache(node)
    if slides and not (cache and whole(node, "local_window_size", -1) > 0):
        return None
    head = query[2] // (heads if given[1] else heads + 2 * kept)
    if given[1]:
        q, k, v = (
            heads_apart(write, given[0], heads),
            heads_apart(write, given[1], kept),
            heads_apart(write, given[2], kept),
        )
    else:
        packed = heads_apart(write, given[0], heads + 2 * kept, head)
        ends = (0, heads, heads + kept, heads + 2 * kept)
        q, k, v = (cut(write, packed, 1, first, last) for first, last in itertools.pairwise(ends))
    q, k = _normed(write, q, given[14], "q_norm_epsilon"), _normed(write, k, given[15], "k_norm_epsilon")
    rows = size(write, q, 2)
    totals = write.op("Add", write.op("Cast", given[5], to=_INT64), write.constant([1], np.int64))
    earlier = spread(write, write.op("Max", write.op("Sub", totals, rows), write.constant([0], np.int64)), [1])
    steps = write.op("Range", write.constant(0, np.int64), _scalar(write, rows), write.constant(1, np.int64))
    places = write.op("Add", earlier, spread(write, steps, [0]))  # (batch, sequence): where each row stands
    if whole(node, "do_rotary"):
        if cos_dims is None or cos_dims[1] is None or given[9]:
            return None
        pairs = bool(whole(node, "rotary_interleaved"))
        cos, sin = (spread(write, write.op("Gather", given[slot], places), [1]) for slot in (7, 8))
        q, k = (write.store(_rotated(write, x, cos, sin, cos_dims[1], head, pairs=pairs)) for x in (q, k))
    if slides:
        room = size(write, cache, 2)
        resident, left = (_resident(write, count, room) for count in (earlier, write.op("Add", earlier, rows)))
        places = write.op("Add", resident, spread(write, steps, [0]))  # from here on in the cache, not in the sequence
        length = write.op("Add", room, rows)
        k, v = (_cached(write, given[slot], new, resident, length) for slot, new in ((3, k), (4, v)))
        gone = write.op("Sub", write.op("Add", resident, rows), left)
        kept_rows = [_behind(write, x, gone, room) for x in (k, v)]
    elif cache:
        k, v = (_cached(write, given[slot], new, earlier, given[6]) for slot, new in ((3, k), (4, v)))
    how = Scores(
        number(node, "scale", 0.0) or 1 / math.sqrt(head),
        number(node, "softcap", 0.0),
        [given[10]] if given[10] else (),
        [_window(write, places, size(write, k, 2))],
        _sink(write, given[11]),
    )
    many = [_repeated(write, x, heads // kept) for x in (k, v)]
    first, second = kept_rows if slides else (k, v)
    return {0: heads_together(write, attend(write, q, many[0], many[1], how)), 1: first, 2: second}


def _normed(write: StepWriter, x: str, weights: str, own: str) -> str:
    """Each head by itself, before it is turned."""
    if not weights:
        return x
    epsilon = number(write.node, own, number(write.node, "qk_norm_epsilon", 1e-6))
    return write.store(write.op("Mul", normalised(write, x, [-1], epsilon, centre=False)[0], weights))


def slides_cache(node: ir.Node) -> bool:
    """Whether its cache holds the last rows alone. A kernel leaves rows that nothing came to as memory held them."""
    slides = node.attributes.get("sliding_window_cache") if node.op_type == "GroupQueryAttention" else None
    return slides is not None and slides.type is ir.AttributeType.INT and bool(slides.value)


def norms_heads(node: ir.Node) -> bool:
    """Whether queries and keys are normalised within, which the CPU provider refuses."""
    return any(slot < len(node.inputs) and node.inputs[slot] is not None for slot in _NORMS)


def _sink(write: StepWriter, sinks: str) -> str:
    if sinks:
        return write.op("Reshape", sinks, write.constant([1, -1, 1, 1], np.int64))
    return write.constant(np.zeros((1, 1, 1, 1))) if whole(write.node, "smooth_softmax") else ""


def _window(write: StepWriter, places: str, length: str) -> str:
    """What is added to the scores: a row sees what stands before it, and only so far back as the window goes."""
    keys = write.op("Range", write.constant(0, np.int64), _scalar(write, length), write.constant(1, np.int64))
    row = spread(write, places, [2])
    hidden = write.op("Greater", keys, row)
    window = whole(write.node, "local_window_size", -1)
    if window > 0:
        oldest = write.op("Sub", row, write.constant([window], np.int64))
        hidden = write.op("Or", hidden, write.op("Not", write.op("Greater", keys, oldest)))
    return spread(write, write.op("Where", hidden, write.constant(LOWEST), write.constant(0.0)), [1])


def _cached(write: StepWriter, past: str, new: str, earlier: str, total: str) -> str:
    """The cache with the new rows behind those of before, in each batch entry at its own place."""
    room = size(write, past, 2)
    total = write.op("Reshape", write.op("Cast", total, to=_INT64), write.constant([1], np.int64))
    length = write.op("Max", room, total)
    shape = joined(
        write, size(write, past, 0), size(write, past, 1), write.op("Sub", length, room), size(write, past, 3), axis=0
    )
    padded = joined(write, past, write.op("Expand", write.constant(0.0), shape), axis=2)
    places = write.op("Range", write.constant(0, np.int64), _scalar(write, length), write.constant(1, np.int64))
    old = write.op("Less", spread(write, places, [0]), earlier)  # (batch, length)
    rows = write.op(
        "Range", write.constant(0, np.int64), _scalar(write, size(write, new, 2)), write.constant(1, np.int64)
    )
    behind = write.op("Sub", spread(write, places, [0]), earlier)
    picked = write.op("Equal", spread(write, behind, [2]), rows)  # (batch, length, sequence)
    placed = write.op("MatMul", spread(write, write.op("Cast", picked, to=_FLOAT), [1]), new)
    return write.op("Where", spread(write, old, [1, 3]), padded, placed)


def _resident(write: StepWriter, count: str, room: str) -> str:
    """How many rows of so many are in a sliding cache: where it is full, as many go at once as the window spares."""
    rows = write.op("Range", write.constant(0, np.int64), _scalar(write, room), write.constant(1, np.int64))
    last = write.constant([whole(write.node, "local_window_size") - 1], np.int64)
    spare = write.op("Sub", room, write.op("Gather", rows, last, axis=0))  # which refuses less room than a window takes
    over = write.op("Max", write.op("Sub", count, room), write.constant([0], np.int64))
    times = write.op("Div", write.op("Sub", write.op("Add", over, spare), write.constant([1], np.int64)), spare)
    return write.op("Sub", count, write.op("Mul", times, spare))


def _behind(write: StepWriter, x: str, gone: str, room: str) -> str:
    """So many rows behind those that are gone. Where there are no more it is 0; a kernel writes nothing there."""
    rows, columns = (
        write.op("Range", write.constant(0, np.int64), _scalar(write, each), write.constant(1, np.int64))
        for each in (room, size(write, x, 2))
    )
    picked = write.op("Equal", spread(write, write.op("Add", gone, rows), [2]), columns)  # (batch, room, length)
    return write.op("MatMul", spread(write, write.op("Cast", picked, to=_FLOAT), [1]), x)


def _repeated(write: StepWriter, x: str, times: int) -> str:
    """Each head so many times in a row."""
    if times == 1:
        return x
    shape = joined(
        write,
        *(size(write, x, a) for a in (0, 1)),
        write.constant([times], np.int64),
        *(size(write, x, a) for a in (2, 3)),
        axis=0,
    )
    wide = write.op("Expand", spread(write, x, [2]), shape)
    flat = joined(
        write, size(write, x, 0), write.constant([-1], np.int64), *(size(write, x, a) for a in (2, 3)), axis=0
    )
    return write.op("Reshape", wide, flat)


GROUPED = {"GroupQueryAttention": _grouped, "RotaryEmbedding": _rotary}
