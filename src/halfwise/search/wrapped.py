"""The FP32 nodes that repairs leave over: where one stays in FP32 itself, and what they do not mend."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import Model
from halfwise.precision.sites import Sites
from halfwise.repair import Repair
from halfwise.search.attempt import Attempt, RepairSet
from halfwise.search.context import EvaluationContext
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["at_ends", "ends_of", "kept_apart", "kept_before", "overflows"]


def at_ends(repair: Repair) -> bool:
    """Whether it puts factors behind inputs or in front of outputs of a graph."""
    return not repair.parameters.keys().isdisjoint(("ends", "entries"))


def ends_of(repairs: Iterable[Repair], given: Model, sites: Sites) -> frozenset[ir.Node]:
    """What repairs added in front of outputs of a graph, and behind inputs by channel or as these are too large: it
    makes or reads what the narrow format does not hold. And the nodes whose bodies hand that out."""
    edits = [repair.parameters for repair in repairs if at_ends(repair)]
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


def overflows(base: Attempt, context: EvaluationContext, feeds: Sequence[Feed]) -> bool:
    """Whether what stays in FP32 reads or makes what the narrow format does not hold."""
    sites = base.search.sites
    return bool(_too_large(base.solution.keep, context.seen(sites, feeds), sites.fmt))


def kept_apart(keep: frozenset[ir.Node], repairs: RepairSet, seen: TensorStatistics, fmt: Format) -> frozenset[ir.Node]:
    """Of FP32 nodes those that these repairs do not touch, and those that still read or make what is too large for the
    format; `seen` are the tensors of the repaired model."""
    touched = {name for _, repair in repairs for name in repair.nodes}
    return _too_large(keep, seen, fmt) | {node for node in keep if node.name not in touched}


def _too_large(nodes: Iterable[ir.Node], seen: TensorStatistics, fmt: Format) -> frozenset[ir.Node]:
    return frozenset(node for node in nodes if seen.over((*node.inputs, *node.outputs))[0] > fmt.max)
