"""Where a choice inside the model may turn: what it compares has an error, by which another input's may cross.

A comparison, a rounding or a largest entry changes the answer at a stroke, and seldom: a dozen inputs may show none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.streamed import answered
from halfwise.model.inputs.feed import Feed
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites, native_format
from halfwise.search.choice_margin import margin
from halfwise.search.jumps import jumping
from halfwise.search.run_counter import RunCounter

__all__ = ["TRIALS", "wavering"]

TRIALS = 60  # inputs of which none misses, where 19 of 20 keep the tolerance, in 19 of 20 cases


def wavering(decision: Decision, emulator: Emulator, feed: Feed, counter: RunCounter) -> ir.Node | None:
    """The first node that chooses by numbers of which this decision makes others, so near to each other that another
    input may turn it; None where there is none, and where a model is too large for many runs."""
    model = decision.sites.model
    choices = {node: _compared(node) for node in jumping(model) if node.graph is model.graph}
    names = tuple(dict.fromkeys(name for each in choices.values() for name in each))
    if not names or emulator.streams(model):
        return None
    sites, decided = Sites(replace(model, watched=names)), decision.assignment
    counter.add(2)
    right, found = (
        answered(emulator.session(assignment), [widen_feeds(feed)])[0]
        for assignment in (Assignment(sites, {}), Assignment(sites, decided.formats, decided.io))
    )
    moved = {name for name in names if not np.array_equal(right[name], found[name], equal_nan=True)}
    turning = (node for node, each in choices.items() if moved.intersection(each))
    with np.errstate(all="ignore"):
        return next((node for node in turning if margin(node, right, found) < TRIALS), None)


def _compared(node: ir.Node) -> Sequence[str]:
    """What the model computes of what it reads."""
    made = (v for v in node.inputs if v is not None and v.producer() is not None and native_format(v) is Format.FP32)
    return [value.name or "" for value in made]
