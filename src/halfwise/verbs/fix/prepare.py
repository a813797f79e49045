"""First step: the samples are read and split, the FP32 model is run, and the question is put."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.evaluation import float_outputs
from halfwise.core.formats import Format
from halfwise.core.metric_identity import metric_identity
from halfwise.core.notes import ENDS_A_BUILD, Note, NoteKind
from halfwise.core.output_kinds import kind_notes
from halfwise.core.own_code import code_identity
from halfwise.core.set_aside import set_aside
from halfwise.core.told import Stand, Told
from halfwise.core.tolerance import Tolerance
from halfwise.deploy.layouts import Layouts, layouts_of, takes_layouts
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.profiles import WIDE, Profile, worst_case_profiles
from halfwise.emulation.profiles.caveats import caveats
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.as_taken import samples_as_taken
from halfwise.model.inputs.rollout import executions, trajectories
from halfwise.model.inputs.samples import Samples, load_samples
from halfwise.model.inputs.split import split
from halfwise.model.model import Model, check_outputs
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import least_bytes
from halfwise.repair import Repair, Rule
from halfwise.search.context import EvaluationContext
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Question
from halfwise.search.run_counter import RunCounter, saving_runs
from halfwise.verbs.fix.budget import MOST_BYTES_RUN, check_passes, plan_runs
from halfwise.verbs.fix.model_inputs import InputEffect, input_effects, refuse_ids
from halfwise.verbs.fix.original import original_notes
from halfwise.verbs.fix.question import Questions, ask, questions
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.results_folder import JOURNAL, WALKS, feeds_identity
from halfwise.verbs.fix.time_left import Course, Teller
from halfwise.verbs.fix.typed_file import notes_on_file

__all__ = ["Prepared", "prepare"]

_COPIES = 2  # of a typed model at a time: one that is corrected replaces another; or one with half of it in FP32


@dataclass(frozen=True, eq=False)
class Prepared:
    """What every later step starts from."""

    request: FixRequest
    sites: Sites  # of the model as given
    samples: Samples
    context: EvaluationContext
    journal: Journal
    profiles: tuple[Profile, ...]  # those that judge; the worst counts
    layouts: Layouts
    inputs: tuple[InputEffect, ...]  # what FP16 does to the values of the inputs, where they are handed over so
    tolerance: Tolerance  # as stated
    relaxed: float  # times that error: what the search allows, more where FP32 itself does not keep it
    floats: frozenset[str]  # the outputs that hold real numbers
    notes: tuple[Note, ...]
    course: Course
    written_out: tuple[tuple[Rule, Repair], ...] = ()  # for the target's compiler, before anything is searched

    @property
    def model(self) -> Model:
        """The one that is searched."""
        return self.context.repaired(self.request.model, self.written_out)[0]


def prepare(request: FixRequest) -> Prepared:
    request = _with_fitted_plan(request)
    _check(request)
    room = _COPIES * least_bytes(request.model)
    kept = KeptWalks(request.out / WALKS if request.out is not None else None, room)
    try:
        return _prepared(request, kept)
    except Exception:
        kept.discard()
        raise


def _prepared(request: FixRequest, kept: KeptWalks) -> Prepared:
    for note in request.notes:
        request.notify(Told(say(note), Stand(say(note), stays=note.kind in ENDS_A_BUILD)))
    layouts = _layouts(request)
    profiles = tuple(worst_case_profiles(request.profile))
    # Node by node no kernel is fused: `strict` where a target has a profile.
    teller = Teller(request.notify)
    request = replace(request, notify=teller)
    stream = request.rollout is not None
    emulator = Emulator(profiles[-1], request.device, teller.walked, kept, in_a_row=stream)
    sizes = sizes_that_run(request.model, request.inputs, emulator)
    states = None if request.rollout is None else request.rollout.states
    samples = load_samples(request.model.inputs, request.inputs, sizes=sizes, states=states)
    if request.original is None:
        samples = samples_as_taken(samples, request.model.interface)
    effects = _effects(request, samples)
    saving = saving_runs(request.model, samples) if request.saving_runs is None else request.saving_runs
    counter = RunCounter(saving, request.max_runs)
    request.notify("running the FP32 model")
    samples, steps = _rolled(request, samples, emulator, counter)
    asked = ask(request, samples, emulator, counter, steps)
    request, samples, sites, references = asked.request, asked.samples, asked.sites, asked.references
    answers = references.of(samples.all)
    chosen = split(samples, answers)
    put = questions(asked, _margin(request, profiles), chosen.search, emulator, counter)
    also = tuple(emulator.under(profile) for profile in profiles[:-1])
    io, speed = request.io_types, request.speed
    context = EvaluationContext(emulator, Stepper(emulator), put.searched, io, references, counter, also, speed=speed)
    if request.judge_on_all:
        chosen = replace(chosen, validation=chosen.all)  # in one order: errors are told one after the other
    plan_runs(counter, chosen, len(profiles), context.walks)
    weights = sites.model.weight_bytes
    runs = weights <= MOST_BYTES_RUN
    steps_run, last = executions(chosen.search), len(chosen.search)
    large = emulator.streams(sites.model)
    course = Course(counter, steps_run, check_passes(chosen), runs, kept, weights, last, large)
    teller.follow(course)
    tolerance = put.stated.tolerance
    return Prepared(
        request,
        sites,
        chosen,
        context,
        _journal(request, put.searched, chosen, profiles[0].source),
        profiles,
        layouts,
        effects,
        tolerance,
        put.factor,
        tolerance.floats_among(float_outputs(answers[0])),
        tuple(_notes(request, sites, chosen, profiles, put)),
        course,
    )


def _rolled(
    request: FixRequest, samples: Samples, emulator: Emulator, counter: RunCounter
) -> tuple[Samples, Mapping[int, Mapping[str, NDArray[Any]]]]:
    """The samples as trajectories, where a rollout is asked for, and FP32's answers to them."""
    if request.rollout is None:
        return samples, {}
    request.rollout.check(request.model.inputs, request.model.output_names)
    session = emulator.session(Assignment(Sites(request.model), {}))

    def run(feed: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        counter.add(1)
        widened = widen_feeds(feed)
        return set_aside(session.run({name: widened[name] for name in session.input_names}))

    return trajectories(samples, request.rollout, run)


def _check(request: FixRequest) -> None:
    """Refuse before any work what could not be done after it."""
    if why := request.target.why_not(request.io_types):
        raise InputError(f"--io-types {request.io_types.value}: {why}")
    if request.allow_bf16 and (why := request.target.why_not(Format.BF16)):
        raise InputError(f"--allow bf16: {why}")
    check_outputs(request.model)


def _with_fitted_plan(request: FixRequest) -> FixRequest:
    """With what its plan says of this model, which may have other weights than the plan was made for."""
    if request.plan is None:
        return request
    plan = request.plan.fitted(request.model)
    given = "" if request.original is None else request.original.model.sha256
    if plan.sha256 == request.plan.sha256 or bool(plan.reference_sha256) != bool(given):
        _check_reference(request.plan, given)
        return request
    notes = (*request.notes, Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS))
    return replace(request, plan=replace(plan, reference_sha256=given), notes=notes)


