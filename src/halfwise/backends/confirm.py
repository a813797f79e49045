"""Runs what `fix` made on a real backend, and says where that is not what the emulation predicted, and likely why."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.backends import Backend, BackendFailure, BackendOptions, BackendRecord, backend_named
from halfwise.core.document import Answer, Number, Record
from halfwise.core.english import documented
from halfwise.core.errors import InputError
from halfwise.core.evaluation import SampleError, evaluate, missing_output, sample_error
from halfwise.core.finding import Finding, Severity, Where
from halfwise.core.metrics import Metrics, OutputMetric, Outputs
from halfwise.core.notes import Messages, Note
from halfwise.core.rules import finding
from halfwise.core.tolerance import Tolerance, Verdict
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import profile_named
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Confirmation", "ConfirmationRecord", "OutputGap", "allowed_ratio", "confirm", "probe"]

Array = NDArray[Any]
Feed = Mapping[str, Array]
Rerun = Callable[[BackendOptions], Backend]

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
            outputs=self.outputs,
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
    _check_outputs(references, done.outputs)
    found = evaluate(references, done.outputs, tolerance, metric)
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

    reasons = _reasons(
        {name: g for name, g in gaps.items() if _beyond(g, allowed)}, allowed, done.record, options, again
    )
    findings = tuple(_findings(gaps, together, allowed, reasons, done.record, profile, verdict))
    notes = (*runner.cautions, *done.record.remarks)
    return Confirmation(runner.name, profile, allowed, verdict, together, gaps, findings, done.record, notes)


def allowed_ratio(profile: str, samples: int, nodes: Iterable[ir.Node] = ()) -> float:
    """The factor between measured and predicted errors that a profile allows on a model, over so many samples."""
    spread = profile_named(profile).spread_of(nodes) or UNSTATED
    return (1.0 + spread) * (1.0 + SCATTER / math.sqrt(max(samples, 1)))


def probe(backend: Backend) -> None:
    """Find out now, not after an hour of searching, that a backend cannot be used here."""
    if backend.name.startswith("saved:"):
        raise InputError(f"{backend.name}: saved outputs cannot confirm a model that is not made yet; use verify")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="probe")], "probe", values[:1], values[1:])
    opset = [helper.make_opsetid("", 13)]
    with tempfile.TemporaryDirectory(prefix="halfwise-probe-") as folder:
        path = Path(folder, "probe.onnx")
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
        backend.run(path, [{"x": np.array([-1, 0, 1, 2], dtype=np.float32)}])


def _failed(runner: Backend, profile: str, why: str) -> Confirmation:
    told = finding("HW504", Where("model", runner.name), f"{runner.name} cannot run the fixed model: {why}", {})
    verdict = Verdict(False, math.inf, "", "", math.inf, 0.0)
    return Confirmation(
        runner.name, profile, 1.0, verdict, {}, {}, (told,), BackendRecord(runner.name, "", ""), runner.cautions
    )


# -- comparing --------------------------------------------------------------------------------------------------------


def _emulated(assignment: Assignment, feeds: Sequence[Feed], profile: str) -> list[dict[str, Array]]:
    session = Emulator(profile_named(profile)).session(assignment)
    types = {spec.name: spec.dtype for spec in assignment.sites.model.inputs}
    given = [
        {name: np.asarray(feed[name]).astype(dtype, copy=False) for name, dtype in types.items()} for feed in feeds
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
    return math.sqrt(sum(each.outputs[name].rel_l2 ** 2 for each in errors) / len(errors))


# -- explaining -------------------------------------------------------------------------------------------------------


def _beyond(gap: OutputGap, allowed: float) -> bool:
    return gap.ratio > allowed or gap.ratio * allowed < 1.0


def _reasons(
    beyond: Mapping[str, OutputGap],
    allowed: float,
    record: BackendRecord,
    options: BackendOptions,
    again: Callable[[BackendOptions], dict[str, OutputGap] | None],
) -> dict[str, str]:
    """The likely reason for each output's gap: what was tried and made it go away, else what is left."""
    reasons: dict[str, str] = {}
    if not beyond:
        return reasons
    tries = []
    if record.tf32:
        tries.append((replace(options, tf32=False), "TF32: without it the error is {now:.3g}, as predicted"))
    if record.library == "ONNX Runtime" and record.optimization != "disable" and record.backend != "ort-cpu":
        tries.append(
            (
                replace(options, optimization="disable"),
                "fusion: without ONNX Runtime's graph optimisations the error is {now:.3g}, as predicted",
            )
        )
    for other, words in tries:
        left = [name for name in beyond if name not in reasons]
        gaps = again(other) if left else None
        for name in left:
            if gaps is not None and not _beyond(gaps[name], allowed):
                reasons[name] = words.format(now=gaps[name].measured)
    for name, gap in beyond.items():
        reasons.setdefault(name, _left_over(gap, record))
    return reasons


def _left_over(gap: OutputGap, record: BackendRecord) -> str:
    if record.backend == "ort-cpu":
        return "ONNX Runtime's CPU provider computes FP16 in FP32 and drops roundings between nodes"
    if gap.ratio < 1.0:
        if record.on_cpu:
            return f"{len(record.on_cpu)} nodes ran on the CPU, which computes FP16 in FP32"
        return "fusion or wide accumulation: kernels keep in FP32 what the profile rounds"
    if record.library.startswith("TensorRT") or "Tensor" in " ".join(record.providers):
        return (
            "a tactic that accumulates in FP16, or a fusion that moves a rounding; the engine's layer list tells which"
        )
    return "the accumulate type: some kernel sums in FP16, or rounds inside, where the profile computes in FP32"


def _findings(
    gaps: Mapping[str, OutputGap],
    outputs: Mapping[str, Metrics],
    allowed: float,
    reasons: Mapping[str, str],
    record: BackendRecord,
    profile: str,
    verdict: Verdict,
) -> list[Finding]:
    found = []
    for name, gap in gaps.items():
        where = Where("output", name)
        numbers = {**gap.document().to_json(), "allowed_ratio": allowed}
        if outputs[name].nonfinite and not math.isinf(gap.predicted):
            told = f"output {name!r} holds {outputs[name].nonfinite:,} values that are not finite on {record.title}; "
            found.append(finding("HW503", where, f"{told}none was predicted; likely {reasons[name]}", numbers))
        elif name in reasons:
            rule = "HW501" if gap.ratio > 1.0 else "HW502"
            message = (
                f"output {name!r} has an error of {gap.measured:.3g} on {record.title}, {gap.ratio:.3g} times the "
                f"{gap.predicted:.3g} that profile {profile!r} predicts; the profile promises at most "
                f"{allowed:.3g} times more or less. Likely {reasons[name]}"
            )
            severity: Severity | None = (
                "error" if rule == "HW501" and not verdict.met and verdict.worst_output == name else None
            )
            found.append(finding(rule, where, message, numbers, severity))
    return found
