"""The model as the page draws it: nodes with the precision they run in, edges with the casts on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.model.bodies import bodies_of
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Site
from halfwise.report.html.names import Names
from halfwise.verbs.fix.result import FixResult

__all__ = ["STATES", "State", "graph_data", "state_of"]


@dataclass(frozen=True)
class State:
    """How a node runs. The letter is on every node, so that the colour is never the only sign."""

    key: str
    letter: str
    title: str
    meaning: str


STATES = (
    State("fp16", "16", "FP16", "computes in FP16"),
    State("fp32", "32", "kept in FP32", "kept out of FP16 by the plan"),
    State("bf16", "B", "kept in BF16", "kept out of FP16 by the plan, in BF16"),
    State("repaired", "R", "repaired", "in FP16, made or changed by a repair"),
    State("pinned", "P", "cannot be FP16", "has FP32 tensors that may not narrow in any plan"),
    State("other", "i", "no floats", "integers, shapes, text: no precision to choose"),
)
_INDEX = {state.key: index for index, state in enumerate(STATES)}

# What an edge does to the values on it.
_PLAIN, _NARROWS, _WIDENS, _HOLDS = range(4)


def state_of(site: Site, planned: Mapping[str, PlannedNode], repaired: frozenset[str] = frozenset()) -> str:
    if site.name in planned and planned[site.name].format is not Format.FP16:
        return planned[site.name].format.value
    if site.free:
        return "repaired" if site.name in repaired else "fp16"
    return "pinned" if site.has_fp32 else "other"


def graph_data(result: FixResult, names: Names, repaired: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Nodes in execution order as [name, op, state], edges as [from, to, kind, tensor]; both indices are of nodes."""
    planned = {node.name: node for node in result.plan.nodes}
    sites = result.sites
    assignment = _assignment(result, planned)
    order = {site.node: index for index, site in enumerate(sites.all)}
    holders = _holders(site.node for site in sites.all)
    operators: dict[str, int] = {}
    nodes = [
        [
            names(site.name),
            operators.setdefault(_operator(site.node), len(operators)),
            _INDEX[state_of(site, planned, repaired)],
        ]
        for site in sites.all
    ]
    edges: list[list[int]] = []
    for site in sites.all:
        before = len(edges)
        for slot, value in enumerate(site.node.inputs):
            if value is None or value.producer() not in order or value in site.node.inputs[:slot]:
                continue
            producer = value.producer()
            assert producer is not None
            kind = _cast(assignment, site.node, slot, value)
            edges.append([order[producer], order[site.node], kind, names(value.name or "")])
        if site.nested and len(edges) == before and (holder := holders.get(site.node.graph)) is not None:
            edges.append([order[holder], order[site.node], _HOLDS, -1])
    return {"nodes": nodes, "ops": [names(op) for op in operators], "edges": edges}


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _holders(nodes: Iterable[ir.Node]) -> dict[ir.Graph | ir.Function | None, ir.Node]:
    """The node that holds each subgraph."""
    found: dict[ir.Graph | ir.Function | None, ir.Node] = {}
    for node in nodes:
        found.update((graph, node) for graph in bodies_of(node))
    return found


def _assignment(result: FixResult, planned: Mapping[str, PlannedNode]) -> Assignment:
    narrow = result.sites.fmt
    formats = {site.node: planned[site.name].format if site.name in planned else narrow for site in result.sites.free}
    kept = {node: fmt for node, fmt in formats.items() if fmt is not Format.FP32}
    return Assignment(result.sites, kept, result.plan.io_types)


def _cast(assignment: Assignment, reader: ir.Node, slot: int, value: ir.Value) -> int:
    have, want = assignment.stored(value), assignment.read(reader, slot)
    if have is want or have is None or want is None:
        return _PLAIN
    return _WIDENS if want is Format.FP32 else _NARROWS
