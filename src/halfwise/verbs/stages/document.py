"""The document of a model run stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import field

from halfwise.core.document import Answer, Count, Document, Number, Record
from halfwise.core.metrics import Outputs
from halfwise.core.notes import Messages
from halfwise.core.tolerance import Bounds
from halfwise.model.inputs.all_samples import UsedInputs
from halfwise.precision.plan_document import PlannedRecord

__all__ = ["FindingOfStage", "RunRecord", "StageRecord", "StagesDocument", "UptoRecord"]

FindingOfStage = Literal["good", "wrong by itself", "only in company", "spreads", "inherits"]


class RunRecord(Record, frozen=True):
    """One way of running a stage: its error over the allowed error, and its outputs against FP32."""

    ratio: Number = field(name="load")
    outputs: Outputs


class StageRecord(Record, frozen=True):
    """One stage, alone in FP16, on what the FP16 stages before it gave, and in FP32 on that."""

    name: str
    nodes: Count
    compute_nodes: Count
    inputs: Sequence[str]
    outputs: Sequence[str]
    finding: FindingOfStage
    alone: RunRecord
    chained: RunRecord
    propagated: RunRecord = field(name="carried")
    culprits: Sequence[PlannedRecord]
    corrected: Number | None = field(name="mended_load")
    onnx: str | None


class UptoRecord(Record, frozen=True):
    """The model with all stages up to one in FP16."""

    stage: str
    fp32_nodes: Sequence[str]
    met: bool
    ratio: Number = field(name="load")
    outputs: Outputs
    plan: str | None


class StagesDocument(Document, frozen=True, tag="halfwise.stages/1", kw_only=True):
    """What `halfwise stages --json` prints: a model cut at its modules, each alone in FP16 and chained."""

    status: Answer
    model: str
    profile: str
    tolerance: Bounds
    inputs: UsedInputs
    stages: Sequence[StageRecord]
    outputs: Outputs
    upto: UptoRecord | None
    notes: Sequence[str]
    messages: Messages = ()
