"""Tells in words and numbers why one node goes wrong in FP16, and where that leads, from the ranges that were seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.core.formats import Format, spacing
from halfwise.core.notes import NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.moving import FROM_FIRST, Move, movers
from halfwise.precision.plan import PlannedNode
from halfwise.report.axis import Bar, bar
from halfwise.report.numbers import factor, number, percent
from halfwise.report.text import safe
from halfwise.search.prune import NEAR

__all__ = ["Range", "Story", "tell"]

_LIMIT = Format.FP16.max
_LEAST = Format.FP16.smallest_subnormal
_STEPS = 12  # that an infinity is followed
_JUST = 1.05  # times the allowed error: what two digits do not tell from it

_DOES = {
    "Add": "adds {}",
    "CumSum": "sums {}",
    "Conv": "sums products of {}",
    "Div": "divides {}",
    "Exp": "takes the exponential of {}",
    "Gemm": "sums products of {}",
    "MatMul": "sums products of {}",
    "Mul": "multiplies {}",
    "Pow": "raises {} to a power",
    "Reciprocal": "inverts {}",
    "ReduceL2": "sums squares of {}",
    "ReduceMean": "averages {}",
    "ReduceSum": "sums {}",
    "ReduceSumSquare": "sums squares of {}",
    "Sub": "subtracts {}",
}
# What hands an infinity on.
_PASSES = (
    FROM_FIRST
    | movers(Move.CAST)
    | frozenset("Abs Add Concat Mul Neg Pow ReduceMax ReduceMean ReduceSum ReduceL2 Sqrt Sub Sum".split())
)
_EXPONENTIALS = frozenset({"Exp", "Softmax", "LogSoftmax"})
_ROUNDING = {Reason.ROUNDING, Reason.MARGIN, Reason.UNPROVEN, Reason.EXHAUSTED}


@dataclass(frozen=True)
class Range:
    """What a node reads or writes, as a bar with words."""

    title: str
    low: float
    high: float
    bar: Bar | None


@dataclass(frozen=True)
class Story:
    """One node: what happens in FP16, where that leads, what was measured, and the ranges for its picture."""

    cause: str
    then: str
    measured: str
    ranges: tuple[Range, ...]
    ratio: float | None  # the error with this node alone reverted, over the allowed one

    @property
    def words(self) -> str:
        """All of it in a few sentences."""
        return " ".join(part for part in (self.cause, self.then, self.measured) if part)


def tell(planned: PlannedNode, node: ir.Node | None, seen: Mapping[str, Counts]) -> Story:
    """`seen` are the ranges of the model that the node belongs to."""
    reads = _over(node.inputs, seen) if node is not None else None
    writes = _over(node.outputs, seen) if node is not None else None
    read_high = planned.numbers.get("input_max_abs", reads[1] if reads else 0.0)
    read_low = planned.numbers.get("input_min_abs", reads[0] if reads else 0.0)
    high = planned.numbers.get("max_abs", writes[1] if writes else 0.0)
    low = planned.numbers.get("min_abs", writes[0] if writes else 0.0)
    ranges = tuple(
        Range(title, least, most, bar(least, most))
        for title, least, most in (("reads", read_low, read_high), ("writes", low, high))
        if most > 0
    )
    cause, then = planned.cause, ""
    if planned.why in _ROUNDING or planned.why is Reason.OVERFLOW:
        cause = _cause(planned, high, low, read_high, read_low)
        if high > _LIMIT and node is not None:
            then = _consequence(node)
    ratio = planned.numbers.get("error_without")
    if ratio is None and any(note.kind is NoteKind.NOT_FINITE_ALONE for note in planned.because):
        ratio = math.inf
    return Story(cause, then, _measured(planned, ratio), ranges, ratio)


def _over(values: object, seen: Mapping[str, Counts]) -> tuple[float, float] | None:
    found = [seen[v.name] for v in values if v is not None and v.name in seen]  # type: ignore[attr-defined]
    if not found:
        return None
    return min((c.min_abs for c in found if c.min_abs), default=0.0), max(c.max_abs for c in found)


def _cause(planned: PlannedNode, high: float, low: float, read_high: float, read_low: float) -> str:
    if read_high > _LIMIT:
        return f"The node reads values up to {number(read_high)}; beyond {_LIMIT:,.0f}, FP16 holds only infinity."
    if high > _LIMIT:
        does = (
            "squares {}"
            if planned.op == "Pow" and math.isclose(high, read_high**2, rel_tol=1e-3)
            else _DOES.get(planned.op, "works on {}")
        )
        told = f"result reaches {number(high)}, beyond FP16’s {_LIMIT:,.0f}, and becomes infinite."
        if not read_high:  # of whole numbers no range is known
            return f"The {told}"
        return f"The node {does.format(f'values up to {number(read_high)}')}; the {told}"
    if any(note.kind is NoteKind.KEEPS_FROM_ENDING for note in planned.because):
        return "The node decides when a loop ends. Rounded to FP16, the loop may never end."
    if planned.why is Reason.OVERFLOW:
        least = min((x for x in (low, read_low) if 0 < x < _LEAST), default=0.0)
        if least:
            return f"The node depends on values as small as {number(least)}; below 6e−8, FP16 holds only 0."
        return "Inside the node, a value becomes infinite in FP16, or zero where that is fatal."
    top = max(high, read_high)
    if not top:
        return "Rounding to FP16 changes the outputs."
    if planned.op in _EXPONENTIALS and read_high and (moved := math.expm1(spacing(Format.FP16, read_high) / 2)) >= 0.01:
        return (
            f"The node takes exponentials of values up to {number(read_high)}, where neighbouring FP16 numbers are "
            f"{number(spacing(Format.FP16, read_high))} apart. Half a step changes an exponential by {percent(moved)}."
        )
    step = spacing(Format.FP16, top)
    return (
        f"The values reach {number(top)}, where neighbouring FP16 numbers are {number(step)} apart. "
        f"Each value moves by up to {number(step / 2)}, which changes the outputs."
    )


def _consequence(node: ir.Node) -> str:
    """Where an infinity goes: up to the node that makes an answer of it."""
    passed: list[str] = []
    for step, slot in _way(node):
        name = safe(step.name or "", 48)
        if (step.op_type == "Div" and slot == 1) or step.op_type == "Reciprocal":
            return f"{_through(passed)}{name} divides by the infinity and returns 0: a wrong answer without any NaN."
        if step.op_type in ("Softmax", "LogSoftmax"):
            return f"{_through(passed)}{name} turns the infinity into NaN."
        if step.op_type not in _PASSES:
            return ""
        passed.append(step.op_type)
    return ""


def _way(node: ir.Node) -> Iterator[tuple[ir.Node, int]]:
    for _ in range(_STEPS):
        uses = [use for value in node.outputs for use in value.uses()]
        if len(uses) != 1:
            return
        node, slot = uses[0].node, uses[0].idx
        yield node, slot


def _through(passed: list[str]) -> str:
    return f"The infinity passes through {', '.join(passed)}; " if passed else "Next, "


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _measured(planned: PlannedNode, ratio: float | None) -> str:
    if ratio is None:
        return "Not tested individually." if planned.why is Reason.UNPROVEN else _sentence(planned.measured)
    if math.isinf(ratio):
        return "Measured: reverted to FP16 by itself, the outputs are not finite, or of another shape."
    if 1 < ratio < _JUST:
        return "Measured: reverted to FP16 by itself, the error is just above the allowed one."
    if ratio > 1:
        return f"Measured: reverted to FP16 by itself, the error is {factor(ratio)} the allowed one."
    words = ", too near for unseen inputs" if ratio >= NEAR else "; with others reverted, too, it is too large"
    return f"Measured: reverted to FP16 by itself, the error is {percent(ratio)} of the allowed one{words}."
