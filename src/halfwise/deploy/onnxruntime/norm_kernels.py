"""Keeps norms in one kernel of ONNX Runtime, and off placements of FP32 with which it refuses to load a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable, Formats
from halfwise.emulation.profiles.norm_fusions import Norm, Outcome, norms_of, outcome
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_norms", "refusal_note"]


def adjust_norms(may: Adjustable, found: Adjustment, *, fused: bool) -> Adjustment:
    """Change as few nodes as it takes for every norm to load and, where norms are `fused`, to run in one kernel.

    What would not hold is not done, unless the model could not be loaded without it.
    """
    return _loadable(may, _in_one_kernel(may, found) if fused else found)


def refusal_note(assignment: Assignment) -> Note | None:
    """What to say of a model that ONNX Runtime will not load; None where it will."""
    refused = [norm for norm in norms_of(assignment.sites.model) if outcome(norm, assignment) is Outcome.REFUSED]
    if not refused:
        return None
    return Note.of(NoteKind.ORT_REFUSES_NORM, refused[0].last.name)


def _in_one_kernel(may: Adjustable, start: Adjustment) -> Adjustment:
    """Norms that FP32 nodes, or an epsilon too small for FP16, take apart: each of their parts in one format."""
    pieces = [
        norm for norm in norms_of(may.sites.model) if all(_two(node, start.decision.formats) for node in norm.nodes)
    ]
    for narrowing in (True, False):
        formats, norms = start.decision.formats, []
        for norm in pieces:
            if _outcome(may, norm, formats) is Outcome.FUSED:
                continue
            for changed in _whole_parts(may, norm, formats, narrowing=narrowing):
                if _outcome(may, norm, changed) is Outcome.FUSED:
                    formats = changed
                    norms.append(norm)
                    break
        if not norms:
            return start
        if may.holds(may.assignment(formats)):
            added = tuple(_added(start.decision.formats, formats, norms, _whole))
            note = Note.of(NoteKind.NORMS_WHOLE, norms=len(norms), nodes=len(added))
            return start.to(start.decision.with_formats(formats), added, note)
    return start


def _whole_parts(may: Adjustable, norm: Norm, formats: Formats, *, narrowing: bool) -> Iterator[Formats]:
    """Every part of the norm in one format, from the fewest changes on."""
    begun = [part for part in norm.parts if any(may.is_wide(node, formats) for node in part)]
    for more in ((), (norm.body,), (norm.tail,), (norm.body, norm.tail)):
        wide = may.widened((node for part in (*begun, *more) for node in part), formats)
        if wide is None:
            continue
        yield wide
        if narrowing and norm.tail in begun and norm.tail not in more:
            narrow = may.narrowed(norm.tail, wide)
            if narrow is not None:
                yield narrow


def _loadable(may: Adjustable, start: Adjustment) -> Adjustment:
    """Norms that are refused as they are, brought to what loads: at best one kernel, else their single nodes."""
    formats, norms = start.decision.formats, []
    for _ in range(2):  # what frees one norm may stand in front of another
        for norm in norms_of(may.sites.model):
            if _outcome(may, norm, formats) is not Outcome.REFUSED:
                continue
            tries = _ways_out(may, norm, formats)
            able = [changed for changed in tries if _outcome(may, norm, changed) is not Outcome.REFUSED]
            chosen = next((each for each in able if may.holds(may.assignment(each))), able[0] if able else None)
            if chosen is not None:
                formats = chosen
                norms.append(norm)
    if not norms:
        return start
    added = tuple(_added(start.decision.formats, formats, norms, _loads))
    note = Note.of(NoteKind.NORMS_LOADABLE, norms=len(norms))
    return start.to(start.decision.with_formats(formats), added, note)


def _ways_out(may: Adjustable, norm: Norm, formats: Formats) -> Iterator[Formats]:
    """From the best on: scale and bias join the rest, or what enters joins them; a part in two formats is not fused."""
    maker, single = norm.data.producer(), [(node,) for node in norm.nodes]
    tries = (
        may.widened(norm.tail, formats),
        may.narrowed(norm.tail, formats),
        may.widened((maker,), formats) if maker is not None else None,
        *(may.widened(nodes, formats) for nodes in single),
        *(may.narrowed(nodes, formats) for nodes in single),
    )
    return (each for each in tries if each is not None)


def _outcome(may: Adjustable, norm: Norm, formats: Formats) -> Outcome:
    return outcome(norm, may.assignment(formats))


def _two(node: ir.Node, formats: Formats) -> bool:
    """Whether it is in FP32 or in the narrow format, and in no third one."""
    return formats.get(node, Format.FP32) is Format.FP32


def _added(
    before: Mapping[ir.Node, Format], after: Formats, norms: Iterable[Norm], why: Callable[[Norm], Note]
) -> Iterator[PlannedNode]:
    of = {node: norm for norm in norms for node in (norm.data.producer(), *norm.nodes) if node is not None}
    for node in after:
        if node not in before and node in of:
            because = (why(of[node]),)
            yield PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, because)


def _whole(norm: Norm) -> Note:
    return Note.of(NoteKind.KEEPS_NORM_WHOLE, norm.last.name)


def _loads(norm: Norm) -> Note:
    return Note.of(NoteKind.KEEPS_NORM_LOADABLE, norm.last.name)