def _check_reference(plan: Plan, given: str) -> None:
    """A plan that was made beside an original is judged beside one."""
    if (plan.sha256 or plan.reference_sha256) and plan.reference_sha256 != given:
        if not plan.reference_sha256:
            raise InputError("the plan was made without a reference: leave --reference out")
        wanted = plan.reference_sha256[:12]
        raise InputError(f"the plan was made with a reference: give its file with --reference (sha256 {wanted}...)")


def _layouts(request: FixRequest) -> Layouts:
    """Those that were asked for; else the plan's, where the target takes any."""
    stated, said = list(request.io_formats), "--io-formats"
    if not stated:
        said = "io_formats"
        if request.plan is not None and takes_layouts(request.target):
            stated = [f"{name}={'+'.join(layouts)}" for name, layouts in request.plan.io_formats.items()]
    return layouts_of(request.model, request.target, request.io_types, stated, said)


def _effects(request: FixRequest, samples: Samples) -> tuple[InputEffect, ...]:
    if request.io_types is not Format.FP16:
        return ()
    effects = input_effects(request.model, samples.all)
    refuse_ids(effects)
    return effects


def _margin(request: FixRequest, profiles: Sequence[Profile]) -> float:
    if request.margin is not None:
        return request.margin
    return max(profile.spread_of(request.model.nodes) for profile in profiles)


def _journal(request: FixRequest, question: Question, samples: Samples, learned: str) -> Journal:
    if request.out is None or request.plan is not None:
        return Journal()
    identity = digest(
        code_identity(),
        request.model.sha256,
        request.model.data_stamp,
        *([] if request.original is None else [request.original.model.sha256, request.original.model.data_stamp]),
        request.profile,
        question.margin,
        request.io_types,
        question.tolerance.to_json(),
        [kind.to_json() for kind in question.tolerance.kinds],
        metric_identity(request.metric),
        request.allow_bf16,
        [rule.id for rule in request.rules],
        *([sorted(request.choices.kept), sorted(request.choices.forced)] if request.choices else ()),
        feeds_identity(samples.all),
        *([learned] if learned else []),
        *([request.device] if request.device != "cpu" else []),
        *([request.rollout] if request.rollout is not None else []),
    )
    journal = Journal(request.out / JOURNAL, identity)
    if journal.resumed:
        request.notify(f"resuming an interrupted search ({journal.resumed} measurements kept)")
    return journal


def _notes(
    request: FixRequest, sites: Sites, chosen: Samples, profiles: Sequence[Profile], put: Questions
) -> Iterator[Note]:
    yield from kind_notes(put.stated.tolerance.kinds)
    yield from notes_on_file(request.model) if request.original is None else original_notes(request.original)
    yield from request.notes
    yield from chosen.notes
    yield from request.target.cautions
    yield from _cautions(request, sites, profiles, put.searched.margin)
    yield from put.notes


def _cautions(request: FixRequest, sites: Sites, profiles: Sequence[Profile], margin: float) -> Iterator[Note]:
    if len(profiles) > 1:
        names = [f"{p.name}{' (inferred)' if p.inferred else ''}" for p in (*profiles, WIDE)]
        source = "of the profiles" if request.margin is None else "by --margin"
        yield Note.of(NoteKind.WORST_OF_PROFILES, profiles=names, margin=margin, source=source)
        if loose := next((node for node in request.model.nodes if any(p.loose(node) for p in profiles)), None):
            yield Note.of(NoteKind.LOOSELY_MODELLED, loose.name, op=loose.op_type)
    yield from caveats(profiles[0], request.model.nodes)
    if sites.random is not None:
        yield Note.of(NoteKind.RANDOM_NODE, sites.random)
