"""The document of the main job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, field

from halfwise.backends.confirm import ConfirmationRecord
from halfwise.compiler.audit_document import Violation
from halfwise.core.advisory import AdvisoryRecord
from halfwise.core.document import LEFT_OUT, Answer, Count, Document, Left, Number, Record, Share, about
from halfwise.core.finding import Finding
from halfwise.core.metrics import Outputs
from halfwise.core.notes import Messages
from halfwise.core.output_kinds import OutputKinds
from halfwise.core.tolerance import Bounds
from halfwise.deploy.deploy_files import CompiledRecord
from halfwise.precision.plan_document import PlannedRecord, RepairRecord
from halfwise.verbs.fix.rollout_errors import RolloutRecord

__all__ = [
    "CostRecord",
    "DeliveredRecord",
    "ErrorRecord",
    "FixDocument",
    "FixedModel",
    "InputKind",
    "InputRecord",
    "InputsRecord",
    "IoRecord",
    "PointRecord",
    "PolicyRecord",
    "PromiseRecord",
    "ThingRecord",
    "TypedRecord",
]


Files = Annotated[
    Mapping[str, str | None],
    Meta(
        description="What was written; a target may have further files.",
        extra_json_schema={"required": ["onnx", "plan", "report", "trtexec", "script"]},
    ),
]


class TypedRecord(Record, frozen=True):
    """How many nodes of a typed file write which format, casts left out."""

    nodes: Count
    fp16: Count
    bf16: Count
    fp32: Count


class FixedModel(Record, frozen=True):
    """The model as it was given."""

    path: str
    sha256: str
    nodes: Annotated[Count, about("Every node that is judged: those of functions and bodies too, constants not.")]
    compute_nodes: Count
    typed: Annotated[TypedRecord | Left, about("Where the file is FP16 or BF16 already.")] = LEFT_OUT


class ErrorRecord(Record, frozen=True):
    """Plain FP16 and the answer: the worst over all inputs, those that the search did not use among them."""

    fp16: Outputs
    fixed: Outputs
    typed: Annotated[Outputs | Left, about("The file as it is typed, where it is FP16 or BF16 already.")] = LEFT_OUT


class CostRecord(Record, frozen=True):
    """What the search took, and what the answer leaves in FP32."""

    model_runs: float
    seconds: float
    peak_rss_mb: Annotated[float, about("The most resident memory, pages of mapped files included.")]
    casts: Count
    fp32_flops_share: Share


class InputsRecord(Record, frozen=True):
    """How many inputs the search used, and how many judged."""

    origin: str
    search: Count
    validation: Count


class PromiseRecord(Record, frozen=True):
    """What a kept tolerance promises on inputs like those given."""

    carried: Annotated[bool, about("Whether the inputs given tell that 19 of 20 similar ones keep the tolerance.")]
    bound: Annotated[Number, about("Error over allowed error that 19 of 20 are to stay below.")]
    inputs_wanted: Annotated[Count | None, about("Inputs that would carry it; null where no number would.")]


class PolicyRecord(Record, frozen=True):
    """A list of another tool: what it keeps in FP32, and how much of that is kept here, too."""

    policy: str
    source: str
    fp32_nodes: Count
    shared: Count


InputKind = Literal["ids", "whole", "pixels", "values"]  # "ids" index a table, "whole" are whole numbers


class InputRecord(Record, frozen=True):
    """One float input, were it handed over in FP16."""

    name: str
    kind: InputKind
    max_abs: Number
    step: Number
    max_change: Number
    relative_change: Number
    overflow: Count
    load: Number | None


class IoRecord(Record, frozen=True):
    """Inputs in FP16."""

    inputs: Sequence[InputRecord]
    findings: Sequence[Finding]


class DeliveredRecord(Record, frozen=True):
    """What ONNX Runtime's CPU provider made of the written model, on held-out inputs."""

    status: Literal["met", "not-met", "not-run"]
    outputs: Outputs = field(default_factory=dict)
    why: str = ""
    because: Annotated[Messages, about("`why` as data.")] = ()


class PointRecord(Record, frozen=True):
    """One point of the trade-off between FP32 nodes and error."""

    fp32_nodes: Count
    cost: float
    predicted: Number
    load: Number | None


class ThingRecord(Record, frozen=True):
    """Nodes out of FP16 that people know as one thing, such as a decomposed LayerNorm."""

    what: str
    nodes: Sequence[str]


class NodeTimeRecord(Record, frozen=True):
    """Predicted microseconds under one node; a kernel that stands for several is told under the last."""

    name: Annotated[str, about("(casts) for the casts between formats.")]
    fp16: Number
    fixed: Number
    fp32: Number


class LatencyRecord(Record, frozen=True):
    """Predicted time of one run, batch as in the first input: plain FP16, the answer, and FP32."""

    source: Annotated[str, about("The machine that was timed, or the GPU whose data sheet stands in.")]
    measured: Annotated[bool, about("Whether kernels were timed; else it is a roofline.")]
    fp16_ms: Number
    fixed_ms: Number
    fp32_ms: Number
    nodes: Sequence[NodeTimeRecord]


class FixDocument(Document, frozen=True, tag="halfwise.fix/1", kw_only=True):
    """What `halfwise fix --json` prints: errors before and after, the FP32 nodes and what was written."""

    status: Answer
    model: FixedModel
    target: str
    profile: str
    tolerance: Bounds
    output_kinds: OutputKinds = ()
    error: ErrorRecord
    fp32_nodes: Annotated[Sequence[str], about("Exact names of all nodes that stay in FP32, pinned ones among them.")]
    repairs: Sequence[RepairRecord]
    cost: CostRecord
    artifacts: Files
    inputs: InputsRecord
    nodes: Annotated[Sequence[PlannedRecord], about("Every node that stays out of FP16, with its reason and numbers.")]
    things: Annotated[Sequence[ThingRecord], about("What some of these nodes are part of.")] = ()
    notes: Sequence[str]
    messages: Messages = ()
    policies: Annotated[Sequence[PolicyRecord], about("What lists of other tools would have kept in FP32.")]
    audit: CompiledRecord | None
    audit_command: str | None
    refusal: Annotated[str | None, about("Why the target's own compiler takes no such model.")]
    violations: Sequence[Violation]
    advisories: Sequence[AdvisoryRecord]
    io: Annotated[IoRecord | Left, about("What inputs in FP16 do, where they are.")] = LEFT_OUT
    profiles: Annotated[
        Mapping[str, Number] | Left,
        about("Error over allowed error as each profile that the target may meet sees it; the worst counts."),
    ] = LEFT_OUT
    curve: Sequence[PointRecord] | Left = LEFT_OUT
    delivered: Annotated[
        DeliveredRecord | Left,
        about("The written model, where there is one, run as it is."),
    ] = LEFT_OUT
    promise: Annotated[PromiseRecord | Left, about("Where the tolerance is kept on inputs that were given.")] = LEFT_OUT
    rollout: Annotated[RolloutRecord | Left, about("The error after each step, where a rollout was asked for.")] = (
        LEFT_OUT
    )
    latency: Annotated[LatencyRecord | Left, about("Where times of operators or the GPU are known.")] = LEFT_OUT
    confirmation: Annotated[
        ConfirmationRecord | Left, about("What a real backend made of it, where one was asked.")
    ] = LEFT_OUT
