"""Runs what `fix` made on a real backend, and says where that is not what the emulation predicted, and likely why."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.backends import Backend, BackendFailure, BackendOptions, BackendRecord, backend_named
from halfwise.backends.saved import SavedBackend
from halfwise.core.contents import changed
from halfwise.core.document import Answer, Number, Record
from halfwise.core.english import documented
from halfwise.core.english.finding import finding
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.errors import InputError
from halfwise.core.evaluation import SampleError, evaluate, missing_output, sample_error
from halfwise.core.files.bindings import named
from halfwise.core.finding import Finding, Where
from halfwise.core.float_sum import float_sum
from halfwise.core.metrics import Metrics, OutputMetric, Outputs
from halfwise.core.notes import Messages, Note, NoteKind
from halfwise.core.tolerance import Tolerance, Verdict
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import profile_named
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Confirmation", "ConfirmationRecord", "OutputGap", "allowed_ratio", "confirm", "probe"]

Array = NDArray[Any]
Feed = Mapping[str, Array]

FLOOR = 1e-5  # a relative error below this is no more than the order of FP32 sums
SCATTER = 0.3  # of one sample's error around its mean, where an output is small
UNSTATED = 0.6  # the spread of a profile that promises none: what was seen on networks run without fusion


@dataclass(frozen=True)
class OutputGap:
    """One output: its error as predicted and as measured, rms over the samples, relative to the FP32 output."""

    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over predicted; what is below the floor is equal."""
        low, high = max(self.predicted, FLOOR), max(self.measured, FLOOR)
        return math.inf if math.isinf(high) and not math.isinf(low) else 1.0 if low == high else high / low

    def document(self) -> GapRecord:
        return GapRecord(self.predicted, self.measured, self.ratio)


class GapRecord(Record, frozen=True):
    """The error of one output, as predicted and as measured."""

    predicted: Number
    measured: Number
    ratio: Number


class ConfirmationRecord(Record, frozen=True):
    """What a real backend made of the fixed model."""

    status: Answer
    backend: BackendRecord
    profile: str
    allowed_ratio: Number
    outputs: Outputs
    prediction: Mapping[str, GapRecord]
    findings: Sequence[Finding]
    notes: Sequence[str]
    messages: Messages = ()


@dataclass(frozen=True)
class Confirmation:
    """The fixed model on a real backend, on the held-out inputs. `findings` are empty where the prediction held."""

    backend: str
    profile: str
    allowed: float  # what the profile promises: no ratio above this, and none below its inverse
    verdict: Verdict
    outputs: Mapping[str, Metrics]
    gaps: Mapping[str, OutputGap]
    findings: tuple[Finding, ...]
    record: BackendRecord
    notes: tuple[Note, ...] = field(default=())

    @property
    def met(self) -> bool:
        return self.verdict.met

    def document(self) -> ConfirmationRecord:
        return ConfirmationRecord(
            status="met" if self.met else "not-met",
            backend=self.record,
            profile=self.profile,
            allowed_ratio=self.allowed,
            outputs=outputs_told(self.outputs),
            prediction={name: gap.document() for name, gap in self.gaps.items()},
            findings=self.findings,
            **documented(self.notes),
        )


