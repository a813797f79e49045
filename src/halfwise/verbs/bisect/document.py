"""The document of a bisection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import field

from halfwise.backends.backend import BackendRecord
from halfwise.core.document import Count, Document, Number, Record, about, written
from halfwise.core.metrics import Outputs
from halfwise.core.notes import Messages, Note
from halfwise.core.tolerance import Bounds
from halfwise.model.inputs.all_samples import UsedInputs
from halfwise.verbs.bisect.culprits import Answer, Ending

__all__ = ["Artifacts", "BisectDocument", "BuildsRecord", "Culprit", "ErrorsRecord", "NamedBackend", "Step", "What"]


class NamedBackend(BackendRecord, frozen=True):
    """A backend that ran nothing: its name is all that is known."""

    def to_json(self) -> dict[str, Any]:
        return {"backend": self.backend}


What = Literal["all FP16", "all FP32", "group"]


class Step(Record, frozen=True):
    """One build: how many nodes were FP16 in it, of how many that were looked at, and what it said."""

    what: What
    fp16: Count
    of: Count
    answer: Answer
    ratio: Annotated[Number | None, written("Worst error over allowed error.")] = field(default=None, name="load")
    why: Annotated[str, written("Of a failed build.")] = ""
    resumed: Annotated[bool, written()] = False
    because: Annotated[Sequence[Note], about("The same as data.")] = ()


class Culprit(Record, frozen=True):
    """A node that has to be FP32."""

    name: str
    op: str
    rank: Annotated[Count, about("Its place in the emulator's order of suspicion, from 1.")]
    region: Annotated[Count, about("Culprits that feed each other share one.")]


class BuildsRecord(Record, frozen=True):
    """How many builds there were, by what they said."""

    total: Count
    good: Count
    bad: Count
    failed: Count
    resumed: Count


class ErrorsRecord(Record, frozen=True):
    """Of the model (or the plan) as it was, of that by the emulator, and with the culprits in FP32."""

    baseline: Outputs
    emulated: Outputs
    fixed: Outputs


class Artifacts(Record, frozen=True):
    """What was written."""

    onnx: str | None
    plan: str | None


class BisectDocument(Document, frozen=True, tag="halfwise.bisect/1"):
    """What `halfwise bisect --json` prints: the nodes that a real backend needs in FP32."""

    status: Ending
    model: str
    backend: BackendRecord
    tolerance: Bounds | None
    inputs: UsedInputs
    nodes: Count
    culprits: Sequence[Culprit]
    regions: Sequence[Sequence[str]]
    sum: bool
    unbuildable: Sequence[str]
    unproven: Sequence[str]
    kept: Sequence[str]
    builds: BuildsRecord
    steps: Sequence[Step]
    error: ErrorsRecord
    artifacts: Artifacts
    notes: Sequence[str]
    messages: Messages = ()
