"""Guards that a format rounds to zero, of sums that another input may leave empty: a graph's node without edges."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.patterns.guards import find_guards
from halfwise.model.patterns.view import View, attribute
from halfwise.precision.sites import Sites

__all__ = ["unguarded"]

_SCATTERS = movers(Move.SCATTER)


def unguarded(sites: Sites) -> Mapping[ir.Value, frozenset[ir.Node]]:
    """What is divided by, or taken the logarithm of, and may be zero there for want of its guard; and the nodes that,
    all in FP32, keep the guard."""
    found: dict[ir.Value, frozenset[ir.Node]] = {}
    graph = sites.model.graph
    if not any(_adds(node) for node in graph):
        return found
    view = View(sites.model)
    for guard in find_guards(view, sites.fmt.smallest_subnormal / 2):
        reader, before = guard.nodes[-1], guard.nodes[-2]
        value = next(each for each in reader.inputs if each is not None and view.origin(each) in before.outputs)
        if reader.graph is graph and _may_be_empty(view, guard.value):
            found[value] = found.get(value, frozenset()) | frozenset(guard.nodes)
    return found


def _may_be_empty(view: View, value: ir.Value) -> bool:
    """Whether it is a sum of values at places that an input names, beginning with zeros."""
    value = behind(value, FROM_FIRST) or value
    node = value.producer()
    return node is not None and _adds(node) and _is_zero(view, node.inputs[0])


def _adds(node: ir.Node) -> bool:
    return node.op_type in _SCATTERS and not node.domain and attribute(node, "reduction", "none") == "add"


def _is_zero(view: View, value: ir.Value | None) -> bool:
    source = behind(value, FROM_FIRST)
    if source is None:
        return False
    node = view.maker(source, "ConstantOfShape")
    if node is None:
        return view.is_scalar(source, 0.0)
    filler = attribute(node, "value", None)
    return filler is None or not filler.numpy().any()