def confirm(
    model: Model,
    typed: Path,
    feeds: Sequence[Feed],
    backend: str | Backend,
    *,
    tolerance: Tolerance,
    profile: str = "strict",
    metric: OutputMetric | None = None,
    options: BackendOptions | None = None,
    decision: Assignment | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> Confirmation:
    """Run the typed model on `backend` and compare its error with the emulated one, output by output.

    Where they are further apart than the profile promises, the backend is run again in other ways to find out why.
    `decision` is what the typed model was written from, if that is known; else its types are read from the file.
    """
    options = options or BackendOptions()
    runner = backend_named(backend, options) if isinstance(backend, str) else backend
    notify(f"running the fixed model on {runner.name}")
    try:
        done = runner.run(typed, feeds)
    except BackendFailure as error:
        return _failed(runner, profile, str(error))
    references = _emulated(Assignment(Sites(model), {}), feeds, "strict")
    chosen = decision if decision is not None else Assignment(Sites(load(typed)), {})
    predicted = _errors(references, _emulated(chosen, feeds, profile))
    outputs = [named(each, references[0]) for each in done.outputs]
    _check_outputs(references, outputs)
    found = evaluate(references, outputs, tolerance, metric)
    measured, floats, together, verdict = found.samples, found.floats, found.outputs, found.verdict
    allowed = allowed_ratio(profile, len(feeds), model.nodes)
    gaps = {name: OutputGap(_rms(predicted, name), _rms(measured, name)) for name in references[0] if name in floats}

    def again(other: BackendOptions) -> dict[str, OutputGap] | None:
        """The gaps when run in another way; None where it does not run so, or cannot be asked to."""
        if not isinstance(backend, str):
            return None
        notify(f"running the model again on {runner.name} to find the cause of the difference")
        try:
            errors = _errors(references, backend_named(backend, other).run(typed, feeds).outputs)
        except BackendFailure:
            return None
        return {name: OutputGap(gap.predicted, _rms(errors, name)) for name, gap in gaps.items()}

    beyond = {name: gap for name, gap in gaps.items() if _beyond(gap, allowed)}
    causes = _causes(beyond, allowed, runner, done.record, options, again)
    findings = tuple(_findings(gaps, together, allowed, causes, done.record, profile, verdict))
    notes = (*runner.cautions, *done.record.remarks)
    return Confirmation(runner.name, profile, allowed, verdict, together, gaps, findings, done.record, notes)


def allowed_ratio(profile: str, samples: int, nodes: Iterable[ir.Node] = ()) -> float:
    """The factor between measured and predicted errors that a profile allows on a model, over so many samples."""
    spread = profile_named(profile).spread_of(nodes) or UNSTATED
    return (1.0 + spread) * (1.0 + SCATTER / math.sqrt(max(samples, 1)))


def probe(backend: Backend) -> BackendRecord:
    """Find out now, not after an hour of searching, that a backend cannot be used here; else what it is."""
    if isinstance(backend, SavedBackend):
        raise InputError(f"{backend.name}: saved outputs cannot confirm a model that is not made yet; use verify")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="probe")], "probe", values[:1], values[1:])
    opset = [helper.make_opsetid("", 13)]
    with tempfile.TemporaryDirectory(prefix="halfwise-probe-") as folder:
        path = Path(folder, "probe.onnx")
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
        return backend.run(path, [{"x": np.array([-1, 0, 1, 2], dtype=np.float32)}]).record


def _failed(runner: Backend, profile: str, why: str) -> Confirmation:
    told = finding("HW504", Where("model", runner.name), Note.of(NoteKind.CANNOT_RUN, runner.name, why=why), {})
    verdict = Verdict(False, math.inf, "", "", math.inf, 0.0)
    return Confirmation(
        runner.name, profile, 1.0, verdict, {}, {}, (told,), BackendRecord(runner.name, "", ""), runner.cautions
    )


# -- comparing --------------------------------------------------------------------------------------------------------


def _emulated(assignment: Assignment, feeds: Sequence[Feed], profile: str) -> list[dict[str, Array]]:
    session = Emulator(profile_named(profile)).session(assignment)
    types = {spec.name: spec.dtype for spec in assignment.sites.model.inputs}
    given = [
        {
            name: changed(feed[name], partial(np.ndarray.astype, dtype=dtype, copy=False))
            for name, dtype in types.items()
        }
        for feed in feeds
    ]
    return [session.run({name: feed[name] for name in session.input_names}) for feed in map(widen_feeds, given)]


