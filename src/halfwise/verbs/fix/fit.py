"""Third step: the decision is adjusted to what the target can load and fuse."""

from __future__ import annotations

from halfwise.deploy.targets import kind_of
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.quantised_groups import keep_groups_whole
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.user_overrides import replaced_note
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["fit"]


def fit(prepared: Prepared, context: EvaluationContext, decided: Decided) -> Adjustment:
    """Of a plan, only what there is to say: it stays as it is."""
    request, choices = prepared.request, prepared.request.choices
    judge = context.judge(decided.sites, decided.samples.search)

    def ratio(other: Assignment) -> float:
        return judge.measure(other).unseen_bound

    stated = {*choices.kept, *choices.forced}
    found = kind_of(request.target).adjust(
        request.target,
        Decision(decided.sites, decided.formats, request.io_types),
        ratio,
        stated=stated,
        given=request.plan is not None,
    )
    if request.plan is None:
        found = keep_groups_whole(found, stated)
    replaced = replaced_note(choices, decided.sites)
    return Adjustment(found.decision, found.added, (*([replaced] if replaced else []), *found.notes))
