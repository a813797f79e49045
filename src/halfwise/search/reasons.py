"""Says in words and numbers why a node stays out of FP16, from one more look at the FP32 model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format, spacing
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.emulation.endless_loops import deciding
from halfwise.model.patterns.phases import WAVES, PhaseWays
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites
from halfwise.search.prune import Kept
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["explain"]


def explain(kept: Kept, sites: Sites, statistics: TensorStatistics, fmt: Format, phases: PhaseWays) -> PlannedNode:
    """One node of the plan. `phases` are those of the model."""
    node, narrow = kept.node, sites.fmt
    numbers: dict[str, float] = {}
    read_high, read_low = statistics.over(node.inputs)
    high, low = statistics.over(node.outputs)
    if high:
        numbers["max_abs"] = high
    if low:
        numbers["min_abs"] = low
    if read_high:
        numbers["input_max_abs"] = read_high
    if read_low:
        numbers["input_min_abs"] = read_low
    if kept.without is not None and np.isfinite(kept.without):
        numbers["error_without"] = kept.without
    endless = kept.why is Reason.OVERFLOW and max(high, read_high) <= narrow.max and _ends_a_loop(node, sites)
    ends = (Note.of(NoteKind.KEEPS_FROM_ENDING, format=narrow.value.upper()), _measured(kept)) if endless else None
    because = ends or _because(kept, narrow, high, read_high, _period(node, phases))
    return PlannedNode(node.name or "", node.op_type, fmt, kept.why, because, numbers)


def _because(
    kept: Kept, narrow: Format, high: float, read_high: float, period: float | None = None
) -> tuple[Note, ...]:
    if kept.why is Reason.FASTER:
        return (Note.of(NoteKind.FASTER_WIDE),)
    return _cause(kept.why, narrow, high, read_high, period), _measured(kept)


def _ends_a_loop(node: ir.Node, sites: Sites) -> bool:
    """Whether it decides in the narrow format when a loop ends, and nothing else ends it."""
    if node.op_type != "Loop" and node.graph is sites.model.graph:
        return False
    narrow = Assignment.all_narrow(sites)
    return any(node in deciding(site.node, narrow) for site in sites.all if site.op == "Loop")


def _period(node: ir.Node, phases: PhaseWays) -> float | None:
    """Of the phase that a node makes or reads, where it does that."""
    values = node.inputs[:1] if node.op_type in (*WAVES, "Mod") else node.outputs[:1]
    return next((period for value in values if value is not None and (period := phases.period(value))), None)


def _cause(why: Reason, narrow: Format, high: float, read_high: float, period: float | None) -> Note:
    name, limit, reach = narrow.value.upper(), narrow.max, max(high, read_high)
    if high > limit:
        return Note.of(NoteKind.WRITES_BEYOND, high=high, limit=limit, format=name)
    if read_high > limit:
        return Note.of(NoteKind.READS_BEYOND, high=read_high, limit=limit, format=name)
    if why is Reason.OVERFLOW:
        return Note.of(NoteKind.BREAKS_INSIDE, format=name)
    if period is not None and reach > period:
        return Note.of(NoteKind.ROUNDS_PHASE, reach=reach, step=spacing(narrow, reach), period=period, format=name)
    if reach:
        return Note.of(NoteKind.ROUNDS_COARSELY, reach=reach, step=spacing(narrow, reach), format=name)
    return Note.of(NoteKind.ROUNDS, format=name)


def _measured(kept: Kept) -> Note:
    if kept.why is Reason.EXHAUSTED:
        return Note.of(NoteKind.KEPT_IN_VAIN)
    if kept.without is None:
        return Note.of(NoteKind.NOT_TESTED_ALONE)
    if kept.without == np.inf:
        return Note.of(NoteKind.NOT_FINITE_ALONE)
    if kept.without > 1:
        return Note.of(NoteKind.MISSES_ALONE, load=kept.without)
    if kept.why is Reason.MARGIN:
        return Note.of(NoteKind.NEAR_ALONE, load=kept.without)
    return Note.of(NoteKind.NEEDED_TOGETHER, load=kept.without)