def _check_outputs(references: Sequence[Feed], outputs: Sequence[Feed]) -> None:
    missing = missing_output(references[0], outputs)
    if missing is not None:
        raise InputError(f"the backend gives no output {missing!r}, which the model has")


def _errors(references: Sequence[Feed], outputs: Sequence[Feed]) -> list[SampleError]:
    _check_outputs(references, outputs)
    return [sample_error(reference, got) for reference, got in zip(references, outputs, strict=True)]


def _rms(errors: Sequence[SampleError], name: str) -> float:
    """Over samples; a single one scatters by a third on small outputs."""
    return math.sqrt(float_sum(each.outputs[name].rel_l2 ** 2 for each in errors) / len(errors))


# -- explaining -------------------------------------------------------------------------------------------------------


def _beyond(gap: OutputGap, allowed: float) -> bool:
    return gap.ratio > allowed or gap.ratio * allowed < 1.0


def _causes(
    beyond: Mapping[str, OutputGap],
    allowed: float,
    runner: Backend,
    record: BackendRecord,
    options: BackendOptions,
    again: Callable[[BackendOptions], dict[str, OutputGap] | None],
) -> dict[str, Note]:
    """The likely cause of each output's gap: what was tried and made it go away, else what is left."""
    causes: dict[str, Note] = {}
    if not beyond:
        return causes
    tries: list[tuple[BackendOptions, Callable[[float], Note]]] = []
    if record.tf32:
        tries.append((replace(options, tf32=False), lambda now: Note.of(NoteKind.CAUSE_TF32, now=now)))
    if runner.traits.rewrites_graph and record.optimization != "disable":
        other = replace(options, optimization="disable")
        tries.append((other, lambda now: Note.of(NoteKind.CAUSE_FUSION, now=now)))
    for other, cause in tries:
        left = [name for name in beyond if name not in causes]
        gaps = again(other) if left else None
        for name in left:
            if gaps is not None and not _beyond(gaps[name], allowed):
                causes[name] = cause(gaps[name].measured)
    for name, gap in beyond.items():
        causes.setdefault(name, _left_over(gap, runner, record))
    return causes


def _left_over(gap: OutputGap, runner: Backend, record: BackendRecord) -> Note:
    if runner.traits.computes_wide:
        return Note.of(NoteKind.CAUSE_CPU_WIDE)
    if gap.ratio < 1.0:
        if record.on_cpu:
            return Note.of(NoteKind.CAUSE_RAN_ON_CPU, count=len(record.on_cpu))
        return Note.of(NoteKind.CAUSE_KEPT_WIDE)
    if runner.traits.picks_tactics:
        return Note.of(NoteKind.CAUSE_TACTIC)
    return Note.of(NoteKind.CAUSE_ACCUMULATOR)


def _findings(
    gaps: Mapping[str, OutputGap],
    outputs: Mapping[str, Metrics],
    allowed: float,
    causes: Mapping[str, Note],
    record: BackendRecord,
    profile: str,
    verdict: Verdict,
) -> list[Finding]:
    found = []
    for name, gap in gaps.items():
        where = Where("output", name)
        numbers = {**gap.document().to_json(), "allowed_ratio": allowed}
        if outputs[name].nonfinite and not math.isinf(gap.predicted):
            count = outputs[name].nonfinite
            note = Note.of(NoteKind.NOT_FINITE_THERE, name, count=count, title=record.title, cause=causes[name])
            found.append(finding("HW503", where, note, numbers))
        elif name in causes:
            rule = "HW501" if gap.ratio > 1.0 else "HW502"
            note = Note.of(
                NoteKind.NOT_AS_PREDICTED,
                name,
                measured=gap.measured,
                predicted=gap.predicted,
                ratio=gap.ratio,
                allowed=allowed,
                title=record.title,
                profile=profile,
                cause=causes[name],
            )
            misses = rule == "HW501" and not verdict.met and verdict.worst_output == name
            found.append(finding(rule, where, note, numbers, "error" if misses else None))
    return found
