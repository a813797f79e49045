"""What the kernels of a compiled engine say of a decision: they judge, too, and may ask for a second search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from halfwise.compiler.engine_profile import engine_view, kernel_words
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.emulation.profiles import Profile
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.verbs.fix.candidate import Candidate

__all__ = ["Feedback", "feedback_on", "second_feedback", "spared"]

MOST_TRIALS = 24  # nodes reverted by themselves after a second search


@dataclass(frozen=True, eq=False)
class Feedback:
    """The candidate that stands, the context that judges it, and the one that judges the model in plain FP16.

    `in_sight`: the context for a second search, with the first engine's kernels; None where none is needed.
    """

    candidate: Candidate
    context: EvaluationContext
    plain: EvaluationContext
    engine: Profile | None = None
    notes: tuple[Note, ...] = ()
    own: Mapping[str, Note] = field(default_factory=dict)  # nodes kept for what their kernels do, and the reason
    in_sight: EvaluationContext | None = None

    def explained(self, nodes: tuple[PlannedNode, ...]) -> tuple[PlannedNode, ...]:
        """The nodes of the plan, where it is the engine's kernels that keep some."""
        return tuple(
            replace(node, why=Reason.COMPILER, because=(self.own[node.name],)) if node.name in self.own else node
            for node in nodes
        )


def feedback_on(first: Candidate, table: EvaluationContext, profile: str, *, searched: bool) -> Feedback:
    """The kernels of the engine judge besides what `table` holds, if it was compiled; else all stays as it was.

    Where they alone miss the tolerance of what was `searched`, a second search is asked for.
    """
    engine, notes = engine_view(profile, first.compiled)
    if engine is None:
        return Feedback(first, table, table, notes=notes)
    context = table.under(engine)
    plain = table if first.decision.formats else context  # with no node in FP32 it is the engine of plain FP16
    found = Feedback(first, context, plain, engine, notes)
    if not searched or first.holds(context) or not first.holds(table):
        return found
    return replace(found, in_sight=context.under(replace(engine, reverted=frozenset())))


def second_feedback(first: Feedback, second: Candidate | None, profile: str) -> Feedback:
    """The second candidate where it was found and keeps the tolerance by the kernels of its own engine.

    Other decisions make other kernels, so that a search with the first ones in sight is made once.
    """
    assert first.in_sight is not None
    engine, notes = engine_view(profile, second.compiled) if second is not None else (None, ())
    context = first.in_sight.under(engine) if engine is not None else None
    if second is None or context is None or not second.holds(context):
        return replace(first, notes=(*first.notes, Note.of(NoteKind.SEARCHED_TWICE_IN_VAIN)), in_sight=None)
    notes = (*notes, Note.of(NoteKind.SEARCHED_TWICE))
    return Feedback(second, context, first.plain, engine, notes, _reasons(first.candidate, second))


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
    """The decision without what not even the engine's kernels need, and the names of nodes that they were seen to need.

    The search puts nodes back as `strict` computes them, and measures whole sets by all profiles: what it has not seen
    to be needed is reverted once more, by itself, and all profiles judge.
    """
    judge = context.judge(decided.sites, decided.samples.search)
    formats = dict(decided.formats)
    proven = {each.node.name or "" for each in decided.kept if each.without is not None and each.without > 1.0}
    doubtful = [each.node for each in decided.kept if each.without is None or each.without <= 1.0]
    for count, node in enumerate(doubtful[:MOST_TRIALS], 1):
        notify(f"reverting node {count} of {min(len(doubtful), MOST_TRIALS)}, judged with the engine's kernels")
        fewer = {each: fmt for each, fmt in formats.items() if each is not node}
        if judge.measure(Assignment.excepting(decided.sites, fewer, context.io)).unseen_bound <= 1.0:
            formats = fewer
        else:
            proven.add(node.name or "")
    kept = tuple(each for each in decided.kept if each.node in formats)
    return replace(decided, formats=formats, kept=kept), frozenset(proven)
