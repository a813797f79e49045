"""One run of the main job: samples, search or plan, compiler, verdict, files; each step in its own room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise._version import __version__
from halfwise.compiler.compiled import Compiled, Decision, as_listed
from halfwise.compiler.fusion import with_fusion
from halfwise.core.answers import check_answers
from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.metric_identity import metric_identity
from halfwise.core.metrics import OutputMetric, is_float
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.targets import Target
from halfwise.core.tolerance import Tolerance
from halfwise.deploy.advisories import Advisory
from halfwise.deploy.advisories.suspect_kernels import suspect_kernels
from halfwise.deploy.deploy_files import Handover, advisories_for
from halfwise.deploy.layouts import layouts_of, takes_layouts
from halfwise.deploy.onnxruntime.settling import Settled
from halfwise.deploy.targets import kind_of
from halfwise.emulation.emulate import Emulator, carry_feeds
from halfwise.emulation.ort import Device
from halfwise.emulation.profiles import worst_case_profiles
from halfwise.emulation.stepper import Stepper
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.inputs.samples import load_samples
from halfwise.model.inputs.split import split
from halfwise.model.model import Model, check_outputs
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.sites import Site, Sites
from halfwise.precision.typed_onnx import TypedModel
from halfwise.repair import Rule, check_repairs, reapplied
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided, HeldOutSearch, why_not_bf16
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Question
from halfwise.search.lossy_cost import lossy_costs
from halfwise.search.places import Uncomparable
from halfwise.search.reasons import explain
from halfwise.search.references import References
from halfwise.search.repair_selector import ranges_of
from halfwise.search.run_counter import RunCounter
from halfwise.search.search import Kept
from halfwise.search.tensor_statistics import TensorStatistics, tensor_statistics
from halfwise.search.user_overrides import decided_with, missed_because_forced, replaced_note, wanted_nodes
from halfwise.verbs.fix.cost import casts_of, cost_of
from halfwise.verbs.fix.engine_feedback import Found, judged_by_own_kernels, spared
from halfwise.verbs.fix.model_inputs import InputEffect, input_effects, input_findings, measured_effects, refuse_ids
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.results_folder import JOURNAL, check_folder, feeds_identity, write_results

__all__ = ["Job"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


@dataclass
class Job:
    """One run of the main job, with all that was asked of it."""

    model: Model
    inputs: Any
    out: Path | None
    tolerance: Sequence[str] | Tolerance
    metric: OutputMetric | None
    target: Target
    profile: str
    io_types: Format
    io_formats: Sequence[str]
    allow_bf16: bool
    rules: tuple[Rule, ...]
    choices: Choices
    given: Plan | None
    judge_on_all: bool
    wants_curve: bool
    time_limit_s: float
    margin: float | None
    layers: Path | None
    device: Device
    notify: Callable[[str], None]

    def run(self) -> FixResult:
        started = time.perf_counter()
        if self.out is not None:
            check_folder(self.out)
        if self.given is not None:
            self.given.check(self.model)
        if self.allow_bf16 and (why := self.target.why_not(Format.BF16)):
            raise InputError(f"--allow bf16: {why}")
        check_outputs(self.model)
        stated, said = (self.io_formats, "--io-formats") if self.io_formats else (self._planned_layouts(), "io_formats")
        layouts = layouts_of(self.model, self.target, self.io_types, stated, said)
        self.samples = load_samples(self.model.inputs, self.inputs)
        effects: tuple[InputEffect, ...] = ()
        if self.io_types is Format.FP16:
            effects = input_effects(self.model, (*self.samples.search, *self.samples.validation))
            refuse_ids(effects)
        profiles = worst_case_profiles(self.profile)
        emulator = Emulator(
            profiles[-1], self.device
        )  # node by node no kernel is fused: `strict` where a target has a profile
        self.stepper = Stepper(emulator)
        sites = Sites(self.model)
        feeds = (*self.samples.search, *self.samples.validation)
        counter = RunCounter()
        known = References(sites, emulator, counter)
        self.notify("the FP32 model")
        references = known.of(feeds)
        check_answers(references)
        self.samples = split(self.samples, references)
        if self.judge_on_all:
            self.samples = replace(self.samples, validation=feeds)
        margin = max(p.spread_of(self.model.nodes) for p in profiles) if self.margin is None else self.margin
        self.question = Question(self._tolerance(references[0]), self.metric, len(feeds), margin)
        also = tuple(Emulator(profile, self.device) for profile in profiles[:-1])
        self.context = EvaluationContext(emulator, self.stepper, self.question, self.io_types, known, counter, also)
        self.journal = self._open_journal()
        self.notes: list[Note] = [*self.samples.notes, *self.target.cautions]
        if len(profiles) > 1:
            names = [f"{p.name}{' (inferred)' if p.inferred else ''}" for p in profiles]
            source = "of the profiles" if self.margin is None else "by --margin"
            self.notes.append(Note.of(NoteKind.WORST_OF_PROFILES, profiles=names, margin=margin, source=source))
            if loose := next((node for node in self.model.nodes if any(p.loose(node) for p in profiles)), None):
                self.notes.append(Note.of(NoteKind.LOOSELY_MODELLED, loose.name, op=loose.op_type))
        if sites.random is not None:
            self.notes.append(Note.of(NoteKind.RANDOM_NODE, sites.random))
        searched = len(self.samples.search)
        again = self._search_again if self.given is None else None
        judged = judged_by_own_kernels(self._found(self.journal), self.context, self.profile, again, self.notify)
        found, self.context = judged.found, judged.context
        decided, statistics, compiled, formats = found.decided, found.statistics, found.compiled, dict(found.formats)
        self.samples, self.sites = decided.samples, decided.sites
        self.notes += [*found.notes, *self._lossy_costs(sites)]
        validation = self.context.judge(self.sites, self.samples.validation)
        self.notify("verifying on held-out inputs")
        fp16 = judged.plain.judge(sites, self.samples.validation).measure(
            Assignment.all_narrow(sites, io=self.io_types)
        )
        decision = self._assignment(formats)
        fixed = validation.measure(decision)
        by_profile = (
            {name: seen.ratio for name, seen in validation.by_profile(decision).items()} if profiles[1:] else {}
        )
        effects = measured_effects(effects, validation)
        at_border = tuple(input_findings(effects))
        self.notes += [
            Note.of(NoteKind.INPUT_FINDING, each.where.name, rule=each.rule, message=each.message, remedy=each.remedy)
            for each in at_border
        ]
        if not fixed.met and (
            forced := missed_because_forced(
                self.choices, self.sites, formats, self.io_types, lambda other: validation.measure(other).met
            )
        ):
            self.notes.append(forced)
        nodes = found.explained((*self._planned(formats, found.kept, statistics), *found.added))
        tolerance = self.question.tolerance
        final = Plan(
            model=self.model.path.name if self.model.path else "",
            sha256=self.model.sha256,
            data_sha256=self.model.data_sha256,
            graph_sha256=graph_sha256(self.model),
            node_count=self.model.stored_nodes,
            target=str(self.target),
            profile=self.profile,
            tolerance=tolerance,
            io_types=self.io_types,
            io_formats={name: each for name, each in layouts.of.items() if each != ("chw",)},
            inputs=self.samples.origin,
            nodes=nodes,
            repairs=self.given.repairs if self.given is not None else tuple(b.document() for b in decided.repairs),
        )
        typed, plan_path = self._write(decision, final)
        casts = typed.casts if typed is not None else casts_of(decision)
        if typed is not None and typed.clamped:
            self.notes.append(Note.of(NoteKind.CLAMPED_WEIGHTS, count=len(typed.clamped), names=typed.clamped))
        delivery = kind_of(self.target).deploy(
            Handover(
                self.target,
                Decision(self.sites, formats, self.io_types),
                self.samples,
                typed.path if typed is not None else None,
                plan_path,
                repaired=bool(final.repairs),
                compiled=compiled,
                advisories=found.advisories,
                layouts=layouts,
                notify=self.notify,
                time_limit_s=self.time_limit_s,
            )
        )
        self.notes += delivery.notes
        floats = {name for name, array in references[0].items() if is_float(array.dtype)}
        result = FixResult(
            model=self.model,
            plan=final,
            sites=self.sites,
            fp16=fp16.outputs,
            fixed=fixed.outputs,
            floats=frozenset(floats),
            fp16_verdict=tolerance.verdict(fp16.outputs, floats, fp16.user_metric),
            verdict=tolerance.verdict(fixed.outputs, floats, fixed.user_metric),
            pinned=tuple(_pinned(site) for site in self.sites.pinned),
            cost=cost_of(
                self.context.counter.passes(searched),
                time.perf_counter() - started,
                casts,
                self.sites,
                statistics,
                formats,
            ),
            samples=self.samples,
            notes=tuple(dict.fromkeys(self.notes)),
            curve=decided.curve,
            typed=typed,
            plan_path=plan_path,
            delivery=delivery,
            ranges=statistics.ranges(),
            border=effects,
            border_findings=at_border,
            by_profile=by_profile,
            diagnosis=decided.diagnosis,
        )
        self.journal.discard()
        return result

    # -- preparing --------------------------------------------------------------------------------------------------

    def _tolerance(self, reference: Mapping[str, Array]) -> Tolerance:
        floats = {name for name, array in reference.items() if is_float(array.dtype)}
        if self.given is not None and not self.tolerance:
            stated = self.given.tolerance
        elif isinstance(self.tolerance, Tolerance):
            stated = self.tolerance
        else:
            stated = Tolerance.parse(self.tolerance, reference, floats, user_metric=self.metric is not None)
        stated.check_outputs(reference)
        if stated.uses_user_metric and self.metric is None:
            raise InputError("the plan's tolerance bounds a function of yours: name it with --metric")
        return stated

    def _planned_layouts(self) -> list[str]:
        """Those of the plan, where the target takes any."""
        if self.given is None or not takes_layouts(self.target):
            return []
        return [f"{name}={'+'.join(layouts)}" for name, layouts in self.given.io_formats.items()]

    def _open_journal(self) -> Journal:
        if self.out is None or self.given is not None:
            return Journal()
        identity = digest(
            __version__,
            self.model.sha256,
            self.model.data_sha256,
            self.profile,
            self.question.margin,
            self.io_types,
            self.question.tolerance.to_json(),
            metric_identity(self.metric),
            self.allow_bf16,
            [rule.id for rule in self.rules],
            *([sorted(self.choices.kept), sorted(self.choices.forced)] if self.choices else ()),
            feeds_identity((*self.samples.search, *self.samples.validation)),
            *([self.device] if self.device != "cpu" else []),
        )
        journal = Journal(self.out / JOURNAL, identity)
        if journal.resumed:
            self.notify(f"going on where an interrupted search stopped ({journal.resumed} measurements kept)")
        return journal

    # -- deciding ---------------------------------------------------------------------------------------------------

    def _found(self, journal: Journal, *, spare: bool = False) -> Found:
        """A decision, and what the compiler makes of it."""
        try:
            decided = self._decide(journal) if self.given is None else self._apply(self.given)
        except Uncomparable:
            journal.withdraw()
            raise
        decided, proven = spared(decided, self.context, self.notify) if spare else (decided, frozenset())
        self.samples, self.sites = decided.samples, decided.sites
        replaced = replaced_note(self.choices, self.sites)
        settled = self._settled(decided.formats)
        statistics = tensor_statistics(self.stepper, self.sites, carry_feeds(self.samples.search[0]))
        advisories = advisories_for(self.target, self.sites.model)
        compiled = self._compile(settled.formats, statistics, advisories)
        return Found(
            decided,
            statistics,
            advisories,
            compiled,
            settled.formats if compiled is None else dict(compiled.decision.formats),
            tuple(each for each in decided.kept if each.node in settled.formats),
            (*settled.added, *(compiled.added if compiled is not None else ())),
            (*decided.notes, *([replaced] if replaced else []), *settled.notes),
            proven,
        )

    def _search_again(self, context: EvaluationContext) -> Found:
        self.context = context
        return self._found(Journal(), spare=True)

    def _decide(self, journal: Journal) -> Decided:
        search = HeldOutSearch(
            self.model,
            self.context,
            self.samples,
            self.rules,
            self.choices,
            journal,
            self.allow_bf16,
            self.wants_curve,
            self.notify,
        )
        return decided_with(self.choices, search.run())

    def _apply(self, plan: Plan) -> Decided:
        check_repairs(plan.repairs, self.target)
        model = reapplied(self.model, plan.repairs)
        sites = Sites(model)
        missing = next((node.name for node in plan.nodes if node.name not in model.node_by_name), None)
        if missing is not None:
            raise InputError(f"the plan names node {missing!r}, which the model does not have after the plan's repairs")
        formats = {model.node_by_name[node.name]: node.format for node in plan.nodes}
        bf16 = Sites(model, Format.BF16)
        for node, fmt in formats.items():
            pinned = why_not_bf16(sites, bf16, node) if fmt is Format.BF16 else None
            if why := self.target.why_not(fmt) or (say(pinned) if pinned is not None else ""):
                raise InputError(f"the plan wants node {node.name!r} in {fmt.value.upper()}: {why}")
        return Decided(model, sites, formats, (), self.samples)

    def _settled(self, formats: dict[ir.Node, Format]) -> Settled:
        judge = self.context.judge(self.sites, self.samples.search)
        decision = Decision(self.sites, formats, self.io_types)
        stated = {*self.choices.kept, *self.choices.forced}
        given = self.given is not None
        return kind_of(self.target).adjust(
            self.target, decision, lambda other: judge.measure(other).unseen_bound, stated=stated, given=given
        )

    def _compile(
        self, formats: dict[ir.Node, Format], statistics: TensorStatistics, advisories: Sequence[Advisory]
    ) -> Compiled | None:
        """What the target's compiler makes of the decision, or one that can stand for it."""
        if self.layers is not None:
            return as_listed(Decision(self.sites, formats, self.io_types), self.layers)
        compiler = kind_of(self.target).compiler(self.target)
        if compiler is None:
            return None
        judge = self.context.judge(self.sites, self.samples.search)
        compiled = compiler(
            Decision(self.sites, formats, self.io_types),
            samples=(*self.samples.search, *self.samples.validation),
            sizes=statistics.sizes,
            suspects=suspect_kernels(advisories),
            holds=(lambda assignment: judge.measure(assignment).met) if self.given is None else None,
            folder=self.out,
            notify=self.notify,
            time_limit_s=self.time_limit_s,
            forced=self.choices.forced,
        )
        if self.sites.model.ir is self.model.ir:  # not repaired
            return compiled
        samples = (*self.samples.search, *self.samples.validation)
        return with_fusion(compiled, Sites(self.model), samples, self.out, self.notify, self.time_limit_s)

    def _lossy_costs(self, sites: Sites) -> Iterator[Note]:
        if not any(rule.lossy for rule in self.rules):
            return iter(())
        self.notify("measuring what lossy repairs cost")
        statistics = [tensor_statistics(self.stepper, sites, carry_feeds(feed)) for feed in self.samples.search]
        judge_of = partial(self.context.judge, feeds=self.samples.validation)
        return lossy_costs(self.rules, self.model, ranges_of(statistics), judge_of, self.io_types)

    def _assignment(self, formats: dict[ir.Node, Format]) -> Assignment:
        return Assignment.excepting(self.sites, formats, self.io_types)

    # -- writing ----------------------------------------------------------------------------------------------------

    def _planned(
        self, formats: Mapping[ir.Node, Format], kept: Sequence[Kept], statistics: TensorStatistics
    ) -> tuple[PlannedNode, ...]:
        if self.given is not None:
            return self.given.nodes
        found = [explain(each, self.sites, statistics, formats[each.node]) for each in kept]
        order = {site.name: site.index for site in self.sites.all}
        return tuple(
            sorted((*found, *wanted_nodes(self.choices, self.sites, statistics)), key=lambda node: order[node.name])
        )

    def _write(self, decision: Assignment, plan: Plan) -> tuple[TypedModel | None, Path | None]:
        if self.out is None:
            return None, None
        return write_results(self.out, self.model.path, decision, plan, self.notify)


def _pinned(site: Site) -> PlannedNode:
    because = (site.pinned,) if site.pinned is not None else ()
    return PlannedNode(site.name, site.op, Format.FP32, Reason.PINNED, because)
