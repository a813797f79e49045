"""What FP32 nodes cost at least, told by parts of them: one that is needed as a whole keeps one of its nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from halfwise.search.run_counter import Untried
from halfwise.search.search import Search

__all__ = ["costs_as_much"]

Nodes = frozenset[ir.Node]

LEAST_PART = 8  # nodes: a smaller part is likely to be spared


def costs_as_much(search: Search, keep: Nodes, cost: Mapping[ir.Node, float], limit: float) -> bool:
    """Whether any set within the target is seen to cost `limit`, by a run for each part of `keep`; no where that cannot
    be told.

    Each part is in FP16 by itself, and all else in FP32. Where that misses the target, any set without the part does:
    it rounds as much and more. Only roundings that cancel each other may make it tell too much.
    """
    nodes = sorted(keep - search.must, key=lambda node: search.sites.of[node].index)
    everything = frozenset(site.node for site in search.sites.free) - search.sites.forced
    parts = _parts(nodes, cost, limit)
    return bool(parts) and all(_needed(search, everything, part) for part in parts)


def _needed(search: Search, everything: Nodes, part: Nodes) -> bool:
    if not search.judge.affords(Untried.REVERTING):
        return False
    return search.sets.tried(everything - part, search.target_ratio).bound > search.target_ratio


def _parts(nodes: Sequence[ir.Node], cost: Mapping[ir.Node, float], limit: float) -> list[Nodes]:
    """The largest parts, none sharing a node, whose cheapest nodes cost `limit` together; nothing where they are small.

    Nodes that cost less than others are in none. The others are dealt out in turn: neighbours are in different parts.
    """
    best: list[Nodes] = []
    for least in sorted({cost.get(node, 1.0) for node in nodes}, reverse=True):
        dear, count = [node for node in nodes if cost.get(node, 1.0) >= least], math.ceil(limit / least)
        if count and len(dear) // count > max(LEAST_PART - 1, len(best[-1]) if best else 0):
            best = [frozenset(dear[first::count]) for first in range(count)]
    return best
