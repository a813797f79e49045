"""HW402: a norm written out in small operators becomes the one operator, or is scaled so that its square fits.

Precondition: (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon), in any spelling, with the
mean and the variance over the same axes; scale and bias, if any, are constants.

Proof. LayerNormalization(x, g, b) is by its definition (x - mean) / sqrt(variance + epsilon) * g + b over the last
axes, InstanceNormalization the same over all axes behind the channels, GroupNormalization that of channels reshaped
into groups, RMSNormalization the first without the mean. Where the variance stands multiplied with a constant f
(n / (n - 1) for the unbiased one), 1 / sqrt(f v + e) = 1 / sqrt(f) * 1 / sqrt(v + e / f). Where no operator is to be
had - another axis, an open dimension, a guard of another kind, an opset that cannot be raised - see `norm_scaling`.

What it buys: one node, whose squares and sums never exist in FP16; compilers take its statistics in FP32. What is left
alone: a scale that is computed, two epsilons, a variance limited from above, a count that nothing proves, and norms
that the model as given does not compute in FP32. The FP32 answer changes in the order of summation only, by about 1e-7;
where a mean exceeds the deviation a thousand times, no spelling keeps more than four digits, and where the variance is
E[x^2] - E[x]^2 the original loses digits sooner than the operator does: so the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.emulation.profiles.norm_fusions import norms_of
from halfwise.model.model import Model
from halfwise.model.opset import can_raise, raise_opset
from halfwise.model.patterns.norms import find_norms
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit
from halfwise.repair.norm_place import NormPlace, as_parameter, effective, norm_place
from halfwise.repair.norm_scaling import needs_scaling, shift_for, write_scaled
from halfwise.repair.place import found_again, value_named
from halfwise.repair.rule import Ranges, Repair

__all__ = ["NormOperator"]

_SINCE = {"LayerNormalization": 17, "InstanceNormalization": 6, "RMSNormalization": 23, "GroupNormalization": 21}
_OLDEST = 8  # before it, operands had to be broadcast by an attribute
_CENTRED = "(x - mean) / sqrt(mean((x - mean)^2) + e) * g + b"
_SCALED = "c / sqrt(mean(c^2) + e)"
_ALGEBRA = {
    "LayerNormalization": (_CENTRED, "LayerNormalization(x, g, b)"),
    "InstanceNormalization": (_CENTRED, "InstanceNormalization(x, g, b)"),
    "GroupNormalization": (_CENTRED, "GroupNormalization(x, g, b)"),
    "RMSNormalization": ("x / sqrt(mean(x^2) + e) * g", "RMSNormalization(x, g)"),
    "shifted": (_SCALED, "c' / sqrt(mean(c'^2) + e / 4^k) with c' = c / 2^k"),
    "by rows": (_SCALED, "c' / sqrt(mean(c'^2) + e / s^2) with c' = c / s, s = max(max |c|, sqrt(e))"),
}


@dataclass(frozen=True)
class NormOperator:
    """`opset` is the highest that the rule may raise a model to: RMSNormalization takes 23, which only the newest
    compilers read. `unread` are operators that the target does not know, whatever the opset. `fused`: the target
    makes one kernel with FP32 statistics of norms in single operators, which a norm that is scaled would not become."""

    opset: int = 17
    unread: frozenset[str] = frozenset()
    fused: bool = False
    id: str = "HW402"
    name: str = "norm-operator"
    bound: float = 1e-3
    lossy: bool = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        view = View(model)
        if model.opset() < _OLDEST:
            return ()
        places = (norm_place(view, pattern) for pattern in find_norms(view))
        kept = {node for norm in norms_of(model) for node in norm.nodes} if self.fused else set()
        repairs = (
            self._repair(place, ranges, scaled=kept.isdisjoint(place.nodes)) for place in places if place is not None
        )
        return tuple(repair for repair in repairs if repair is not None)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        told = repair.parameters
        nodes = found_again(model, repair.nodes, told["wiring"])
        if nodes is None or not raise_opset(model, _SINCE.get(told["way"], 0)):
            return False
        makers = [value.producer() for node in nodes for value in node.inputs if value is not None]
        x = value_named([*nodes, *(node for node in makers if node is not None)], told["input"])
        output = value_named(nodes, told["output"])
        last = output.producer() if output is not None else None
        assert x is not None and output is not None and last is not None
        operands = {word: value_named(nodes, told[word]) for word in ("scale", "bias", "shape")}
        edit = GraphEdit(model, last, "normalised")
        if told["way"] in _SINCE:
            y = _operator(edit, x, told, operands)
        else:
            y = write_scaled(edit, model.opset_imports[""], x, told)
        if told["shape"] is not None:
            y = edit.op("Reshape", [y, operands["shape"]], {"allowzero": 1} if told["allowzero"] else {})
        for word, op in (("scale", "Mul"), ("bias", "Add")):
            if told[word] is not None and word not in told["fold"]:
                y = edit.op(op, [y, operands[word]])
        edit.replace(output, y)
        return True

    def _repair(self, place: NormPlace, ranges: Ranges, *, scaled: bool) -> Repair | None:
        way = next((way for way in place.operators() if self._available(way["way"], place.model)), None)
        if way is None:
            if not scaled or place.batch_normalization is not None or not needs_scaling(place.square, ranges):
                return None
            shift = shift_for(place.square, place.epsilon, place.guard, ranges)
            way = {"way": "by rows" if shift is None else "shifted", "shift": shift}
        return Repair.equation(self.id, place.pattern.nodes, _ALGEBRA[way["way"]], {**place.parameters(), **way})

    def _available(self, op: str, model: Model) -> bool:
        since = _SINCE[op]
        if op in self.unread:
            return False
        return model.opset() >= since or (since <= self.opset and can_raise(model.ir, since))


def _operator(
    edit: GraphEdit, x: ir.Value, told: Mapping[str, Any], operands: Mapping[str, ir.Value | None]
) -> ir.Value:
    """The operator, with what of scale and bias it can take."""
    op = told["way"]
    inputs = [x, _parameter(edit, told, operands, "scale")]
    if "bias" in told["fold"] or op in ("InstanceNormalization", "GroupNormalization"):  # which want one
        inputs.append(_parameter(edit, told, operands, "bias"))
    attributes: dict[str, Any] = {"epsilon": told["epsilon"] / told["factor"]}
    if op in ("LayerNormalization", "RMSNormalization"):
        attributes["axis"] = -len(told["dims"])
    if op == "GroupNormalization":
        attributes["num_groups"] = told["groups"]
    return edit.op(op, inputs, attributes)


def _parameter(
    edit: GraphEdit, told: Mapping[str, Any], operands: Mapping[str, ir.Value | None], word: str
) -> ir.Value:
    operand, dims = operands[word], told["dims"]
    rest = 1.0 / math.sqrt(told["factor"]) if word == "scale" else 1.0
    if word not in told["fold"] or operand is None:
        return edit.constant(np.full(dims, rest if word == "scale" else 0.0))
    if dims is None:
        return operand  # of a batch normalisation: it has the right shape
    array = effective(operand)
    assert array is not None
    if told["way"] in ("InstanceNormalization", "GroupNormalization"):
        values: NDArray[Any] | None = np.ascontiguousarray(
            np.broadcast_to(array.reshape(-1), dims)
        )  # one number a channel
    else:
        rank = max(array.ndim, len(dims))
        values = as_parameter(array, rank, range(rank - len(dims), rank), dims)
    assert values is not None
    if operand.is_initializer() and rest == 1.0 and array.shape == values.shape:
        return operand
    return edit.constant(values * np.float32(rest))
