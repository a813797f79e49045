"""Guards that a format rounds to zero, of what another input may leave zero: the sums of a graph's node without edges,
and what an input itself is divided by or taken the logarithm of, as the deviation or the power of a silent channel."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.operator_slots import SHAPE_READERS
from halfwise.model.patterns.guards import find_guards
from halfwise.model.patterns.view import View, attribute
from halfwise.precision.sites import Sites

__all__ = ["unguarded"]

_SCATTERS = movers(Move.SCATTER)
_OF_ALL = frozenset({"Add", "Sub", "Concat"})
_OF_PRODUCT = frozenset({"Mul", "MatMul", "Conv", "Gemm"})  # a weight leaves zero what is zero, a bias does not
_REDUCED = frozenset(f"Reduce{how}" for how in ("L1", "L2", "Max", "Mean", "Min", "Sum", "SumSquare"))
_OF_FIRST = FROM_FIRST | _REDUCED | {"Abs", "Cast", "Div", "Pad", "Pow", "Relu", "Sqrt"}
_PASSED = _OF_ALL | _OF_PRODUCT | _OF_FIRST
_SIGNALS = frozenset(ir.DataType[name] for name in "FLOAT DOUBLE INT8 UINT8 INT16 UINT16".split())  # wider: ids, masks


def unguarded(sites: Sites) -> Mapping[ir.Value, frozenset[ir.Node]]:
    """What is divided by, or taken the logarithm of, and may be zero there for want of its guard; and the nodes that,
    all in FP32, keep the guard."""
    found: dict[ir.Value, frozenset[ir.Node]] = {}
    graph = sites.model.graph
    view = View(sites.model)
    lost = sites.fmt.smallest_subnormal / 2
    for guard in find_guards(view, lost):
        reader, before = guard.nodes[-1], guard.nodes[-2]
        value = next(each for each in reader.inputs if each is not None and view.origin(each) in before.outputs)
        if reader.graph is graph and (_may_be_empty(view, guard.value) or _of_an_input(view, guard.value)):
            found[value] = found.get(value, frozenset()) | frozenset(guard.lost_in(lost))
    return found


def _may_be_empty(view: View, value: ir.Value) -> bool:
    """Whether it holds values, or sums of them, at places that an input names, and zeros elsewhere."""
    node = (behind(value, FROM_FIRST) or value).producer()
    if node is not None and node.op_type == "Add" and not node.domain:  # to zeros, as an exporter writes it
        terms = [term for term in node.inputs if not _is_zero(view, term)]
        node = terms[0].producer() if len(terms) == 1 and terms[0] is not None else None
    if node is None or node.op_type not in _SCATTERS or node.domain:
        return False
    return _is_zero(view, node.inputs[0])


def _of_an_input(view: View, value: ir.Value) -> bool:
    """Whether it is 0 where an input is, or where that is flat: a silent channel, a signal that hangs."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if node is None:
            if not each.is_graph_input() or each.dtype not in _SIGNALS:
                return False
            continue
        if node.domain or node.op_type not in _PASSED or not _pads_alike(view, node):
            return False
        read = [source for source in node.inputs if source is not None]
        if node.op_type in _OF_PRODUCT:
            if len(read) > 2:
                return False
            read = [source for source in read if not _of_shapes(source)]
        elif node.op_type not in _OF_ALL:
            read = read[:1]
        waiting += [source for source in read if source not in seen]
        seen.update(read)
    return True


def _pads_alike(view: View, node: ir.Node) -> bool:
    """Whether zeros alone are around zeros; true of all that pads nothing."""
    if node.op_type != "Pad" or attribute(node, "mode", "constant") not in (b"constant", "constant"):
        return True
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    return attribute(node, "value", 0.0) == 0.0 if filled is None else view.is_scalar(filled, 0.0)


def _of_shapes(value: ir.Value) -> bool:
    """Whether it is the same for all values of the inputs: a weight, a number of elements."""
    waiting, seen = [value], {value}
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if each.is_graph_input() and not each.is_initializer():
            return False
        if node is not None and node.op_type not in SHAPE_READERS:
            fresh = {source for source in node.inputs if source is not None} - seen
            seen |= fresh
            waiting += fresh
    return True


def _is_zero(view: View, value: ir.Value | None) -> bool:
    source = behind(value, FROM_FIRST)
    if source is None:
        return False
    node = view.maker(source, "ConstantOfShape")
    if node is None:
        return view.is_scalar(source, 0.0)
    filler = attribute(node, "value", None)
    return filler is None or not filler.numpy().any()
