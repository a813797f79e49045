"""Builds and judges one typed model after the other; each step is on disk before it runs, so that none is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.backends.backend import Backend, BackendFailure, BackendRecord
from halfwise.backends.runner import run_on
from halfwise.core.document import LEFT_OUT, read
from halfwise.core.english import said
from halfwise.core.errors import InputError
from halfwise.core.evaluation import evaluate, missing_output
from halfwise.core.formats import Format
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.whole_files import WholeFiles
from halfwise.core.wording import counted
from halfwise.model.inputs.rollout import Rollout
from halfwise.model.inputs.save import save_samples
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Question
from halfwise.verbs.bisect.check import Checker
from halfwise.verbs.bisect.culprits import Answer
from halfwise.verbs.bisect.document import What
from halfwise.verbs.bisect.result import Step
from halfwise.verbs.bisect.step_entry import StepEntry

__all__ = ["Trials"]

Array = NDArray[Any]
Feed = Mapping[str, Array]

MOST_STARTS = 2  # of one step: a third would take the process down again


@dataclass
class Trials:
    """Answers whether a model is good with just some nodes in FP16. `builds` is how many may be made, if limited."""

    sites: Sites
    nodes: Sequence[ir.Node]  # the ones in question, in execution order
    planned: Mapping[ir.Node, Format]  # of others that are narrow in every build
    io: Format
    folder: Path  # of the results
    scratch: Path  # where models and answers are written that nobody keeps
    journal: Journal
    backend: Backend | None
    checker: Checker | None
    question: Question | None
    feeds: Sequence[Feed]
    rollout: Rollout | None  # the feeds are the frames of a stream
    references: Sequence[Mapping[str, Array]]
    builds: int | None
    time_limit_s: float
    notify: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)
    record: BackendRecord | None = None
    measured: dict[frozenset[ir.Node], Mapping[str, Metrics]] = field(default_factory=dict)
    ratios: dict[frozenset[ir.Node], tuple[float, ...]] = field(default_factory=dict)  # step by step, of a rollout
    _tries: dict[frozenset[ir.Node], int] = field(default_factory=dict)

    def ask(self, narrow: frozenset[ir.Node]) -> Answer | None:
        """None where no build is left."""
        if self.builds is not None and len(self.steps) >= self.builds:
            return None
        attempt = self._tries.get(narrow, 0)
        self._tries[narrow] = attempt + 1
        key = digest("step", attempt, *sorted(node.name or "" for node in narrow))
        known = self.journal.get(key, StepEntry, self._fits) or StepEntry("new")
        resumed = known.done
        if not resumed:
            known = read(self._run(narrow, key, known.starts), StepEntry, "a step")
        answer = Answer(known.state)
        if known.outputs:
            self.measured[narrow] = known.outputs
        if known.steps:
            self.ratios[narrow] = known.steps
        because = (known.note,) if known.note is not LEFT_OUT else ()
        self.steps.append(
            Step(self._what(narrow), len(narrow), len(self.nodes), answer, known.load, said(because), resumed, because)
        )
        return answer

    def assignment(self, narrow: frozenset[ir.Node]) -> Assignment:
        return Assignment(self.sites, {**dict.fromkeys(narrow, self.sites.fmt), **self.planned}, self.io)

    # -- one build --------------------------------------------------------------------------------------------------

    def _run(self, narrow: frozenset[ir.Node], key: str, starts: int) -> dict[str, Any]:
        self.notify(f"build {len(self.steps) + 1}: {len(narrow)} of {counted(len(self.nodes), 'node')} in FP16")
        if starts >= MOST_STARTS:
            entry: dict[str, Any] = {
                "state": "failed",
                "note": Note.of(NoteKind.PROCESS_ENDED, starts=starts).to_json(),
            }
            self.journal.put(key, entry)
            return entry
        self.journal.put(key, {"state": "started", "starts": starts + 1})
        try:
            entry = self._judge(narrow)
        except BaseException:  # an end that this process survives is not counted against the step
            self.journal.put(key, {"state": "interrupted", "starts": starts})
            raise
        self.journal.put(key, entry)
        return entry

    def _judge(self, narrow: frozenset[ir.Node]) -> dict[str, Any]:
        model = self.scratch / "step.onnx"
        try:
            typed = write_typed(self.assignment(narrow), model)
            outputs: Sequence[Mapping[str, Array]] = ()
            if self.backend is not None:
                done = run_on(self.backend, typed.path, self.feeds, self.rollout)
                self._same_device(done.record)
                outputs = done.outputs
            entry = self._measure(outputs)
            if self.checker is not None:
                entry["state"] = self._check(typed.path, outputs).value
                entry["load"] = None
            return entry
        except BackendFailure as error:
            return {"state": "failed", "note": Note.of(NoteKind.BUILD_FAILS, error=str(error)[:400]).to_json()}
        finally:
            model.unlink(missing_ok=True)
            model.with_name(model.name + ".data").unlink(missing_ok=True)

    def _measure(self, outputs: Sequence[Mapping[str, Array]]) -> dict[str, Any]:
        """The verdict by the tolerance, and the numbers behind it."""
        if not outputs or self.question is None:
            return {}
        inner = self.question.tolerance.inner
        missing = missing_output({n: array for n, array in self.references[0].items() if n not in inner}, outputs)
        if missing is not None:
            raise InputError(f"the backend gives no output {missing!r}, which the model has")
        found = evaluate(self.references, outputs, self.question.tolerance, self.question.metric)
        return {
            "state": "good" if found.verdict.met else "bad",
            "load": str(found.verdict.ratio),
            **({} if self.rollout is None else {"steps": [str(ratio) for ratio in found.ratios]}),
            "outputs": {name: metrics.to_json() for name, metrics in found.outputs.items()},
        }

    def _check(self, model: Path, outputs: Sequence[Mapping[str, Array]]) -> Answer:
        assert self.checker is not None
        folder = self.scratch / "outputs" if outputs else None
        reference = self.scratch / "reference" if outputs else None
        if folder is not None and reference is not None:
            save_outputs(folder, outputs)
            if not reference.exists():
                save_outputs(reference, self.references)
        return self.checker.judge(model, folder, reference, self.time_limit_s)

    def _same_device(self, record: BackendRecord) -> None:
        """Answers of two devices, or of two versions, must not be mixed."""
        title = f"{record.title}, driver {record.driver or 'unknown'}"
        earlier = self.journal.get("device", str)
        if earlier is None:
            self.journal.put("device", title)
        elif earlier != title:
            raise InputError(
                f"the earlier steps in {self.folder} ran on {earlier}; this is {title}: "
                "resume there, or give another folder with --out"
            )
        self.record = record

    def _fits(self, entry: StepEntry) -> bool:
        """Whether it speaks of the outputs that are judged here."""
        return not entry.outputs or entry.outputs.keys() <= self.references[0].keys()

    def _what(self, narrow: frozenset[ir.Node]) -> What:
        if not narrow:
            return "all FP32"
        return "all FP16" if len(narrow) == len(self.nodes) else "group"


def save_outputs(folder: Path, outputs: Sequence[Mapping[str, Array]]) -> None:
    """One .npz file a sample, as `verify` reads them."""
    with WholeFiles() as files:
        save_samples(files, folder, outputs)
