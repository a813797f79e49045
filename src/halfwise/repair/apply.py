"""Applies repairs to a copy of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.bodies import bodies_of, nodes_in
from halfwise.model.model import Model
from halfwise.model.normal_form import normalise
from halfwise.repair.rule import Ranges, Repair, Rule

__all__ = ["found_by", "repaired"]

Failed = Callable[[str, Exception], None]  # takes the name of a rule that threw


def found_by(rule: Rule, model: Model, ranges: Ranges, failed: Failed) -> Sequence[Repair]:
    """Every place where the rule holds, in the main graph and in branches and loops; nothing where it throws."""
    try:
        return [repair for each in (model, *model.bodies) for repair in rule.find(each, ranges) if _is_in(each, repair)]
    except Exception as error:
        failed(rule.name, error)
        return ()


def _is_in(model: Model, repair: Repair) -> bool:
    """Whether its first node is in the graph that was looked at: some rules read all of them."""
    return model.node_by_name[repair.nodes[0]].graph is model.graph


def repaired(
    model: Model, repairs: Iterable[tuple[Rule, Repair]], failed: Failed | None = None
) -> tuple[Model, tuple[Repair, ...]]:
    """The model with the repairs made, and those that could be made; the given model stays as it is.

    With `failed`, a repair that throws is left out and told; without, it ends the call.
    """
    wanted = list(repairs)
    while True:
        copy, done = model.ir.clone(), []
        rule: Rule | None = None
        try:
            by_name = {node.name: node for node in nodes_in(copy.graph)}
            for rule, repair in wanted:
                near = _with_makers(by_name[name] for name in repair.nodes if name in by_name)
                if rule.apply(copy, repair):
                    done.append(repair)
                    _remove_unread(copy, near)  # else they are readers still, and the next repair asks who reads
            rule = None
            RemoveUnusedNodesPass()(copy)
            normalise(copy)
        except Exception as error:
            if failed is None or not wanted:
                raise
            culprit = rule or _breaks(model, wanted)
            failed(culprit.name, error)
            wanted = [entry for entry in wanted if entry[0] is not culprit]  # the copy is half rewritten: begin anew
        else:
            return replace(model, ir=copy), tuple(done)


def _with_makers(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """These and what makes their inputs: whatever a repair of them may leave unread comes before one of them."""
    found = list(nodes)
    return [*found, *(maker for node in found for maker in node.predecessors())]


def _remove_unread(model: ir.Model, nodes: Iterable[ir.Node]) -> None:
    """Those of the nodes that nobody reads any more, and what only they read."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.graph is None or any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue
        if any(True for _ in bodies_of(node)):
            RemoveUnusedNodesPass()(model)  # of what its bodies read, too
            continue
        waiting += node.predecessors()
        node.graph.remove(node, safe=True)


def _breaks(model: Model, wanted: Sequence[tuple[Rule, Repair]]) -> Rule:
    """The first rule after which the model is no longer one that can be brought into normal form."""
    for count, (rule, _) in enumerate(wanted, 1):
        try:
            repaired(model, wanted[:count])
        except Exception:
            return rule
    return wanted[-1][0]
