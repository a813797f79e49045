"""`bisect`: from a model that a real backend gets wrong in FP16 to the nodes that must be FP32 there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise._version import __version__
from halfwise.backends import Backend, BackendOptions, backend_named
from halfwise.core.answers import check_answers
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.evaluation import float_outputs
from halfwise.core.formats import Format
from halfwise.core.measures.named import metric_named, with_measure
from halfwise.core.metric_identity import metric_identity
from halfwise.core.metrics import Metrics, OutputMetric
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.targets import DEFAULT_TARGET, Target
from halfwise.core.tolerance import Tolerance
from halfwise.core.whole_files import WholeFiles
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.profiles import PROFILES, STRICT
from halfwise.emulation.stepper import Stepper
from halfwise.model.fp32_model import fp32_model, typed_notes
from halfwise.model.inputs.all_samples import AllSamples, all_samples
from halfwise.model.inputs.rollout import Rollout, carried, rollout_of, windows
from halfwise.model.model import Model, load
from halfwise.model.outputs.kinds import facts_of
from halfwise.model.outputs.understood import Understood, understand
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import check_repairs, reapplied
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Judge, Measured, Question
from halfwise.verbs.bisect.check import Checker
from halfwise.verbs.bisect.culprits import Answer, Found, find_culprits
from halfwise.verbs.bisect.ranking import ranked
from halfwise.verbs.bisect.result import BisectResult, Culprit
from halfwise.verbs.bisect.trials import Trials

__all__ = ["JOURNAL", "bisect"]

Array = NDArray[Any]

JOURNAL = ".halfwise-bisect.jsonl"  # in the folder of results while a search runs


def bisect(
    model: str | Path | onnx.ModelProto | Model,
    backend: str | Backend | None,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    out: str | Path | None = None,
    tolerance: str | Sequence[str] | Tolerance = (),
    metric: OutputMetric | str | None = None,
    check: str | None = None,
    plan: Plan | None = None,
    builds: int | None = None,
    rollout: int | None = None,
    feedback: str | Sequence[str] = (),
    options: BackendOptions | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> BisectResult:
    """Find every node that `backend` needs in FP32, with few builds; write the typed model and the plan into `out`.

    The all-FP16 model is tried first (with `plan`: the planned one), then the all-FP32 one. `check` is a command that
    judges instead of the tolerance; with it, `backend` may be None, and the command runs the model itself. `builds`
    limits how many models are built. With `rollout`, the samples in order are the steps of a stream, and so many in a
    row take the state that the same build gave before: `feedback` names each as "OUTPUT=INPUT". The same call goes on
    where an interrupted one stopped, if `out` is given.
    """
    options = options or BackendOptions()
    tolerance, metric = with_measure(tolerance, metric)
    if backend is None and check is None:
        raise InputError("bisect needs a backend to run the model, or a command that judges it (--check)")
    runner = backend_named(backend, options) if isinstance(backend, str) else backend
    if runner is not None and runner.name.startswith("saved:"):
        raise InputError(f"{runner.name}: saved outputs are of one model; bisect has to build others")
    checker = Checker(check) if check is not None else None
    if checker is not None:
        checker.words()
    with tempfile.TemporaryDirectory(prefix="halfwise-bisect-") as scratch:
        return _Bisection(
            fp32_model(model if isinstance(model, Model) else load(model)),
            runner,
            inputs,
            Path(out) if out is not None else None,
            Path(scratch if out is None else out),
            (tolerance,) if isinstance(tolerance, str) else tolerance,
            metric,
            checker,
            plan,
            builds,
            rollout_of(rollout, (feedback,) if isinstance(feedback, str) else feedback),
            options,
            notify,
        ).run()


@dataclass(frozen=True, eq=False)
class _Bisection:
    given: Model
    backend: Backend | None
    inputs: Any
    out: Path | None
    folder: Path  # `out`, or one that goes away
    stated: Sequence[str] | Tolerance
    metric: OutputMetric | None
    checker: Checker | None
    plan: Plan | None
    builds: int | None
    rollout: Rollout | None
    options: BackendOptions
    notify: Callable[[str], None]

    def run(self) -> BisectResult:
        if not self.nodes:
            raise InputError("no node of the model may be FP16, or the plan keeps all of them in FP32")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written to: {error.strerror}") from error
        self.notify("running the FP32 model")
        folder, references, question = self.folder, self.references, self.question
        if question is not None:
            check_answers(references)
        if self.journal.resumed:
            self.notify(f"resuming an interrupted search ({self.journal.resumed} entries kept)")
        trials = Trials(
            self.sites, self.nodes, self._planned(), self._io, folder, self.journal, self.backend, self.checker,
            question, self.samples.feeds, self.rollout, references, self.builds, self.options.time_limit_s, self.notify,
        )  # fmt: skip
        try:
            found = self._search(trials)
        except HalfwiseError:
            if not trials.steps:  # nothing to go on from
                self.journal.discard()
            raise
        result = self._result(found, trials, question, folder)
        self.journal.discard()
        for scratch in ("outputs", "reference"):
            shutil.rmtree(folder / scratch, ignore_errors=True)
        return result

    def _search(self, trials: Trials) -> Found:
        search = find_culprits(len(self.nodes))
        narrow = next(search)
        while True:
            try:
                narrow = search.send(self._ask(trials, narrow))
            except StopIteration as end:
                return cast(Found, end.value)

    def _ask(self, trials: Trials, narrow: frozenset[int]) -> Answer | None:
        """The ranking is not needed, and so not made, for the first two builds."""
        if len(narrow) in (0, len(self.nodes)):
            return trials.ask(frozenset(self.nodes if narrow else ()))
        return trials.ask(frozenset(self.order[rank] for rank in narrow))

    # -- preparing --------------------------------------------------------------------------------------------------

    @cached_property
    def samples(self) -> AllSamples:
        states = None if self.rollout is None else self.rollout.states
        if self.rollout is not None:
            self.rollout.check(self.given.inputs, self.given.output_names)
        return all_samples(self.given.inputs, self.inputs, sizes=sizes_that_run(self.given, self.inputs), states=states)

    @cached_property
    def feeds(self) -> list[dict[str, Any]]:
        """What FP32 is fed; each step of a rollout with the state that FP32 itself came to."""
        frames = [widen_feeds(feed) for feed in self.samples.feeds]
        if self.rollout is None:
            return frames
        parts, run = windows(frames, self.rollout.steps), self._runs(self.given)
        return [dict(feed) for part in parts for feed, _ in carried(self.rollout, part, run)]

    @cached_property
    def sites(self) -> Sites:
        return Sites(self.model)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.folder / JOURNAL, self._identity(self.question))

    @cached_property
    def model(self) -> Model:
        """With the repairs of the plan."""
        if self.plan is None:
            return self.given
        self.plan.check(self.given)
        check_repairs(self.plan.repairs, Target.parse(self.plan.target))
        return reapplied(self.given, self.plan.repairs)

    @property
    def kept(self) -> tuple[str, ...]:
        """What the plan keeps out of FP16."""
        return tuple(node.name for node in self.plan.nodes) if self.plan is not None else ()

    @cached_property
    def nodes(self) -> tuple[ir.Node, ...]:
        """What may be FP16: every free node but those that the plan keeps."""
        missing = next((name for name in self.kept if name not in self.model.node_by_name), None)
        if missing is not None:
            raise InputError(f"the plan names node {missing!r}, which the model does not have after the plan's repairs")
        return tuple(site.node for site in self.sites.free if site.name not in set(self.kept))

    def _planned(self) -> dict[ir.Node, Format]:
        """The plan's own nodes that are neither FP16 nor FP32."""
        nodes = self.plan.nodes if self.plan is not None else ()
        return {self.model.node_by_name[n.name]: n.format for n in nodes if n.format is not Format.FP32}

    def _run(self, model: Model) -> list[dict[str, Array]]:
        """The answers of a model on this machine's CPU, without TF32, to what FP32 is fed."""
        run = self._runs(model)
        return [run(feed) for feed in self.feeds]

    def _runs(self, model: Model) -> Callable[[Mapping[str, Any]], dict[str, Array]]:
        session = self._emulator.session(Assignment(Sites(model), {}))
        return lambda feed: session.run({name: feed[name] for name in session.input_names})

    @cached_property
    def _understood(self) -> Understood | None:
        """None where the tolerance is given as a whole, or a command of the user's judges what no backend ran."""
        if isinstance(self.stated, Tolerance) or (not self.stated and (self.plan or self.checker) is not None):
            return None
        facts = facts_of(self.given)
        return understand(facts, self.stated, self.metric, self._run(replace(self.given, watched=facts.inner)))

    @cached_property
    def references(self) -> list[dict[str, Array]]:
        """The FP32 answers of the model as given, and of the tensors inside it that judge."""
        return self._run(self.given) if self._understood is None else list(self._understood.answers)

    @cached_property
    def floats(self) -> frozenset[str]:
        floats = float_outputs({name: self.references[0][name] for name in self.given.output_names})
        return self._understood.tolerance.floats_among(floats) if self._understood is not None else floats

    @cached_property
    def question(self) -> Question | None:
        """None where a command of the user's judges what no backend ran."""
        if self.checker is not None and not self.stated:
            return None if self.backend is None else Question(Tolerance.default())
        if self._understood is not None:
            return Question(self._understood.tolerance, self.metric)
        tolerance = self.stated if isinstance(self.stated, Tolerance) or self.plan is None else self.plan.tolerance
        assert isinstance(tolerance, Tolerance)
        tolerance.check_outputs(self.references[0])
        metric = self.metric or (metric_named(tolerance.measure) if tolerance.measure else None)
        if tolerance.uses_user_metric and metric is None:
            raise InputError("the plan's tolerance bounds your own metric: name its function with --metric")
        return Question(tolerance, metric)

    def _identity(self, question: Question | None) -> str:
        """What must be the same for earlier steps to count."""
        feeds = [
            f"{name} {array.dtype} {array.shape} {_content(array)}"
            for feed in self.samples.feeds
            for name, array in sorted(feed.items())
        ]
        return digest(
            __version__,
            self.given.sha256,
            self.given.data_sha256,
            self.backend.name if self.backend is not None else "",
            self.options,
            self.rollout,
            question.tolerance.to_json() if question is not None else "",
            metric_identity(self.metric),
            self.checker.command if self.checker is not None else "",
            self.plan.text() if self.plan is not None else "",
            *feeds,
        )

    @property
    def _io(self) -> Format:
        return self.plan.io_types if self.plan is not None else Format.FP32

    @cached_property
    def _emulator(self) -> Emulator:
        name = self.backend.name if self.backend is not None else STRICT.name
        return Emulator(PROFILES.get(name, STRICT))

    @cached_property
    def order(self) -> tuple[ir.Node, ...]:
        """The nodes by suspicion; a resumed search keeps the order it began with."""
        by_name = {node.name or "": node for node in self.nodes}
        known = self.journal.get("order")
        if known is None:
            self.notify("ranking the nodes by emulation")
            feed = max(range(len(self.feeds)), key=lambda i: (self._emulated.ratios[i], -i))
            order = ranked(self.sites, Stepper(self._emulator), self.feeds[feed], self.nodes)
            known = [node.name or "" for node in order]
            self.journal.put("order", known)
        return tuple(by_name[name] for name in known)

    @cached_property
    def _emulated(self) -> Measured:
        """What the emulator says of the first build."""
        judge = Judge(self.sites, self._emulator, Question(Tolerance.default()), self.feeds)
        formats = {**dict.fromkeys(self.nodes, self.sites.fmt), **self._planned()}
        return judge.measure(Assignment(self.sites, formats, self._io))

    # -- telling ----------------------------------------------------------------------------------------------------

    def _result(
        self,
        found: Found,
        trials: Trials,
        question: Question | None,
        folder: Path,
    ) -> BisectResult:
        everything = frozenset(self.nodes)
        wide: set[ir.Node] = set()
        if found.ending in ("found", "budget"):
            wide = {self.order[rank] for rank in (*found.culprits, *found.unbuildable, *found.unproven)}
        narrow = everything - wide
        culprits = self._culprits(found) if wide else ()
        onnx_path, plan_path = None, None
        if self.out is not None and wide and found.measured:
            onnx_path, plan_path = self._write(folder, trials.assignment(narrow), wide, found, question)
        emulated: Mapping[str, Metrics] = {}
        if self.backend is not None and found.ending != "none":
            self.notify("measuring the errors by emulation")
            emulated = self._emulated.outputs
        return BisectResult(
            model=str(self.given.path or ""),
            backend=self.backend.name if self.backend is not None else "",
            ending=found.ending,
            culprits=culprits,
            unbuildable=tuple(self.order[rank].name or "" for rank in found.unbuildable),
            unproven=tuple(self.order[rank].name or "" for rank in found.unproven) if wide else (),
            kept=self.kept,
            sum=found.sum,
            nodes=len(self.nodes),
            steps=tuple(trials.steps),
            samples=len(self.samples.feeds),
            inputs=self.samples.origin,
            tolerance=question.tolerance if question is not None and self.checker is None else None,
            baseline=trials.measured.get(everything, {}),
            fixed=trials.measured.get(narrow, {}) if wide else {},
            emulated=emulated,
            floats=self.floats,
            record=trials.record,
            onnx=onnx_path,
            plan=plan_path,
            notes=self._notes(found, trials, emulated, question),
        )

    def _culprits(self, found: Found) -> tuple[Culprit, ...]:
        """In execution order; those that feed each other are one region."""
        ranks = {self.order[rank]: rank + 1 for rank in found.culprits}
        nodes = [node for node in self.nodes if node in ranks]
        region: dict[ir.Node, int] = {}
        for node in nodes:
            if node in region:
                continue
            region[node] = number = max(region.values(), default=0) + 1
            stack = [node]
            while stack:
                at = stack.pop()
                for other in (*at.predecessors(), *at.successors()):
                    if other in ranks and other not in region:
                        region[other] = number
                        stack.append(other)
        return tuple(Culprit(node.name or "", node.op_type, ranks[node], region[node]) for node in nodes)

    def _write(
        self, folder: Path, assignment: Assignment, wide: set[ir.Node], found: Found, question: Question | None
    ) -> tuple[Path, Path]:
        stem = self.given.path.stem if self.given.path is not None else "model"
        proven = {self.order[rank] for rank in found.culprits}
        on = f"on {self.backend.name}" if self.backend is not None else "by your own command"
        wrong, open_ = Note.of(NoteKind.BACKEND_WRONG, on=on), Note.of(NoteKind.NOT_CLEARED)
        nodes = [
            PlannedNode(
                node.name or "",
                node.op_type,
                Format.FP32,
                Reason.BACKEND if node in proven else Reason.UNPROVEN,
                (wrong if node in proven else open_,),
            )
            for node in self.nodes
            if node in wide
        ]
        earlier = self.plan
        plan = Plan(
            model=self.given.path.name if self.given.path else "",
            sha256=self.given.sha256,
            data_sha256=self.given.data_sha256,
            node_count=self.given.stored_nodes,
            target=earlier.target if earlier is not None else str(DEFAULT_TARGET),
            profile=earlier.profile if earlier is not None else STRICT.name,
            tolerance=question.tolerance if question is not None else Tolerance.default(),
            io_types=self._io,
            inputs=self.samples.origin,
            nodes=(*(earlier.nodes if earlier is not None else ()), *nodes),
            repairs=earlier.repairs if earlier is not None else (),
        )
        path = folder / f"{stem}.bisect.plan.json"
        with WholeFiles() as files:
            typed = write_typed(assignment, folder / f"{stem}.bisect.onnx", files)
            files.text(path, plan.text())
        return typed.path, path

    def _notes(
        self, found: Found, trials: Trials, emulated: Mapping[str, Metrics], question: Question | None
    ) -> tuple[Note, ...]:
        notes: list[Note] = [
            *typed_notes(self.given),
            *self.samples.notes,
            *(self.backend.cautions if self.backend is not None else ()),
        ]
        if trials.record is not None:
            notes += trials.record.remarks
        judged = question if self.checker is None and self.metric is None else None
        wrong = found.ending in ("found", "budget")
        if wrong and emulated and judged is not None and judged.tolerance.verdict(emulated, self.floats).met:
            notes.append(Note.of(NoteKind.EMULATOR_AGREES, profile=self._emulator.profile.name))
        return tuple(notes)


def _content(array: Array) -> str:
    return digest(array.tolist() if array.dtype.kind == "O" else array.tobytes())
