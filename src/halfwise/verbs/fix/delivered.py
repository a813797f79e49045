"""After the last step: what was written is run once by ONNX Runtime as it is, beside what was emulated of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from halfwise.backends.as_written import NoKernel, run_as_written
from halfwise.backends.backend import BackendFailure
from halfwise.core.english import fill
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.evaluation import Evaluation, Outputs, evaluate
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Verdict
from halfwise.core.whole_files import scratch_folder
from halfwise.deploy.onnxruntime.cpu_kernels import cpu_refusal_note
from halfwise.deploy.onnxruntime.transposed_products import cpu_crash_note, crashing_optimizers
from halfwise.deploy.targets import kind_of
from halfwise.emulation.endless_loops import deciding
from halfwise.emulation.runtime_words import runtime_reason
from halfwise.model.contrib.decompose import runs_on_cpu
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import executions, steps_of
from halfwise.model.inputs.samples import Samples
from halfwise.precision.assignment import Assignment
from halfwise.precision.typed_onnx import TypedModel, write_typed
from halfwise.verbs.fix.budget import MOST_BYTES_RUN
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.document import DeliveredRecord
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["Delivered", "beside_fp32", "few", "judged_as_written", "limit_s", "run_delivered"]

TIME_LIMIT_S = 120.0
LOOP_LIMIT_S = 20.0  # the same of a loop that may never end, as it did in the emulation
_MOST_INPUTS = 8
_MOST_STEPS = 256  # of all streams


@dataclass(frozen=True, eq=False)
class Delivered:
    """`verdict` is None where it did not run; `counts` says that the target may run it so, and that a miss is a no."""

    verdict: Verdict | None
    outputs: Mapping[str, Metrics] = field(default_factory=dict)
    counts: bool = False
    note: Note | None = None

    @property
    def refutes(self) -> bool:
        """Whether it says no to what was emulated."""
        return self.counts and self.verdict is not None and not self.verdict.met

    @property
    def fails(self) -> bool:
        """Whether ONNX Runtime crashed on it or refused it, where the target may be ONNX Runtime as it ran here."""
        return self.counts and self.note is not None and self.note.kind is NoteKind.DELIVERED_FAILS

    def document(self) -> DeliveredRecord:
        if self.verdict is None:
            why = fill("{why}", **self.note.values) if self.note is not None else ""
            return DeliveredRecord("not-run", why=why, because=() if self.note is None else (self.note,))
        return DeliveredRecord("met" if self.verdict.met else "not-met", outputs_told(self.outputs))


def run_delivered(prepared: Prepared, candidate: Candidate, typed: TypedModel) -> Delivered:
    request, feeds = prepared.request, few(candidate.decided.samples)
    counts = kind_of(request.target).on_cpu
    written = kind_of(request.target).as_written(candidate.decision.assignment)
    if why := _why_not(candidate, written, feeds):
        return Delivered(None, note=Note.of(NoteKind.DELIVERED_NOT_RUN, why=why))
    prepared.course.written()
    request.notify("running the written model with ONNX Runtime")
    prepared.context.stepper.rest()
    try:
        spared = crashing_optimizers(written, on_cpu=counts)
        sites, limit = candidate.decision.sites, limit_s(written)
        outputs = run_as_written(typed.path, feeds, limit, sites, spared, integer_kernels=counts)
    except NoKernel as error:
        return Delivered(None, note=Note.of(NoteKind.DELIVERED_NOT_RUN, why=runtime_reason(error)))
    except BackendFailure as error:
        return Delivered(None, counts=counts, note=Note.of(NoteKind.DELIVERED_FAILS, why=runtime_reason(error)))
    found = judged_as_written(prepared, candidate, feeds, outputs)
    note = None if counts else cpu_crash_note(written)  # of another runtime's file, which ran without that optimizer
    if not (found.verdict.met or counts):
        note = Note.of(NoteKind.DELIVERED_MISSES, error=found.verdict.because)
    return Delivered(found.verdict, found.outputs, counts, note)


def limit_s(written: Assignment) -> float:
    """How long it may run: as rounded in the runtime, a loop may not end."""
    return LOOP_LIMIT_S if any(deciding(site.node, written) for site in written.sites.all) else TIME_LIMIT_S


def few(samples: Samples) -> tuple[Feed, ...]:
    """The inputs that a written model is run for, held-out ones first; one near the tolerance may be behind them."""
    feeds = tuple(dict.fromkeys((*samples.validation, *samples.search)))[:_MOST_INPUTS]
    streams = max(_MOST_STEPS * len(feeds) // executions(feeds), 1)  # of as many steps each
    return feeds[:streams]


def beside_fp32(prepared: Prepared, candidate: Candidate, delivered: Delivered) -> Delivered:
    """What fails, told as the runtime's own doing where the model fails in FP32 and without repairs, too."""
    request, feeds = prepared.request, candidate.decided.samples.validation[:1]
    sites = prepared.context.sites(request.model, request.choices)
    with scratch_folder(request.out) as folder:
        path = folder / "model.onnx"
        write_typed(Assignment(sites, {}), path)
        try:
            run_as_written(path, feeds, TIME_LIMIT_S, sites)
        except BackendFailure as error:
            note = Note.of(NoteKind.DELIVERED_FAILS_IN_FP32, why=runtime_reason(error))
            return replace(delivered, counts=False, note=note)
    return delivered


def judged_as_written(
    prepared: Prepared, candidate: Candidate, feeds: Sequence[Feed], outputs: Sequence[Outputs]
) -> Evaluation:
    """What a written model answered, beside FP32's answers."""
    for made in candidate.decided.model.maps:
        outputs = [{**each, made.tensor: made.in_order(each[made.name])} for each in outputs]
    answers = prepared.context.references.of(steps_of(feeds)[0])
    return evaluate(answers, outputs, prepared.tolerance, prepared.request.metric)


def _why_not(candidate: Candidate, assignment: Assignment, feeds: Sequence[Feed]) -> Note | None:
    """Why it is not even tried; None where it is."""
    if (refused := cpu_refusal_note(assignment)) is not None:
        return Note.of(NoteKind.NO_CPU_KERNEL, str(refused.values["op"]))
    if candidate.decided.model.weight_bytes > MOST_BYTES_RUN:
        return Note.of(NoteKind.WEIGHTS_TOO_LARGE, megabytes=MOST_BYTES_RUN >> 20)
    foreign = next((node for node in candidate.decided.model.nodes if not runs_on_cpu(node)), None)
    if foreign is not None:
        return Note.of(NoteKind.NO_CPU_KERNEL, foreign.op_type)
    return None
