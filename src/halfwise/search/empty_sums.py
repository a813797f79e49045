"""Guards that a format rounds to zero, of sums that another input may leave zero: those of a graph's node without
edges, and of what an input itself is divided by, as the deviation of a channel that is silent."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.patterns.guards import find_guards
from halfwise.model.patterns.view import View, attribute
from halfwise.precision.sites import Sites

__all__ = ["unguarded"]

_SCATTERS = movers(Move.SCATTER)
_REDUCED = frozenset({"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin"})
_BY_ALL = frozenset({"Add", "Sub", "Mul", "Div"})  # of what all inputs hold
_BY_FIRST = frozenset({"Abs", "Pow", "Sqrt", *FROM_FIRST})


def unguarded(sites: Sites) -> Mapping[ir.Value, frozenset[ir.Node]]:
    """What is divided by, or taken the logarithm of, and may be zero there for want of its guard; and the nodes that,
    all in FP32, keep the guard."""
    found: dict[ir.Value, frozenset[ir.Node]] = {}
    graph = sites.model.graph
    if not any(_adds(node) or node.op_type in _REDUCED for node in graph):
        return found
    view = View(sites.model)
    lost = sites.fmt.smallest_subnormal / 2
    for guard in find_guards(view, lost):
        reader, before = guard.nodes[-1], guard.nodes[-2]
        value = next(each for each in reader.inputs if each is not None and view.origin(each) in before.outputs)
        if reader.graph is graph and (_may_be_empty(view, guard.value) or _of_an_input(view, guard.value)):
            found[value] = found.get(value, frozenset()) | frozenset(guard.lost_in(lost))
    return found


def _may_be_empty(view: View, value: ir.Value) -> bool:
    """Whether it is a sum of values at places that an input names, beginning with zeros."""
    value = behind(value, FROM_FIRST) or value
    node = value.producer()
    return node is not None and _adds(node) and _is_zero(view, node.inputs[0])


def _of_an_input(view: View, value: ir.Value) -> bool:
    """Whether it is reduced from what a float input holds, without a weight: a silent or flat input leaves 0."""
    waiting, seen, reduced = [value], set[ir.Value](), False
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if node is None:
            if not each.is_graph_input() or each.dtype is not ir.DataType.FLOAT:
                return False
        elif node.domain or node.op_type not in _REDUCED | _BY_ALL | _BY_FIRST:
            return False
        else:
            reduced |= node.op_type in _REDUCED
            read = node.inputs if node.op_type in _BY_ALL else node.inputs[:1]
            more = [source for source in read if source is not None and view.scalar(source) is None]
            waiting += [source for source in more if source not in seen]
            seen.update(more)
    return reduced


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
