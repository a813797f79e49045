"""Where a repair stays in FP32 itself: the FP32 nodes that it leaves over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.precision.sites import Sites
from halfwise.repair import Repair

__all__ = ["ends_of", "kept_before"]


def ends_of(repairs: Iterable[Repair], given: Model, sites: Sites) -> frozenset[ir.Node]:
    """What repairs added in front of outputs of a graph, and by channel behind inputs: it makes or reads what the
    narrow format does not hold. And the nodes whose bodies hand that out."""
    edits = [repair.parameters for repair in repairs if {"ends", "entries"} & repair.parameters.keys()]
    read = {edit["input"] for each in edits for edit in each.get("entries", ()) if "powers" in edit}
    ends = any("ends" in each for each in edits)
    new = [site.node for site in sites.free if site.name not in given.node_by_name] if ends or read else []
    made = [node for node in new if ends and node.outputs[0].is_graph_output()]
    return frozenset([*made, *_holders(made, sites), *(node for node in new if _reads(node, read))])


def _holders(nodes: Iterable[ir.Node], sites: Sites) -> Iterator[ir.Node]:
    for node in nodes:
        while isinstance(node.graph, ir.Graph) and node.graph in sites.holder:
            node = sites.holder[node.graph]
            yield node


def _reads(node: ir.Node, inputs: Collection[str]) -> bool:
    value = node.inputs[0]
    return value is not None and value.is_graph_input() and value.name in inputs


def kept_before(keep: frozenset[ir.Node], given: Model, sites: Sites) -> frozenset[ir.Node]:
    """Of FP32 nodes those in front of what a repair added to the `given` model, and that; empty where it saves none."""
    new = {
        site.node
        for site in sites.free
        if site.name not in given.node_by_name and not keep.isdisjoint(site.node.predecessors())
    }
    behind, waiting = set[ir.Node](), list(new)
    while waiting:
        fresh = [node for node in waiting.pop().successors() if node not in behind]
        behind.update(fresh)
        waiting += fresh
    return frozenset((keep - behind) | new) if len(keep & behind) > len(new) else frozenset()
