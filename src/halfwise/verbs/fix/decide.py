"""Search, fit and compile; once more where the wide profile or the engine's kernels miss the tolerance."""

from __future__ import annotations

from dataclasses import replace

from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.deploy.deploy_files import advisories_for
from halfwise.emulation.profiles import ENGINE
from halfwise.model.families import INTEGER_SUMS
from halfwise.model.inputs.rollout import executions
from halfwise.model.model import Model
from halfwise.precision.decision import Adjustment
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.journal import Journal
from halfwise.search.places import Uncomparable
from halfwise.search.prune import Kept
from halfwise.search.run_counter import MOST_LATER, Untried
from halfwise.search.search import LEAST_SETS
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.compile import compile_decision
from halfwise.verbs.fix.feedback import Feedback, feedback_on, in_further_sight, second_feedback, spared
from halfwise.verbs.fix.fit import fit
from halfwise.verbs.fix.prepare import Prepared
from halfwise.verbs.fix.search import search

__all__ = ["decide"]


def decide(prepared: Prepared) -> Feedback:
    """Where an answer with BF16 in it does not hold, the one of FP16 and FP32 alone, unless that is worse.

    Raises Uncomparable where no set of FP32 nodes worth having answers the question.
    """
    found = _found(prepared)
    if Format.BF16 not in found.candidate.decision.formats.values() or prepared.request.plan is not None:
        return found
    if found.candidate.holds(found.context):
        return found
    candidate, context = found.candidate, found.context
    if not context.judge(candidate.decided.sites, candidate.decided.samples.search).affords(Untried.ANEW, 4):
        return found
    plain = _found(replace(prepared, request=replace(prepared.request, allow_bf16=False)))
    return min((plain, found), key=lambda each: each.candidate.ratio(found.context))


def _found(prepared: Prepared) -> Feedback:
    counter = prepared.context.counter
    counter.expect(MOST_LATER)
    found = _searched(prepared)
    counter.expect(0)
    return found


def _searched(prepared: Prepared) -> Feedback:
    request, context, counter = prepared.request, prepared.context, prepared.context.counter
    if _sums_integers(prepared.model):
        context = replace(context, finite=request.plan is None)
    first = _candidate(prepared, context, prepared.journal)
    request.notify("looking for overflows inside, and for what less rounding does")
    searched, forced = request.plan is None, request.choices.forced
    found = feedback_on(first, context, request.profile, searched=searched, forced=forced)
    if found.in_sight is None:
        return found
    counter.expect(MOST_LATER - 1)
    if not _affords_second(found.in_sight, first):
        return replace(found, in_sight=None)
    counter.search_later()
    why = f"the tolerance is missed under {', '.join(found.missed)}" if found.missed else "values overflow inside"
    request.notify(f"searching again: {why}")
    second = _second(prepared, found.in_sight, first)
    counter.expect(0)
    further = in_further_sight(found, second, request.profile)
    if further is not None and _affords_second(further, first):
        counter.search_later()
        request.notify(f"searching again: the tolerance is missed under {further.also[-1].profile.name}")
        second = _second(prepared, further, first)
    return second_feedback(found, second, request.profile)


def _sums_integers(model: Model) -> bool:
    """Whether integers are summed, which FP16 does not hold: what is lost there is kept from the start."""
    return any(node.op_type in INTEGER_SUMS and not node.domain for node in model.nodes)


def _affords_second(in_sight: EvaluationContext, first: Candidate) -> bool:
    """Whether there are runs left for a second search, judged by more profiles than the first."""
    samples = first.decided.samples
    judge, again = (
        in_sight.judge(first.decided.sites, samples.search),
        executions(samples.all) * (2 + len(in_sight.also)),
    )
    return judge.affords(Untried.SECOND, 1 + LEAST_SETS, in_sight.walks.passes + again)


def _candidate(
    prepared: Prepared, context: EvaluationContext, journal: Journal, first: Candidate | None = None
) -> Candidate:
    """A decision, fitted to the target, and what the compiler makes of it; `first` was found before it."""
    decided = search(prepared, context, journal, None if first is None else first.decided)
    if first is not None and decided.diagnosis is None:  # what was wrong with the model as given is known from before
        decided = replace(decided, diagnosis=first.decided.diagnosis)
    decided, proven = (
        (decided, frozenset[str]()) if first is None else spared(decided, context, prepared.request.notify)
    )
    if first is not None:
        decided = replace(decided, kept=_remembered(decided, first.decided))
    fitted = fit(prepared, context, decided)
    statistics = context.seen(decided.sites, decided.samples.search)
    advisories = advisories_for(prepared.request.target, decided.model)
    compiled = compile_decision(prepared, context, decided, fitted.decision, statistics, advisories)
    kept = tuple(each for each in decided.kept if each.node in fitted.decision.formats)
    added = (*fitted.added, *(compiled.added if compiled is not None else ()))
    decision = fitted.decision if compiled is None else compiled.decision
    adjustment = Adjustment(decision, added, (*decided.notes, *fitted.notes))
    return Candidate(adjustment, decided, statistics, advisories, compiled, kept, proven)


def _remembered(decided: Decided, first: Decided) -> tuple[Kept, ...]:
    """With what the first search measured of overflows, where all that it kept is kept: none is measured anew."""
    if not {node.name for node in first.formats} <= {node.name for node in decided.formats}:
        return decided.kept
    without = {each.node.name: each.without for each in first.kept if each.why is Reason.OVERFLOW}
    return tuple(
        replace(each, without=without.get(each.node.name))
        if each.why is Reason.OVERFLOW and each.without is None
        else each
        for each in decided.kept
    )


def _second(prepared: Prepared, in_sight: EvaluationContext, first: Candidate) -> Candidate | None:
    """Searched with the first engine's kernels in sight; None where no such answer is worth having."""
    compiled = any(each.profile.name == ENGINE for each in in_sight.also)
    prepared = replace(prepared, samples=first.decided.samples)  # with the inputs that the first search had missed
    try:
        return _candidate(prepared, in_sight, Journal() if compiled else prepared.journal, first)
    except Uncomparable:
        return None
