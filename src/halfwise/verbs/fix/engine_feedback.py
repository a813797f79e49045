"""Judges a decision by the kernels that it was compiled to, and has it searched once more where only they miss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from halfwise.compiler.compiled import Compiled
from halfwise.compiler.engine_profile import engine_view, kernel_words
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.advisories import Advisory
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.places import Uncomparable
from halfwise.search.search import Kept
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["Found", "Judged", "judged_by_own_kernels", "spared"]

MOST_TRIALS = 24  # nodes put back alone after a second search


@dataclass(frozen=True)
class Found:
    """A decision on the way to the result: what was decided, what the compiler made of it, and what to say of both."""

    decided: Decided
    statistics: TensorStatistics
    advisories: tuple[Advisory, ...]
    compiled: Compiled | None
    formats: Mapping[ir.Node, Format]
    kept: tuple[Kept, ...]
    added: tuple[PlannedNode, ...] = ()
    notes: tuple[Note, ...] = ()
    proven: frozenset[str] = frozenset()  # nodes without which it was measured to miss, each alone
    own: Mapping[str, Note] = field(default_factory=dict)  # nodes kept for what their own kernels do, and the reason

    def noting(self, *notes: Note) -> Found:
        return replace(self, notes=(*self.notes, *notes))

    def explained(self, nodes: tuple[PlannedNode, ...]) -> tuple[PlannedNode, ...]:
        """The nodes of the plan, where it is the engine's kernels that keep some."""
        return tuple(
            replace(node, why=Reason.COMPILER, because=(self.own[node.name],)) if node.name in self.own else node
            for node in nodes
        )


@dataclass(frozen=True)
class Judged:
    """What stands in the end, the context that judges it, and the one that judges the model in plain FP16."""

    found: Found
    context: EvaluationContext
    plain: EvaluationContext


def judged_by_own_kernels(
    first: Found,
    table: EvaluationContext,
    profile: str,
    again: Callable[[EvaluationContext], Found] | None,
    notify: Callable[[str], None],
) -> Judged:
    """The engine's own kernels judge besides what `table` holds, if it was compiled; else all stays as it was.

    Where they alone miss the tolerance, `again` searches with what they do in sight, and is compiled as well. Other
    decisions make other kernels, so that is done once. None: there is nothing to search.
    """
    engine, notes = engine_view(profile, first.compiled)
    if engine is None:
        return Judged(first.noting(*notes), table, table)
    context = table.under(engine)
    plain = table if first.formats else context  # with no node in FP32 it is the engine of plain FP16
    if again is None or _holds(first, context) or not _holds(first, table):
        return Judged(first.noting(*notes), context, plain)
    notify("searching once more: by its own kernels the engine misses the tolerance")
    in_sight = context.under(replace(engine, reverted=frozenset()))
    try:
        second = again(in_sight)
    except Uncomparable:
        second = first
    other, told = engine_view(profile, second.compiled)
    later = None if other is None else in_sight.under(other)
    if later is None or second is first or not _holds(second, later):
        context = in_sight.under(engine)  # which knows what was run meanwhile
        return Judged(first.noting(*notes, Note.of(NoteKind.SEARCHED_TWICE_IN_VAIN)), context, plain)
    second = replace(second, own=_reasons(first, second))
    return Judged(second.noting(*told, Note.of(NoteKind.SEARCHED_TWICE)), later, plain)


def _reasons(first: Found, second: Found) -> dict[str, Note]:
    """Of the nodes that only the second decision keeps, and that the first one's engine holds, the kernels there."""
    before = {node.name for node in first.formats}
    words = kernel_words(first.compiled)
    return {
        node.name: Note.of(NoteKind.OWN_KERNELS_MISS, kernels=words[node.name])
        for node in second.formats
        if node.name in words and node.name in second.proven - before
    }


def spared(
    decided: Decided, context: EvaluationContext, notify: Callable[[str], None]
) -> tuple[Decided, frozenset[str]]:
    """The decision without what not even the engine's kernels need, and the names of nodes that they were seen to need.

    The search puts nodes back as `strict` computes them, and measures whole sets by all profiles: what it has not seen
    to be needed is put back once more, alone, and all profiles judge.
    """
    judge = context.judge(decided.sites, decided.samples.search)
    formats = dict(decided.formats)
    proven = {each.node.name or "" for each in decided.kept if each.without is not None and each.without > 1.0}
    doubtful = [each.node for each in decided.kept if each.without is None or each.without <= 1.0]
    for count, node in enumerate(doubtful[:MOST_TRIALS], 1):
        notify(f"putting back node {count} of {min(len(doubtful), MOST_TRIALS)} by the engine's own kernels")
        fewer = {each: fmt for each, fmt in formats.items() if each is not node}
        if judge.measure(Assignment.excepting(decided.sites, fewer, context.io)).unseen_bound <= 1.0:
            formats = fewer
        else:
            proven.add(node.name or "")
    kept = tuple(each for each in decided.kept if each.node in formats)
    return replace(decided, formats=formats, kept=kept), frozenset(proven)


def _holds(found: Found, context: EvaluationContext) -> bool:
    sites = found.decided.sites
    judge = context.judge(sites, found.decided.samples.validation)
    return judge.measure(Assignment.excepting(sites, dict(found.formats), context.io)).met
