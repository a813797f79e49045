"""Second step: which nodes stay in FP32 and which repairs are made, searched for or taken from a plan."""

from __future__ import annotations

from dataclasses import replace

from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan
from halfwise.precision.sites import Sites
from halfwise.repair import check_repairs, reapplied
from halfwise.search.applied_repairs import AppliedRepair
from halfwise.search.context import EvaluationContext
from halfwise.search.hardest import with_hardest
from halfwise.search.held_out import Decided, HeldOutSearch, why_not_bf16
from halfwise.search.journal import Journal
from halfwise.search.places import Uncomparable
from halfwise.search.user_overrides import decided_with
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["search"]


def search(prepared: Prepared, context: EvaluationContext, journal: Journal, first: Decided | None = None) -> Decided:
    """Raises Uncomparable where no set of FP32 nodes worth having answers the question. What was found `first`, by
    another context, is tried first."""
    request = prepared.request
    if request.plan is not None:
        return _applied(prepared, request.plan)
    samples, narrow = prepared.samples, Assignment.all_narrow(prepared.sites, io=request.io_types)
    request.notify("running the all-FP16 model")
    known = context.at_once(prepared.sites, samples.all, narrow)
    if first is None and known is not None:
        samples = with_hardest(samples, known.ratios)
    start = frozenset(node.name or "" for node in first.formats) if first is not None else frozenset[str]()
    job = HeldOutSearch(
        prepared.model,
        context,
        samples,
        request.rules,
        request.choices,
        journal,
        request.allow_bf16,
        request.wants_curve,
        request.notify,
        start,
        tuple(each.repair for each in first.repairs) if first is not None else (),
    )
    try:
        decided = decided_with(request.choices, job.run())
    except Uncomparable:
        journal.withdraw()
        raise
    written_out = (AppliedRepair(repair, ()) for _, repair in prepared.written_out)
    return replace(decided, repairs=(*written_out, *decided.repairs))


def _applied(prepared: Prepared, plan: Plan) -> Decided:
    """The plan's own decision, where the model and the target still allow it."""
    target = prepared.request.target
    check_repairs(plan.repairs, target)
    model = reapplied(prepared.request.model, plan.repairs)
    sites = Sites(model)
    missing = next((node.name for node in plan.nodes if node.name not in model.node_by_name), None)
    if missing is not None:
        told = f"the plan names node {missing!r}, which the model does not have after the plan's repairs"
        raise InputError(f"{told}: run `halfwise fix` again for this model, or give the model of the plan")
    formats = {model.node_by_name[node.name]: node.format for node in plan.nodes}
    bf16 = Sites(model, Format.BF16)
    for node, fmt in formats.items():
        pinned = why_not_bf16(sites, bf16, node) if fmt is Format.BF16 else None
        if why := target.why_not(fmt) or (say(pinned) if pinned is not None else ""):
            raise InputError(f"the plan wants node {node.name!r} in {fmt.value.upper()}: {why}")
    return Decided(model, sites, formats, (), prepared.samples)
