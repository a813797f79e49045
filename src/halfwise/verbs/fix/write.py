"""Last step: the plan is made, and the model, the plan and what the target needs are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.deploy_files import Handover
from halfwise.deploy.engine_files import audited_on
from halfwise.deploy.targets import kind_of
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.patterns.phases import PhaseWays
from halfwise.model.patterns.view import View
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.sites import Site
from halfwise.search.reasons import explain
from halfwise.search.user_overrides import wanted_nodes
from halfwise.verbs.fix.cost import casts_of
from halfwise.verbs.fix.engine_samples import engine_samples
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.parts import FixDecision, FixFiles
from halfwise.verbs.fix.prepare import Prepared
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.results_folder import write_results

__all__ = ["Written", "write"]


@dataclass(frozen=True, eq=False)
class Written:
    """The decision with its plan, the files that say it, and the casts in them."""

    decision: FixDecision
    files: FixFiles
    casts: int
    notes: tuple[Note, ...]


def write(prepared: Prepared, found: Feedback) -> Written:
    """Without a folder nothing is written, and the same is known."""
    request, candidate = prepared.request, found.candidate
    if request.model.files and not request.model.data_hash.begun.done():
        request.notify("reading all weights for their SHA-256")
    prepared.course.checked()
    plan = _plan(prepared, found)
    assignment, typed, plan_path = kind_of(request.target).as_written(candidate.decision.assignment), None, None
    if request.out is not None:
        walked = prepared.context.emulator.walked
        typed, plan_path = write_results(request.out, request.model.path, assignment, plan, request.notify, walked)
    handover = Handover(
        request.target,
        candidate.decision,
        candidate.decided.samples,
        typed.path if typed is not None else None,
        plan_path,
        repaired=bool(plan.repairs) or request.stored is not None,
        compiled=candidate.compiled,
        advisories=candidate.advisories,
        layouts=prepared.layouts,
        notify=request.notify,
        time_limit_s=request.time_limit_s,
    )
    deploy_files = kind_of(request.target).deploy(handover)
    samples = candidate.decided.samples
    run_on = None
    if deploy_files.script is not None and deploy_files.outputs is not None:
        name = deploy_files.outputs.name.removesuffix(".engine-outputs")
        run_on = engine_samples(request.inputs, samples, deploy_files.outputs.with_name(f"{name}.samples"))
        deploy_files = audited_on(deploy_files, request.target, run_on)
    clamped = _own_weights(request, typed.clamped if typed is not None else ())
    notes = [Note.of(NoteKind.CLAMPED_WEIGHTS, count=len(clamped), names=clamped)] if clamped else []
    sites = candidate.decided.sites
    pinned = tuple(_pinned(site) for site in sites.pinned)
    return Written(
        FixDecision(request.model, plan, sites, pinned, samples, request.plan is not None),
        FixFiles(typed, plan_path, deploy_files, samples=run_on),
        typed.casts if typed is not None else casts_of(assignment),
        (*notes, *deploy_files.notes),
    )


def _own_weights(request: FixRequest, clamped: Sequence[str]) -> tuple[str, ...]:
    """Without numbers in the steps of operators that the target does not read, as of a mask: no weight holds them."""
    if request.stored is None:
        return tuple(clamped)
    numbers = {each.name for each in request.model.initializers() if each.const_value and each.const_value.size == 1}
    return tuple(name for name in clamped if name not in numbers or name in request.stored.value_names)


def _plan(prepared: Prepared, found: Feedback) -> Plan:
    request, decided = prepared.request, found.candidate.decided
    given = request.plan
    return Plan(
        model=request.model.path.name if request.model.path else "",
        sha256=request.model.sha256,
        data_sha256=request.model.data_sha256,
        reference_sha256=request.original.model.sha256 if request.original is not None else "",
        graph_sha256=graph_sha256(request.model),
        node_count=request.model.stored_nodes,
        target=str(request.target),
        profile=request.profile,
        profile_sha256=prepared.profiles[0].source,
        tolerance=prepared.tolerance,
        io_types=request.io_types,
        io_formats={name: each for name, each in prepared.layouts.of.items() if each != ("chw",)},
        inputs=decided.samples.origin,
        rollout=request.rollout,
        nodes=found.explained((*_nodes(prepared, found), *found.candidate.adjustment.added)),
        repairs=given.repairs if given is not None else tuple(repair.document() for repair in decided.repairs),
    )


def _nodes(prepared: Prepared, found: Feedback) -> tuple[PlannedNode, ...]:
    """The plan's own nodes where one was given; else those that the search kept and that the user asked for."""
    request, candidate = prepared.request, found.candidate
    if request.plan is not None:
        return request.plan.nodes
    sites, statistics, formats = candidate.decided.sites, candidate.statistics, candidate.decision.formats
    phases = PhaseWays(View(sites.model))
    kept = [explain(each, sites, statistics, formats[each.node], phases) for each in candidate.kept]
    order = {site.name: site.index for site in sites.all}
    return tuple(sorted((*kept, *wanted_nodes(request.choices, sites, statistics)), key=lambda node: order[node.name]))


def _pinned(site: Site) -> PlannedNode:
    because = (site.pinned,) if site.pinned is not None else ()
    return PlannedNode(site.name, site.op, Format.FP32, Reason.PINNED, because)
