"""The documents of what is asked of PyTorch: a check against autocast, and one of bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import field

from halfwise.core.document import Answer, Count, Document, Number, Record, about
from halfwise.core.metrics import Outputs
from halfwise.core.notes import Messages
from halfwise.core.tolerance import Bounds

__all__ = [
    "AutocastDocument",
    "BindingProblem",
    "BindingsDocument",
    "FirstOut",
    "KeptRecord",
    "RunRecord",
    "SubmoduleRecord",
]


class RunRecord(Record, frozen=True):
    """One way of running a module, against FP32."""

    how: Annotated[str, about("real or emulated.")]
    met: bool
    ratio: Number = field(name="load")
    outputs: Outputs
    failure: Annotated[str, about("Why it gave no answer.")]


class FirstOut(Record, frozen=True):
    """The first submodule whose output leaves the tolerance, in each way of running."""

    autocast: str | None
    half: str | None


class SubmoduleRecord(Record, frozen=True):
    """One call of a submodule: its largest activation in FP32, and the error over the allowed error of each way."""

    name: str
    type: str
    max_abs: Number
    overflowing: Count
    autocast_load: Number | None
    half_load: Number | None


class KeptRecord(Record, frozen=True):
    """Something that autocast keeps in FP32 and a plain FP16 engine does not."""

    name: str
    family: str
    calls: Count
    modules: Sequence[str]
    largest_input: Number
    largest_result: Number
    without_load: Annotated[Number | None, about("Error over allowed error of autocast with this in FP16 as well.")]


class AutocastDocument(Document, frozen=True, tag="halfwise.autocast/1"):
    """FP32 against autocast and against a module all in FP16."""

    status: Answer
    module: str
    answer: str
    tolerance: Bounds
    samples: Count
    device: str
    autocast: RunRecord
    half: RunRecord
    first_out_of_tolerance: FirstOut
    submodules: Sequence[SubmoduleRecord]
    kept_in_fp32: Sequence[KeptRecord]
    causes: Sequence[str]
    notes: Sequence[str]
    messages: Messages = ()
    because: Annotated[Messages, about("`answer` as data.")] = ()


class BindingProblem(Record, frozen=True):
    """One mistake. An error gives wrong answers or a crash; a warning may."""

    name: str
    rule: str
    severity: Literal["error", "warning"]
    message: str
    remedy: str = field(name="mend")

    def __str__(self) -> str:
        return f"{self.severity}: {self.name}: {self.message}; {self.remedy}"


class BindingsDocument(Document, frozen=True, tag="halfwise.bindings/1"):
    """What is wrong with the bindings of an engine."""

    status: Literal["ok", "wrong"]
    checked: Count
    problems: Sequence[BindingProblem]
