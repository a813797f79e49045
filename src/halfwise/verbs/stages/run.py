"""Runs a model stage by stage: each alone in FP16, then chained, and looks for the nodes that make a stage wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError, of_sample
from halfwise.core.evaluation import Evaluation, SampleError, float_outputs, sample_error
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.output_kinds import OutputKind, Reading, kind_notes
from halfwise.core.tolerance import EVERY_OUTPUT, USER_METRIC, Tolerance
from halfwise.core.wording import listed
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.first_not_finite import told_where_not_finite
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.ort import AnySession
from halfwise.emulation.profiles import Profile, profile_named
from halfwise.emulation.profiles.caveats import caveats
from halfwise.emulation.stepper import Stepper
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.all_samples import AllSamples, all_samples
from halfwise.model.model import Model, load_to_run
from halfwise.model.outputs.kinds import OutputFacts, facts_of, kinds_of
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.fix.original import put_back
from halfwise.verbs.stages.culprits import find_culprits
from halfwise.verbs.stages.cut import Piece, cut_at_scopes, cut_at_tensors, needed_by
from halfwise.verbs.stages.document import FindingOfStage
from halfwise.verbs.stages.emit import StageFolder
from halfwise.verbs.stages.parts import Part, parts_of
from halfwise.verbs.stages.result import (
    GOOD,
    IN_COMBINATION,
    INHERITS,
    SPREADS,
    WRONG,
    Run,
    Stage,
    StagesResult,
    Upto,
)
from halfwise.verbs.stages.teller import StageTeller
from halfwise.verbs.stages.upto import later_nodes, plan_upto
from halfwise.verbs.stages.waists import cut_at_waists

__all__ = ["stages"]

Array = NDArray[Any]
Feed = dict[str, Array]


def stages(
    model: str | Path | onnx.ModelProto | Model,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    cut: Sequence[str] = (),
    depth: int = 1,
    tolerance: Sequence[str] | Tolerance = (),
    profile: str = "strict",
    reference: str | Path | onnx.ModelProto | Model | None = None,
    out: str | Path | None = None,
    upto: str | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> StagesResult:
    """Cut a model at its modules (or at the tensors in `cut`), run every stage alone and chained, and compare.

    `inputs` are files or folders, or samples as dictionaries of arrays; none makes synthetic ones. The tolerance holds
    for what every stage hands on, too: a bound on `*` for all of it, one on an output for that. With `out`, each stage
    is written as a model of its own, with its FP32 inputs. `upto` names the last stage in FP16 and makes a plan with
    everything after it in FP32. `reference` is the FP32 original of a model that is typed already: its weights are
    taken.
    """
    model, told = put_back(fp32_model(model if isinstance(model, Model) else load_to_run(model)), reference)
    sites = Sites(model)
    if not sites.all:
        raise InputError(f"{model.path or 'the model'} has no nodes to cut into stages; give the whole model")
    pieces, evenly = _cut(sites, cut, depth)
    last = _stage_named(upto, pieces) if upto is not None else None
    folder = StageFolder(Path(out), model) if out is not None else None
    samples = all_samples(model.inputs, inputs, sizes=sizes_that_run(model, inputs))
    asked = _asked(model, pieces, tolerance)
    line = _Line(model, sites, pieces, samples, profile_named(profile), asked, folder, notify)
    found = line.run()
    model.stamps.check()
    first = widen_feeds(samples.feeds[0])
    lost = told_where_not_finite(line.answers, samples.notes, sites, Stepper(Emulator(line.profile)), first)
    whole = line.whole()
    near_zero = line.whole_tolerance.decided_by_floor(whole.outputs)
    stepping = Note.of(NoteKind.QUANTISERS_STEP, names=line.stepping)
    read = (
        *((stepping,) if line.stepping else ()),
        *kind_notes(line.whole_tolerance.kinds, whole.outputs),
        *(Note.of(NoteKind.OUTPUT_FLOOR, name, error=error) for name, error in near_zero.items()),
    )
    result = StagesResult(
        stages=found,
        whole=whole,
        floats=line.whole_tolerance.floats_among(line.floats),
        tolerance=line.tolerance,
        profile=profile,
        samples=len(samples.feeds),
        inputs=samples.origin,
        notes=(*told, *evenly, *read, *lost, *samples.notes, *caveats(line.profile, model.nodes), *_random(sites)),
        model=model.path.name if model.path else "",
    )
    if last is None:
        return result
    notify(f"running with everything after {pieces[last].name} in FP32")
    keep = later_nodes(sites, pieces[last + 1 :])
    whole = line.run_whole(keep)
    planned = plan_upto(sites, pieces[last].name, keep, line.whole_tolerance, profile, samples.origin)
    path = folder.write_plan(planned, pieces[last].name) if folder is not None else None
    return replace(result, upto=Upto(pieces[last].name, planned, whole, path))


def _cut(sites: Sites, tensors: Sequence[str], depth: int) -> tuple[tuple[Piece, ...], tuple[Note, ...]]:
    """The stages, and what there is to say of where they end."""
    if tensors:
        return cut_at_tensors(sites.model, tensors), ()
    pieces = cut_at_scopes(sites, depth)
    if pieces:
        return pieces, ()
    pieces = cut_at_waists(sites)
    evenly = Note.of(NoteKind.CUT_EVENLY, stages=len(pieces))
    return pieces, (evenly if len(pieces) > 1 else Note.of(NoteKind.NOT_CUT),)


@dataclass(frozen=True, eq=False)
class _Runs:
    """A stage, ready to run, and what is allowed of what it hands on."""

    part: Part
    bounds: Tolerance
    fp32: AnySession
    fp16: AnySession


@dataclass(frozen=True, eq=False)
class _Line:
    """All samples going through the stages, one stage at a time: in FP32 and in FP16, side by side."""

    model: Model
    sites: Sites
    pieces: Sequence[Piece]
    samples: AllSamples
    profile: Profile
    asked: Callable[[Sequence[OutputKind]], Tolerance]
    folder: StageFolder | None
    notify: Callable[[str], None]
    floats: set[str] = field(default_factory=set)
    stepping: list[str] = field(default_factory=list)  # stages whose quantisers make steps of TF32's rounding, too
    broken: set[str] = field(default_factory=set)  # tensors whose chained error breaks the tolerance

    @cached_property
    def exact(self) -> list[Feed]:
        """The live tensors of each sample in FP32."""
        return [dict(widen_feeds(feed)) for feed in self.samples.feeds]

    @cached_property
    def narrow(self) -> list[Feed]:
        """The same behind stages in FP16."""
        return [dict(feed) for feed in self.exact]

    @cached_property
    def answers(self) -> list[Feed]:
        """What tells of the whole model, of each sample: its outputs in FP32, and tensors inside that judge them."""
        return [{} for _ in self.samples.feeds]

    @cached_property
    def given(self) -> list[Feed]:
        """The same behind stages in FP16."""
        return [{} for _ in self.samples.feeds]

    @cached_property
    def facts(self) -> OutputFacts:
        return facts_of(self.model)

    @property
    def judging(self) -> tuple[str, ...]:
        """What tells of the whole model."""
        return (*self.model.output_names, *self.facts.inner)

    @cached_property
    def last_use(self) -> dict[str, int]:
        return {**_last_use(self.pieces), **dict.fromkeys(self.facts.inner, len(self.pieces))}

    @cached_property
    def tolerance(self) -> Tolerance:
        """With how the outputs are read, once all stages have run."""
        return self.asked(self._kinds(self.model.output_names, self.answers))

    @property
    def whole_tolerance(self) -> Tolerance:
        return _for(self.tolerance, self.model.output_names)

    def run(self) -> tuple[Stage, ...]:
        found, teller = [], StageTeller(self.notify, len(self.pieces), time.monotonic())
        for index, part in enumerate(parts_of(self.sites, self.pieces)):
            found.append(self._stage(index, part, teller.of(index, part.name)))
            self._drop_after(index)
        return tuple(found)

    def whole(self) -> Run:
        """What the last of the chain gave, which is the whole model in FP16."""
        return self._whole(self.given)

    def run_whole(self, keep: frozenset[ir.Node]) -> Run:
        """The whole model with these nodes in FP32."""
        watched = Sites(replace(self.model, watched=self.whole_tolerance.inner))
        session = Emulator(self.profile).session(Assignment.all_narrow(watched, keep))
        return self._whole(_run(session, widen_feeds(feed)) for feed in self.samples.feeds)

    def _whole(self, given: Iterable[Feed]) -> Run:
        bounds = self.whole_tolerance
        names = [name for name in (*self.model.output_names, *bounds.inner) if name in self.answers[0]]
        wanted = [{name: each[name] for name in names} for each in self.answers]
        pairs = zip(wanted, given, strict=True)
        return self._together([sample_error(right, got, kinds=bounds.kinds) for right, got in pairs], bounds)

    def _stage(self, index: int, part: Part, notify: Callable[[str], None]) -> Stage:
        emulator = Emulator(self.profile)
        sites = Sites(replace(part.model, watched=self.facts.inner))
        formats = {site.node: sites.fmt for site in sites.free if site.name not in part.fixed}
        fp32, fp16 = (emulator.session(Assignment(sites, chosen)) for chosen in ({}, formats))
        wanted = [_of_sample(index, fp32, exact) for index, exact in enumerate(self.exact)]
        known = [{**exact, **found} for exact, found in zip(self.exact, wanted, strict=True)]
        bounds = _for(self.asked(self._kinds(part.outputs, known)), part.outputs)
        errors = [
            self._pass_on(_Runs(part, bounds, fp32, fp16), *sample)
            for sample in zip(wanted, self.exact, self.narrow, self.answers, self.given, strict=True)
        ]
        alone, chained, propagated = (self._together(each, bounds) for each in zip(*errors, strict=True))
        stage = Stage(
            name=part.name,
            nodes=len(part.model.nodes),
            compute_nodes=sites.compute_nodes,
            inputs=part.inputs,
            outputs=part.outputs,
            alone=alone,
            chained=chained,
            propagated=propagated,
            finding=self._finding(part, alone, chained, propagated),
            onnx=self.folder.write_stage(index, part, self.exact) if self.folder is not None else None,
        )
        self.broken.update(n for n, metrics in chained.outputs.items() if not self._keeps(n, metrics, bounds))
        if stage.finding != WRONG:
            return stage
        notify("looking for the culprits")
        feeds = [{name: feed[name] for name in part.inputs} for feed in self.exact]
        judged = Sites(replace(part.model, watched=bounds.inner))
        found = find_culprits(judged, emulator, bounds, feeds, notify)
        if found.steps:
            self.stepping.append(part.name)
        return replace(stage, culprits=found.nodes, corrected=found.ratio)

    def _kinds(self, names: Sequence[str], answers: Sequence[Feed]) -> list[OutputKind]:
        """How those of the model's outputs are read that are among these."""
        own = {name: found for name, found in self.facts.selections.items() if name in names}
        kinds = kinds_of(replace(self.facts, selections=own), answers)
        return [kind for kind in kinds if kind.output in names or kind.reading is Reading.SELECTED_FROM]

    def _pass_on(
        self, runs: _Runs, wanted: Feed, exact: Feed, narrow: Feed, answers: Feed, got: Feed
    ) -> tuple[SampleError, SampleError, SampleError]:
        """One sample through a stage: its errors alone, chained and propagated; the tensors go on to later stages."""
        part, bounds = runs.part, runs.bounds
        given = _run(runs.fp16, exact)
        same = all(exact[name] is narrow[name] for name in part.inputs)  # only the model's own inputs come in
        handed_on = given if same else _run(runs.fp16, narrow)
        passed = wanted if same else _run(runs.fp32, narrow)
        exact.update(wanted)
        narrow.update(handed_on)
        judged = {name: exact[name] for name in (*part.outputs, *bounds.inner) if name in exact}
        self.floats.update(float_outputs(judged))
        for side, known in ((answers, exact), (got, narrow)):
            side.update({name: known[name] for name in self.judging if name in wanted})
        each = ({**exact, **given}, narrow, {**narrow, **passed})
        alone, chained, propagated = (sample_error(judged, other, kinds=bounds.kinds) for other in each)
        return alone, chained, propagated

    def _together(self, each: Sequence[SampleError], bounds: Tolerance) -> Run:
        found = Evaluation(bounds, frozenset(self.floats), tuple(each))
        return Run(found.outputs, found.verdict)

    def _keeps(self, name: str, metrics: Metrics, bounds: Tolerance) -> bool:
        return _for(bounds, (name,)).verdict({name: metrics}, self.floats).met

    def _finding(self, part: Part, alone: Run, chained: Run, propagated: Run) -> FindingOfStage:
        if not alone.verdict.met:
            return WRONG
        if chained.verdict.met:
            return GOOD
        if self.broken.intersection(part.inputs):
            return INHERITS
        return IN_COMBINATION if propagated.verdict.met else SPREADS

    def _drop_after(self, index: int) -> None:
        """Tensors that no later stage reads."""
        for values in (*self.exact, *self.narrow):
            for name in [name for name in values if self.last_use.get(name, -1) <= index]:
                del values[name]


