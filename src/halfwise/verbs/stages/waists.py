"""Cuts a model whose nodes tell no modules: into stages of about equal size, where the fewest tensors pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import onnx_ir as ir

from halfwise.precision.sites import Sites
from halfwise.verbs.stages.cut import Piece, joined, live_nodes, needed_by

__all__ = ["cut_at_waists"]

_MOST = 8  # stages
_LEAST = 4  # computing nodes in one


def cut_at_waists(sites: Sites) -> tuple[Piece, ...]:
    """Stages of nodes in a row, called after the tensor that the last of them makes."""
    live = live_nodes(sites.model)
    nodes = [node for node in sites.model.graph if node in live]
    if not nodes:
        return ()
    ends = [0, *(end + 1 for end in _ends(sites, nodes)), len(nodes)]
    groups = [tuple(nodes[start:end]) for start, end in pairwise(ends)]
    named = [Piece(f"to {group[-1].outputs[0].name}", group) for group in groups[:-1]]
    return joined(sites.model, [*named, Piece("to the outputs", groups[-1])])


def _ends(sites: Sites, nodes: Sequence[ir.Node]) -> list[int]:
    """The last node of each stage but the last: near an equal share of what computes, the narrowest place."""
    done = list(accumulate(int(sites.of[node].compute) for node in nodes))
    passing = _passing(nodes)
    stages = max(min(_MOST, done[-1] // _LEAST), 1)
    share = done[-1] / stages
    ends: list[int] = []
    for stage in range(1, stages):
        away = [abs(each - stage * share) for each in done]
        first = ends[-1] + 1 if ends else 0
        near = [index for index in range(first, len(nodes) - 1) if away[index] < share / 2]
        if near:
            ends.append(min(near, key=lambda index: (passing[index], away[index])))
    return ends


def _passing(nodes: Sequence[ir.Node]) -> list[int]:
    """How many computed tensors are still to be read behind each node."""
    made = {node: index for index, node in enumerate(nodes)}
    last = {
        value: index
        for index, node in enumerate(nodes)
        for value in needed_by(node)
        if (producer := value.producer()) is not None and producer in made
    }
    change = [0] * (len(nodes) + 1)
    for value, index in last.items():
        producer = value.producer()
        assert producer is not None
        change[made[producer]] += 1
        change[index] -= 1
    return list(accumulate(change))
