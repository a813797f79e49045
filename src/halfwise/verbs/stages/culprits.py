"""Descends into a stage that is wrong by itself: the fewest nodes to keep in FP32 that make it right, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from halfwise.core.formats import Format, spacing
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.stepper import Stepper
from halfwise.model.patterns.phases import PhaseWays
from halfwise.model.patterns.view import View
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Question
from halfwise.search.quantiser_steps import own_steps
from halfwise.search.reasons import explain
from halfwise.search.search import Search
from halfwise.search.tensor_statistics import tensor_statistics

__all__ = ["Culprits", "exponent_note", "find_culprits"]

_EXPONENTIALS = ("Softmax", "LogSoftmax", "Exp")
_TELLING = 0.01  # change of an exponential's result by rounding its input that is worth words


@dataclass(frozen=True)
class Culprits:
    """The nodes, exponentials first, and the tolerance ratio of the stage with them in FP32. `steps`: those that only
    avoid steps of quantisers, which FP32 takes, too, are not among them."""

    nodes: tuple[PlannedNode, ...]
    ratio: float
    steps: bool


def find_culprits(
    sites: Sites,
    emulator: Emulator,
    tolerance: Tolerance,
    feeds: Sequence[Mapping[str, NDArray[Any]]],
    notify: Callable[[str], None],
) -> Culprits:
    stepper, question = Stepper(emulator), Question(tolerance)
    fp32 = emulator.session(Assignment(sites, {}))
    answers = [fp32.run({name: feed[name] for name in fp32.input_names}) for feed in feeds]
    moves = own_steps(sites, emulator, question, feeds, answers)
    allowed = max(moves.as_tf32, 1.0) if moves is not None else 1.0
    judge = Judge(sites, emulator, question, feeds, answers)
    solution = Search(sites, judge, stepper, target_ratio=allowed, notify=notify).run()
    statistics = tensor_statistics(stepper, sites, widen_feeds(feeds[0]))
    phases = PhaseWays(View(sites.model))
    planned = [_told(explain(kept, sites, statistics, Format.FP32, phases)) for kept in solution.kept]
    planned.sort(key=lambda node: (node.op not in _EXPONENTIALS, -node.numbers.get("error_without", math.inf)))
    return Culprits(tuple(planned), solution.found.ratio, allowed > 1.0)


def _told(node: PlannedNode) -> PlannedNode:
    """An exponential turns an absolute step of its input into a relative one of its result; that needs saying."""
    if node.op not in _EXPONENTIALS:
        return node
    cause = exponent_note(node.numbers.get("input_max_abs", 0.0))
    return replace(node, because=(cause, *node.because[1:])) if cause is not None else node


def exponent_note(reach: float) -> Note | None:
    """What FP16 does to the input of an exponential that reaches so far; None where that is harmless."""
    if not 0 < reach <= Format.FP16.max:
        return None
    step = spacing(Format.FP16, reach)
    change = math.expm1(step / 2)
    if change < _TELLING:
        return None
    return Note.of(NoteKind.ROUNDS_EXPONENT, reach=reach, step=step, change=change, format="FP16")
