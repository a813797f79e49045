"""HW410: infinite and huge constants that only bound or compare become FP16's largest number of the same effect.

Precondition. A constant beyond 65504 that is a bound of Clip, Max or Min on the side where it never bites, one side of
a comparison, or a stand-in that Where puts in for what ArgMax, ArgMin or a comparison then look at; and what it is
held against stayed within 2^15 over the inputs.

Proof. For |x| <= 2^15 < 65504 <= |c|, with the sign of c: min(x, c) = x = min(x, 65504), max(x, -c) = x =
max(x, -65504), and x < c, x <= c, x > c, x >= c, x == c say the same of 65504 as of c; the place of a largest or
smallest element does not move where only stand-ins of one sign were lowered to a value still beyond all others.

What it buys. No constant overflows when it is converted, and a bound saturates in FP16 instead of letting inf through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.families import COMPARISONS
from halfwise.model.model import Model
from halfwise.repair.graph_edit import GraphEdit, node_named, whole
from halfwise.repair.rule import Ranges, Repair

__all__ = ["FINITE_CONSTANTS", "FiniteConstants"]

_LARGEST = np.float32(65504.0)
_WITHIN = 2.0**15
_PICKS = frozenset({"ArgMax", "ArgMin"})
_BOUNDED = frozenset({"Clip", "Max", "Min", "Where"}) | COMPARISONS
_UP, _DOWN = 1.0, -1.0


class FiniteConstants:
    """Constants beyond 65504 that only bound or compare."""

    id = "HW410"
    name = "finite-constants"
    bound = 0.0
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        found = []
        for node in model.graph:
            for slot in range(len(node.inputs)):
                array = _beyond(node, slot)
                if array is not None and _same_effect(node, slot, array, ranges):
                    number = array.flat[np.abs(array).argmax()]
                    says = f"{node.name}: {number:g} and 65504 with its sign do the same to |x| <= 2^15"
                    found.append(Repair(self.id, (node.name or "",), says, {"slot": slot, "op": node.op_type}))
        return tuple(found)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[0])
        slot = repair.parameters["slot"]
        if node is None or node.op_type != repair.parameters["op"]:
            return False
        array = _beyond(node, slot)
        if array is None:
            return False
        node.replace_input_with(slot, GraphEdit(model, node, "finite").constant(np.clip(array, -_LARGEST, _LARGEST)))
        return True


FINITE_CONSTANTS = FiniteConstants()


def _beyond(node: ir.Node, slot: int) -> NDArray[Any] | None:
    """A constant operand with a number beyond FP16, of an operator that only bounds or compares."""
    fits = not node.domain and node.op_type in _BOUNDED and slot < len(node.inputs)
    value = node.inputs[slot] if fits else None
    array = whole(value)
    if array is None or array.dtype != np.float32 or not array.size or np.isnan(array).any():
        return None
    return array if (np.abs(array) > _LARGEST).any() else None


def _same_effect(node: ir.Node, slot: int, array: NDArray[Any], ranges: Ranges) -> bool:
    others = [value for index, value in enumerate(node.inputs) if index != slot and value is not None]
    if node.op_type == "Clip":
        sign = {1: _DOWN, 2: _UP}.get(slot)
        return sign is not None and _all_signed(array, sign) and _within(node.inputs[:1], ranges)
    if node.op_type in ("Max", "Min"):
        sign = _DOWN if node.op_type == "Max" else _UP
        return len(others) == 1 and _all_signed(array, sign) and _within(others, ranges)
    if node.op_type in COMPARISONS:
        return _within(others, ranges)
    return node.op_type == "Where" and slot > 0 and _only_picked(node, slot, array, ranges)


def _only_picked(node: ir.Node, slot: int, array: NDArray[Any], ranges: Ranges) -> bool:
    """Where puts in one number of one sign, and whoever reads the result looks for the other end, or compares."""
    sign = float(np.sign(array.flat[0]))
    out = node.outputs[0]
    readers = [reader for reader, _ in out.uses()]
    if not _all_signed(array, sign) or not _within([node.inputs[3 - slot]], ranges) or out.is_graph_output():
        return False
    one_number = bool((array == array.flat[0]).all())
    for reader in readers:
        picks = not reader.domain and reader.op_type in _PICKS and one_number
        others = [value for value in reader.inputs if value is not out]
        compares = not reader.domain and reader.op_type in COMPARISONS and _within(others, ranges)
        if not (picks or compares):
            return False
    return bool(readers)


def _all_signed(array: NDArray[Any], sign: float) -> bool:
    return bool((array * np.float32(sign) > _LARGEST).all())


def _within(values: Iterable[ir.Value | None], ranges: Ranges) -> bool:
    """Whether values stayed below what FP16 holds, and were no constants beyond it."""
    for value in values:
        array = whole(value)
        high = float(np.abs(array).max(initial=0.0)) if array is not None else None
        if high is None:
            high = ranges.high.get(value.name or "", np.inf) if value is not None else np.inf
        if not high <= _WITHIN:
            return False
    return True
