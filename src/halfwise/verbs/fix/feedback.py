"""Who else judges a decision: the `wide` profile and the kernels of a compiled engine; they may ask for a search anew.

The search measures with the target's profiles, the strict one among them. That it also holds with less rounding, and as
the engine was compiled, is measured once, at the end; only where it does not is a second search worth its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from halfwise.compiler.engine_profile import engine_view, kernel_words
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.emulation.profiles import ENGINE, WIDE
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.search.context import EvaluationContext
from halfwise.search.held_inputs import HELD_OUT_TARGET
from halfwise.search.held_out import Decided
from halfwise.search.run_counter import Untried
from halfwise.verbs.fix.candidate import Candidate

__all__ = ["Feedback", "feedback_on", "in_further_sight", "second_feedback", "spared"]

MOST_TRIALS = 24  # nodes reverted by themselves after a second search


@dataclass(frozen=True, eq=False)
class Feedback:
    """The candidate that stands, the context that judges it, and the one that judges the model in plain FP16.

    `missed`: the profiles under which a first decision missed; `lost`: the nodes at which the candidate makes finite
    values infinite; `in_sight`: the context for a second search, which heeds both, or None where none is needed.
    """

    candidate: Candidate
    context: EvaluationContext
    plain: EvaluationContext
    notes: tuple[Note, ...] = ()
    own: Mapping[str, Note] = field(default_factory=dict)  # nodes kept for what their kernels do, and the reason
    missed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    in_sight: EvaluationContext | None = None

    def explained(self, nodes: tuple[PlannedNode, ...]) -> tuple[PlannedNode, ...]:
        """The nodes of the plan, where it is the engine's kernels that keep some."""
        return tuple(
            replace(node, why=Reason.COMPILER, because=(self.own[node.name],)) if node.name in self.own else node
            for node in nodes
        )


def feedback_on(
    first: Candidate, table: EvaluationContext, profile: str, *, searched: bool, forced: Collection[str] = ()
) -> Feedback:
    """The wide profile judges besides what `table` holds, and so do the engine's own kernels, if it was compiled.

    Where they alone miss the tolerance of what was `searched`, or where values are lost inside at nodes that the user
    has not `forced`, a second search is asked for.
    """
    engine, notes = engine_view(profile, first.compiled)
    wide = table.under(WIDE)
    context = wide.under(engine) if engine is not None else wide
    plain = wide if first.decision.formats else context  # with no node in FP32 the engine is that of plain FP16
    found = Feedback(first, context, plain, notes, lost=first.lost(context))
    missed = tuple(name for name, seen in first.by_profile(context).items() if not seen.met)
    healed = not set(found.lost) <= set(forced)
    if not searched or not (missed or healed) or not first.holds(table):
        return found
    in_sight = wide if WIDE.name in missed else table
    if engine is not None and engine.name in missed:
        in_sight = in_sight.under(replace(engine, reverted=frozenset()))
    return replace(found, missed=missed, in_sight=replace(in_sight, finite=healed or table.finite))


def in_further_sight(first: Feedback, second: Candidate | None, profile: str) -> EvaluationContext | None:
    """With what a second search did not heed, where its answer misses by that alone: the wide profile, or the kernels
    of its own engine."""
    if second is None or first.in_sight is None:
        return None
    engine, _ = engine_view(profile, second.compiled)
    context = first.context.under(engine) if engine is not None else first.context
    missed = {name for name, seen in second.by_profile(context).items() if not seen.met}
    if missed & {each.profile.name for each in first.in_sight.also}:
        return None
    if missed == {WIDE.name}:
        return first.in_sight.under(WIDE)
    if engine is not None and missed == {engine.name}:
        return first.in_sight.under(replace(engine, reverted=frozenset()))
    return None


def second_feedback(first: Feedback, second: Candidate | None, profile: str) -> Feedback:
    """The second candidate where it was found and keeps the tolerance by all who judged the first.

    Other decisions make other kernels, so that a search with the first ones in sight is made once.
    """
    engine, notes = engine_view(profile, second.compiled) if second is not None else (None, ())
    context = first.context.under(engine) if engine is not None else first.context
    unjudged = engine is None and any(each.profile.name == ENGINE for each in context.also)
    if second is None or unjudged or not second.holds(context):
        vain = [Note.of(NoteKind.SEARCHED_TWICE_IN_VAIN, profiles=list(first.missed))] if first.missed else []
        return replace(first, notes=(*first.notes, *vain), in_sight=None)
    told = [Note.of(NoteKind.SEARCHED_TWICE, profiles=list(first.missed))] if first.missed else []
    lost = second.lost(context)
    if healed := [name for name in first.lost if name not in lost]:
        told.append(Note.of(NoteKind.OVERFLOW_HEALED, nodes=healed))
    return Feedback(
        second, context, first.plain, (*notes, *told), _reasons(first.candidate, second), first.missed, lost
    )


def _reasons(first: Candidate, second: Candidate) -> dict[str, Note]:
    """Of the nodes that only the second decision keeps, and that the first one's engine holds, the kernels there."""
    before = {node.name for node in first.decision.formats}
    words = kernel_words(first.compiled)
    return {
        node.name: Note.of(NoteKind.OWN_KERNELS_MISS, kernels=words[node.name])
        for node in second.decision.formats
        if node.name in words and node.name in second.proven - before
    }


def spared(
    decided: Decided, context: EvaluationContext, notify: Callable[[str], None]
) -> tuple[Decided, frozenset[str]]:
    """The decision without what no profile needs, and the names of nodes that were seen to be needed.

    The search puts nodes back as `strict` computes them, and measures whole sets by all profiles: what it has not seen
    to be needed is reverted once more, by itself, and all profiles judge, on held-out inputs, too.
    """
    judge = context.judge(decided.sites, decided.samples.search)
    held_out = context.judge(decided.sites, decided.samples.validation)
    required = context.required(decided.sites, decided.samples.search)
    formats = dict(decided.formats)
    proven = {each.node.name or "" for each in decided.kept if each.without is not None and each.without > 1.0}
    doubtful = [
        each.node
        for each in decided.kept
        if each.node not in required and (each.without is None or each.without <= 1.0)
    ]
    for count, node in enumerate(doubtful[:MOST_TRIALS], 1):
        if judge.spent or not judge.affords(Untried.REVERTING):
            break
        notify(f"reverting node {count} of {min(len(doubtful), MOST_TRIALS)}, judged by all profiles")
        fewer = {each: fmt for each, fmt in formats.items() if each is not node}
        trial = Assignment.excepting(decided.sites, fewer, context.io)
        if judge.measure(trial).unseen_bound <= 1.0 and held_out.measure(trial).ratio <= HELD_OUT_TARGET:
            formats = fewer
        else:
            proven.add(node.name or "")
    kept = tuple(each for each in decided.kept if each.node in formats)
    return replace(decided, formats=formats, kept=kept), frozenset(proven)
