"""The user's own decisions in the main job: handed to the search, and written into the plan under their own reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites
from halfwise.search.held_out import Decided
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["decided_with", "missed_because_forced", "replaced_note", "wanted_nodes"]


def decided_with(choices: Choices, decided: Decided) -> Decided:
    """What a search under these choices decided, as a decision about a model in which every node is free again."""
    if not choices:
        return decided
    forced = decided.sites.forced
    sites = Sites(decided.model)
    formats = {node: fmt for node, fmt in decided.formats.items() if node not in forced}
    formats.update((site.node, Format.FP32) for site in sites.free if site.name in choices.kept)
    kept = tuple(each for each in decided.kept if each.node not in forced)
    return replace(decided, sites=sites, formats=formats, kept=kept)


def wanted_nodes(choices: Choices, sites: Sites, statistics: TensorStatistics) -> Iterable[PlannedNode]:
    """The nodes of the plan that the user asked for."""
    for site in sites.free:
        if site.name in choices.kept:
            high, low = statistics.over(site.node.outputs)
            numbers = {name: value for name, value in (("max_abs", high), ("min_abs", low)) if value}
            because = Note.of(NoteKind.USER_KEEPS, option=choices.kept[site.name])
            yield PlannedNode(site.name, site.op, Format.FP32, Reason.WANTED, (because,), numbers)


def replaced_note(choices: Choices, sites: Sites) -> Note | None:
    """What was forced, and a repair has taken out of the model; what is kept in FP32 no repair touches."""
    there = {site.name for site in sites.all}
    gone = [name for name in choices.forced if name not in there]
    if not gone:
        return None
    words = " ".join(dict.fromkeys(choices.forced[name] for name in gone))
    return Note.of(NoteKind.FORCED_REPAIRED, option=words, nodes=gone)


def missed_because_forced(
    choices: Choices,
    sites: Sites,
    formats: Mapping[ir.Node, Format],
    io: Format,
    holds: Callable[[Assignment], bool],
) -> Note | None:
    """Whether what was forced is why the tolerance is missed, measured once."""
    forced = [site.node for site in sites.free if site.name in choices.forced]
    if not forced:
        return None
    words = " ".join(dict.fromkeys(choices.forced.values()))
    if holds(Assignment.excepting(sites, {**formats, **dict.fromkeys(forced, Format.FP32)}, io)):
        return Note.of(NoteKind.FORCED_MISSES, option=words, count=len(forced))
    return Note.of(NoteKind.FORCED_NOT_ALONE, option=words, count=len(forced))
