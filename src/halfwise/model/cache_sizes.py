"""Caches whose exporter left more open than their length: what the operator that extends them takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from halfwise.model.contrib.steps_grouped import slides_cache
from halfwise.model.contrib.writer import dims_of

__all__ = ["rooms_of", "state_cache_sizes"]

Sizes = Mapping[int, int | None]  # by axis

_OWN = "com.microsoft"


def state_cache_sizes(graph: ir.Graph) -> None:
    """Declare of each input that operators of attention extend, or a Concat, all that is known but the length."""
    for value in graph.inputs:
        if value.shape is not None and (taken := _sizes(value)):
            dims = (taken.get(axis, dim) if not isinstance(dim, int) else dim for axis, dim in enumerate(value.shape))
            value.shape = ir.Shape(dims)


def _sizes(value: ir.Value) -> dict[int, int]:
    """Where its readers do not agree, it stays open."""
    found: dict[int, set[int]] = {}
    for node, slot in value.uses():
        known = _TAKEN.get((node.domain, node.op_type))
        taken = known(node, slot) if known is not None else {}
        for axis, size in taken.items():
            if isinstance(size, int) and size > 0:
                found.setdefault(axis, set()).add(size)
    return {axis: next(iter(sizes)) for axis, sizes in found.items() if len(sizes) == 1}


def rooms_of(graph: ir.Graph) -> dict[str, int]:
    """By input how many rows a cache has to hold at least, of those of which the last rows alone are kept."""
    found = {}
    for value in graph.inputs:
        nodes = [node for node, slot in value.uses() if slot in (3, 4) and node.domain == _OWN and slides_cache(node)]
        if nodes:
            found[value.name or ""] = max(0, *(_number(node, "local_window_size") for node in nodes))
    return found


def _joined(node: ir.Node, slot: int) -> Sizes:
    others = [dims_of(node, other) or () for other in range(len(node.inputs)) if other != slot]
    own = dims_of(node, slot) or ()
    along = _number(node, "axis") % max(len(own), 1)
    same = [dims for dims in others if len(dims) == len(own)]
    return {axis: size for dims in same for axis, size in enumerate(dims) if axis != along and size is not None}


def _grouped(node: ir.Node, slot: int) -> Sizes:
    heads, kept = _number(node, "num_heads"), _number(node, "kv_num_heads")
    packed = len(node.inputs) < 2 or node.inputs[1] is None
    return _heads(node, 0, heads + 2 * kept if packed else heads, kept) if slot in (3, 4) else {}


def _multi_head(node: ir.Node, slot: int) -> Sizes:
    heads = _number(node, "num_heads")
    return _heads(node, slot - 5, heads, heads) if slot in (6, 7) else {}


def _standard(node: ir.Node, slot: int) -> Sizes:
    kept = _number(node, "kv_num_heads")
    return _heads(node, slot - 3, kept, kept) if slot in (4, 5) else {}


def _packed(node: ir.Node, slot: int) -> Sizes:
    """Of keys and values in one tensor, which leads with these two."""
    heads, weight = _number(node, "num_heads"), dims_of(node, 1) or ()
    width = weight[1] if len(weight) == 2 and "qkv_hidden_sizes" not in node.attributes else None
    return {0: 2, 2: heads, 4: _share(width, 3 * heads)} if slot == 4 else {}


def _heads(node: ir.Node, slot: int, parts: int, kept: int) -> Sizes:
    """Of (batch, heads, length, head), from what the heads are cut from, which may be cut already."""
    dims = dims_of(node, slot) or ()
    if len(dims) == 4:
        return {1: dims[1], 3: dims[3]}
    return {1: kept, 3: _share(dims[2], parts)} if len(dims) == 3 else {}


def _number(node: ir.Node, name: str) -> int:
    """In a damaged file an attribute may be of any type."""
    held = node.attributes.get(name)
    return held.as_int() if held is not None and held.type is ir.AttributeType.INT else 0


def _share(width: int | None, parts: int) -> int | None:
    return width // parts if isinstance(width, int) and parts and not width % parts else None


_TAKEN: Mapping[tuple[str, str], Callable[[ir.Node, int], Sizes]] = {
    ("", "Attention"): _standard,
    ("", "Concat"): _joined,
    (_OWN, "Attention"): _packed,
    (_OWN, "GroupQueryAttention"): _grouped,
    (_OWN, "MultiHeadAttention"): _multi_head,
}
