"""HW406: attention divides its queries instead of its scores, and a softmax written out by hand loses its maximum.

Scale. Precondition: the product of two computed tensors is, but for changes of shape, read by one multiplication with
a number f below 1 (or one division) alone, on its way to a softmax and the product with the values. With f = 2^-n r and
r between 1 and 2, ((2^-n q) @ k) * r = (q @ k) * f. Proof: a power of two leaves a product's roundings as they are, and
f / 2^-n is exact: FP32 answers are the same bit by bit as long as nothing leaves its normal range. It buys scores that
are never larger than they are in the softmax. Where n is large, keys take their half of it.

Softmax. Precondition: exp(x) over its own sum, which keeps its dimensions, perhaps guarded by a number e, with no
maximum subtracted. Proof: exp(x) / sum(exp(x)) does not change when a number m of each row is subtracted from x;
without a guard it is the operator. With one,
exp(x) / (sum(exp(x)) + e) = exp(x - m) / (sum(exp(x - m)) + exp(log e - m)) with m = max(max x, log e),
where no exponential exceeds 1 and the sum or the guard is at least 1; the same with max in place of +. It buys
exponentials that neither overflow nor vanish together. FP32 answers differ by the rounding of x - m, by 5e-6 at most
while exp(x) is finite.

Left alone: a factor that is computed, a mask added before the scale, scores that something else reads, exp(x) * mask
over its sum, sums that drop their dimensions, and what fits into FP16 as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.moving import Move, movers
from halfwise.model.patterns.attention import find_attentions
from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import guarded
from halfwise.model.patterns.softmax import find_softmaxes
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.graph_edit import GraphEdit
from halfwise.repair.place import found_again, value_named, wiring
from halfwise.repair.rule import Ranges, Repair

__all__ = ["AttentionScale"]

_FITS = 2.0**14  # scores and sums up to here leave room for inputs not seen
_SEEN = 2.0**-10  # sums of exponentials from here on keep their digits
_QUERY_ALONE = 4  # up to this power of two the queries take all of it
_MOVED = movers(Move.SHAPE | Move.ORDER)
_ANY_AXIS = 13  # the opset from which Softmax does not flatten


@dataclass(frozen=True)
class AttentionScale:
    id: str = "HW406"
    name: str = "attention-scale"
    bound: float = 1e-5
    lossy: bool = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        view = View(model)
        return (*self._scales(view, ranges), *self._softmaxes(view, ranges))

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        told = repair.parameters
        nodes = found_again(model, repair.nodes, told["wiring"])
        if nodes is None:
            return False
        by_name = {node.name or "": node for node in nodes}
        if told["way"] == "scale":
            product, scale = by_name[told["product"]], by_name[told["scale"]]
            _divide_first(model, product, scale, told["slot"], told["shift"], told["rest"])
            return True
        x, output = value_named(nodes, told["input"]), value_named(nodes, told["output"])
        last = output.producer() if output is not None else None
        assert x is not None and output is not None and last is not None
        edit = GraphEdit(model, last, "stable")
        operator = told["way"] == "softmax"
        y = edit.op("Softmax", [x], {"axis": told["axes"][0]}) if operator else _stable(edit, model, x, told)
        edit.replace(output, y)
        return True

    def _scales(self, view: View, ranges: Ranges) -> Iterator[Repair]:
        seen: set[str] = set()
        for pattern in find_attentions(view):
            scores = pattern.details["scores"]
            if scores in seen or ranges.high.get(scores, math.inf) <= _FITS:
                continue
            seen.add(scores)
            found = _way_to_scale(view, pattern)
            if found is None:
                continue
            product, between, scale, slot, number = found
            factor = number if scale.op_type == "Mul" else 1.0 / number
            shift = math.ceil(-math.log2(factor))
            if shift < 1:
                continue
            nodes = (product, *between, scale)
            parameters = {
                "way": "scale",
                "product": product.name,
                "scale": scale.name,
                "slot": slot,
                "shift": shift,
                "rest": number * 2.0 ** (shift if scale.op_type == "Mul" else -shift),
                "wiring": wiring(nodes),
            }
            sides = f"(q @ k) * {factor:.6g}", f"((q / 2^{shift}) @ k) * {factor * 2.0**shift:.6g}"
            yield Repair.equation(self.id, tuple(node.name or "" for node in nodes), sides, parameters)

    def _softmaxes(self, view: View, ranges: Ranges) -> Iterator[Repair]:
        for pattern in find_softmaxes(view):
            told = _unstable(view, pattern, ranges)
            if told is not None:
                nodes = [view.model.node_by_name[name] for name in pattern.nodes]
                sides = "exp(x) / sum(exp(x))", "softmax(x)"
                if told["way"] == "shifted":
                    sides = "exp(x) / (sum(exp(x)) + e)", "exp(x - m) / (sum(exp(x - m)) + e exp(-m)), m = max x"
                yield Repair.equation(self.id, pattern.nodes, sides, {**told, "wiring": wiring(nodes)})


# -- the scale --------------------------------------------------------------------------------------------------------


def _way_to_scale(view: View, pattern: Pattern) -> tuple[ir.Node, tuple[ir.Node, ...], ir.Node, int, float] | None:
    """The product, what changes its shape, the node that multiplies or divides it, and by what, in which slot."""
    node_by_name = view.model.node_by_name
    product = next(
        node for name in pattern.nodes if (node := node_by_name[name]).outputs[0].name == pattern.details["scores"]
    )
    between: list[ir.Node] = []
    value = product.outputs[0]
    while True:
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output() or value.dtype != ir.DataType.FLOAT:
            return None
        node, slot = uses[0]
        if node.domain or node.graph is not product.graph:
            return None
        if node.op_type in _MOVED and slot == 0:
            between.append(node)
            value = node.outputs[0]
            continue
        found = view.with_number(node) if node.op_type in ("Mul", "Div") else None
        number = node.inputs[1 - slot] if found is not None else None
        if found is None or found[1] <= 0.0 or (node.op_type == "Div" and slot != 0):
            return None
        if number is None or number.shape is None or not number.shape.is_static():
            return None
        return product, tuple(between), node, 1 - slot, found[1]


def _divide_first(model: ir.Model, product: ir.Node, scale: ir.Node, slot: int, shift: int, rest: float) -> None:
    keys = shift // 2 if shift > _QUERY_ALONE else 0
    for place, power in enumerate((shift - keys, keys)):
        if power:
            edit = GraphEdit(model, product, "scaled")
            product.replace_input_with(place, edit.op("Mul", [product.inputs[place], edit.constant(2.0**-power)]))
    kept, number = scale.inputs[1 - slot], scale.inputs[slot]
    assert kept is not None and number is not None and number.shape is not None
    edit = GraphEdit(model, scale, "rest")
    if rest == 1.0 and kept.shape is not None and len(number.shape) <= len(kept.shape):
        edit.replace(scale.outputs[0], kept)
    else:
        scale.replace_input_with(slot, edit.constant(np.full(number.shape.numpy(), rest)))


# -- the softmax ------------------------------------------------------------------------------------------------------


def _unstable(view: View, pattern: Pattern, ranges: Ranges) -> dict[str, Any] | None:
    """What is to be written; None where there is nothing to repair, or where something is not sure."""
    details, nodes = pattern.details, [view.model.node_by_name[name] for name in pattern.nodes]
    reduction = next(node for node in nodes if node.op_type == "ReduceSum")
    exponential = next(node for node in nodes if node.op_type == "Exp")
    total = reduction.outputs[0]
    if details["stable"] or not details["axes"] or details["input"] is None or not attribute(reduction, "keepdims", 1):
        return None
    if any(node.outputs[0].dtype != ir.DataType.FLOAT or node.graph is not nodes[0].graph for node in nodes):
        return None
    if ranges.high.get(total.name or "", math.inf) <= _FITS and ranges.low.get(total.name or "", 0.0) >= _SEEN:
        return None
    guards = [node for node in nodes if node.op_type in ("Add", "Max", "Clip", "Relu")]
    if len(guards) > 1 or any(node.op_type in ("Clip", "Relu") for node in guards):
        return None
    epsilon = guarded(view, guards[0].outputs[0]).epsilon if guards else 0.0
    axes, rank = details["axes"], view.rank(exponential.inputs[0])
    told = {"input": details["input"], "output": details["output"], "axes": list(axes), "way": "shifted"}
    last = axes[0] == -1 or (rank is not None and axes[0] % rank == rank - 1)
    if epsilon == 0.0 and len(axes) == 1 and (last or view.model.opset() >= _ANY_AXIS):
        return {**told, "way": "softmax"}
    return {**told, "epsilon": epsilon, "guard": guards[0].op_type if guards else None}


def _stable(edit: GraphEdit, model: ir.Model, x: ir.Value, told: Any) -> ir.Value:
    opset = model.opset_imports[""]
    largest = _reduced(edit, "ReduceMax", x, told["axes"], as_input=opset >= 18)
    if told["epsilon"]:
        log = edit.constant(math.log(told["epsilon"]))
        largest = edit.op("Max", [largest, log])
    power = edit.op("Exp", [edit.op("Sub", [x, largest])])
    total = _reduced(edit, "ReduceSum", power, told["axes"], as_input=opset >= 13)
    if told["epsilon"]:
        total = edit.op(told["guard"], [total, edit.op("Exp", [edit.op("Sub", [log, largest])])])
    return edit.op("Div", [power, total])


def _reduced(edit: GraphEdit, op: str, x: ir.Value, axes: Sequence[int], *, as_input: bool) -> ir.Value:
    if as_input:
        return edit.op(op, [x, edit.axes(axes)], {"keepdims": 1})
    return edit.op(op, [x], {"axes": list(axes), "keepdims": 1})