def _random(sites: Sites) -> tuple[Note, ...]:
    return () if sites.random is None else (Note.of(NoteKind.RANDOM_NODE, sites.random),)


def _of_sample(index: int, session: AnySession, values: Feed) -> Feed:
    with of_sample(index):
        return _run(session, values)


def _run(session: AnySession, values: Feed) -> Feed:
    return session.run({name: values[name] for name in session.input_names})


def _last_use(pieces: Sequence[Piece]) -> dict[str, int]:
    """The last stage that reads each tensor."""
    return {
        value.name or "": index
        for index, piece in enumerate(pieces)
        for node in piece.nodes
        for value in needed_by(node)
    }


def _asked(
    model: Model, pieces: Sequence[Piece], tolerance: Sequence[str] | Tolerance
) -> Callable[[Sequence[OutputKind]], Tolerance]:
    """The tolerance for all that stages hand on, completed by the default, as far as it is known how that is read."""
    if isinstance(tolerance, Tolerance):
        return lambda kinds: tolerance
    if any(text.split("<")[0].split(">")[0].strip() == USER_METRIC for text in tolerance):
        raise InputError(
            "your own metric judges a model's outputs, not the tensors between stages: use halfwise verify"
        )
    values = [v for part in parts_of(Sites(model), pieces) for v in part.model.graph.outputs]
    names = dict.fromkeys([v.name or "" for v in values])
    floats = {v.name or "" for v in values if v.dtype is not None and v.dtype.is_floating_point()}
    Tolerance.parse(tolerance, names, floats)  # refuses what cannot be kept, before anything runs
    return lambda kinds: Tolerance.parse(tolerance, names, floats, kinds=kinds)


def _for(tolerance: Tolerance, names: Sequence[str]) -> Tolerance:
    """What speaks of these tensors, and of those inside from which they are selected."""
    kinds = [kind for kind in tolerance.kinds if kind.output in names]
    sources = {source for kind in kinds for source in kind.selected_from}
    kinds += [kind for kind in tolerance.kinds if kind.output in sources and kind not in kinds]
    bounds = (bound for bound in tolerance.bounds if bound.output == EVERY_OUTPUT or bound.output in names)
    return Tolerance(tuple(bounds), tuple(kinds))


def _stage_named(name: str, pieces: Sequence[Piece]) -> int:
    """Module names may be spelled as in PyTorch or as in a node's name."""
    wanted = name.strip().strip("/").replace("/", ".")
    names = [piece.name for piece in pieces]
    for candidate in (name, wanted):
        if candidate in names:
            return names.index(candidate)
    raise InputError(f"--upto {name}: there is no such stage; there are {listed(names, 20)}")
