"""HW403: stand-ins for minus infinity become numbers that FP16 holds, also added to scores and to one another.

Precondition: a constant of one large number (1e4 or more) and small ones goes to a softmax, and nowhere else, through
moves, choices (Where), products with zeros and ones or with a number, and sums; what multiplies it is known to be
zeros and ones by its making or by all that was seen of it. Its sign at the softmax is minus.

Proof. In FP32, exp(s + n C - max) is 0 for every element that is masked n times, if another of its row is masked less
often, whatever C is, as long as it is much larger than the scores. So C becomes a power of two whose largest multiple
FP16 holds. Where no element of a row is masked less often than another, s + n C = n C in FP32 if C is so large that it
swallows the scores, and the row is uniform; a smaller number would not swallow them, so s + m becomes
Where(m < T, 0, s) + m, with T half of a mask: masked elements are n C again, all others are as they were. Where C
swallows all of the scores but multiples of its own spacing q (64 for -1e9), 0 is q Round(s / q) there. A sum of two
masks becomes Where(m < T, m, s + m). Wherever it can, the choice stands in front of the sum: behind it TensorRT-RTX 1.7
may crash on attention in FP16 whose mask joins a triangle and padding.

What it buys: -1e9 becomes -65504 in FP16, minus infinity once anything negative is added, and NaN in a row that is
masked throughout. What is left alone: infinities, constants that are read by anything else, masks that meet masks of
another size, factors that nothing is known of, LogSoftmax and Attention. Where C is below 2^24 it does not swallow the
scores; then a row that is masked throughout agrees to the digits that the original had left of its scores, no further.
Where sums of C leave FP32 itself, a row of nothing else is NaN in the original and uniform here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit
from halfwise.repair.mask_flow import LARGE, MaskGroup, mask_groups
from halfwise.repair.place import found_again, wiring
from halfwise.repair.rule import Ranges, Repair

__all__ = ["Masks"]

_LARGEST = 61440.0  # of a mask; up to 65504 there is room for the scores
_MUST_DIFFER = 1024.0  # a mask must be so much below the scores
_SWALLOWS = 2.0**24  # from here on FP32 loses what is added
_FP32_BITS = 23
_FP16_SPACINGS = 1024.0  # a power of two so many times a spacing: FP16 holds its neighbours at that distance
_OLDEST = 11  # Round


@dataclass(frozen=True)
class Masks:
    id: str = "HW403"
    name: str = "masks"
    bound: float = 0.0
    lossy: bool = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if model.opset() < _OLDEST:
            return ()
        repairs = (self._repair(group) for group in mask_groups(View(model), ranges))
        return tuple(repair for repair in repairs if repair is not None)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        told = repair.parameters
        nodes = found_again(model, repair.nodes, told["wiring"])
        if nodes is None:
            return False
        by_name = {node.name: node for node in nodes}
        for name, slot in told["sources"]:
            _exchange(model, by_name[name], slot, told["unit"])
        swallowed: dict[tuple[ir.Value, float], ir.Value] = {}
        for name, slots, thresholds in told["meetings"]:
            _swallow(model, by_name[name], slots, thresholds, told["spacing"], swallowed)
        return True

    def _repair(self, group: MaskGroup) -> Repair | None:
        number = group.number
        if number * group.deepest <= _LARGEST or not (group.meetings or group.deepest > 1.0):
            return None  # it fits as it is, or as FP16's largest number
        spacing = 2.0 ** (math.floor(math.log2(number)) - _FP32_BITS)
        swallows = number >= _SWALLOWS
        # What is left of the scores: nothing, if half a spacing is more than they ever were.
        rounds = (
            swallows
            and group.least == 1.0
            and spacing < _MUST_DIFFER
            and not (group.all_known and 4.0 * group.scores < spacing)
        )
        unit = 2.0 ** math.floor(math.log2(_LARGEST / group.deepest))
        unit = min(unit, spacing * _FP16_SPACINGS) if rounds else unit
        if unit * group.least < max(_MUST_DIFFER, 4.0 * group.scores):
            return None
        meetings = [
            [meeting.node.name, list(meeting.slots), [-unit * least / 2 for least in meeting.least]]
            for meeting in group.meetings
            if swallows
        ]
        nodes = tuple(dict.fromkeys(group.nodes))
        parameters = {
            "unit": unit,
            "sources": [[source.node.name, source.slot] for source in group.sources],
            "meetings": meetings,
            "spacing": spacing if rounds else None,
            "wiring": wiring(nodes),
        }
        was, becomes = f"with m = {-number:.3g} or 0", f"with m = {-unit:g} or 0"
        sides = f"softmax(s + m) {was}", f"softmax(s + m) {becomes}"
        if meetings:
            sides = f"s + m {was}", f"Where(m < T, 0, s) + m {becomes} in a softmax"
        return Repair.equation(self.id, tuple(node.name or "" for node in nodes), sides, parameters)


def _exchange(model: ir.Model, node: ir.Node, slot: int, unit: float) -> None:
    """Give a node another constant; one that others share stays as it is."""
    edit = GraphEdit(model, node, "mask")
    if slot < 0:
        sign = math.copysign(1.0, float(node.attributes["value"].as_tensor().numpy().reshape(-1)[0]))
        tensor = ir.tensor(np.array([sign * unit], dtype=np.float32))
        filled = edit.op("ConstantOfShape", node.inputs, {"value": tensor})
        edit.replace(node.outputs[0], filled)
        return
    value = node.inputs[slot]
    assert value is not None and value.const_value is not None
    array = np.asarray(value.const_value.numpy())
    node.replace_input_with(slot, edit.constant(np.where(np.abs(array) >= LARGE, np.sign(array) * unit, array)))


def _swallow(
    model: ir.Model,
    node: ir.Node,
    slots: Sequence[int],
    thresholds: Sequence[float],
    spacing: float | None,
    made: dict[tuple[ir.Value, float], ir.Value],
) -> None:
    """Let masked elements of a sum be the mask alone."""
    ahead = GraphEdit(model, node, "level")
    levels = []
    for slot, threshold in zip(slots, thresholds, strict=True):
        level = node.inputs[slot]
        assert level is not None
        if node.op_type == "Sub" and slot:
            level = _float(ahead.op("Neg", [level]))
        if len(slots) > 1:  # a masked sum: what is not masked of it is no level
            level = _float(ahead.op("Where", [_below(ahead, level, threshold, made), level, ahead.constant(0.0)]))
        levels.append(level)
    level = levels[0] if len(levels) == 1 else _float(ahead.op("Add", levels))
    below = _below(ahead, level, max(thresholds), made)
    edit = GraphEdit(model, node, "masked")
    if len(slots) == 1:
        other = node.inputs[1 - slots[0]]
        assert other is not None
        left = edit.constant(0.0) if spacing is None else _multiples(ahead, other, spacing)
        node.replace_input_with(1 - slots[0], _float(edit.op("Where", [below, left, other])))
        return
    total = node.outputs[0]
    chosen = _float(edit.op("Where", [below, level, total], after=True))
    producer = chosen.producer()
    assert producer is not None
    edit.replace(total, chosen, but=[producer])


def _multiples(edit: GraphEdit, other: ir.Value, spacing: float) -> ir.Value:
    """What a mask leaves of the other operand in FP32."""
    whole = _float(edit.op("Round", [_float(edit.op("Mul", [other, edit.constant(1.0 / spacing)]))]))
    return _float(edit.op("Mul", [whole, edit.constant(spacing)]))


def _below(
    edit: GraphEdit, level: ir.Value, threshold: float, made: dict[tuple[ir.Value, float], ir.Value]
) -> ir.Value:
    """level < threshold, computed once for all layers that share a mask."""
    if (level, threshold) not in made:
        found = edit.op("Less", [level, edit.constant(threshold)])
        found.type = ir.TensorType(ir.DataType.BOOL)
        made[level, threshold] = found
    return made[level, threshold]


def _float(value: ir.Value) -> ir.Value:
    value.type = ir.TensorType(ir.DataType.FLOAT)
    return value
