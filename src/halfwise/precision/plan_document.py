"""A plan as a file holds it. A plan is obeyed, and people write it: a key that nobody knows is not passed over."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, field

from halfwise.core.document import LEFT_OUT, Count, Document, Left, Record, about
from halfwise.core.finding import RuleId
from halfwise.core.formats import FORMATS, Format, format_named
from halfwise.core.output_kinds import OutputKinds
from halfwise.core.reasons import Reason
from halfwise.core.targets import DEFAULT_TARGET, STRICT_PROFILE
from halfwise.core.tolerance import Bounds

__all__ = [
    "FormatName",
    "KeptNodes",
    "ModelRecord",
    "PlanDocument",
    "PlannedRecord",
    "RepairRecord",
    "RolloutQuestion",
    "StatedNode",
]

if TYPE_CHECKING:
    FormatName = str
else:

    class FormatName(str):
        """A floating-point format."""

        @classmethod
        def read(cls, value: object) -> FormatName:
            if format_named(value) is None:
                raise ValueError(f"{value!r} is not a format; there are {', '.join(FORMATS)}")
            return cls(value)

        @classmethod
        def schema(cls) -> dict[str, Any]:
            return {"enum": list(FORMATS)}


_WHY = "Why the node stays out of FP16; `reason` says it in words."
Numbers = Mapping[str, Annotated[float, Meta(ge=0, le=sys.float_info.max)]]  # magnitudes and errors


class PlannedRecord(Record, frozen=True):
    """A node that does not run in FP16."""

    name: str
    op: str
    format: FormatName
    why: Annotated[Reason, about(_WHY)]
    reason: str
    numbers: Numbers


class StatedNode(Record, frozen=True, forbid_unknown_fields=True):
    """The same in a plan, where a person may have written it: all but the name may be missing."""

    name: str
    op: str = ""
    format: FormatName = "fp32"
    why: Annotated[str, Meta(description=_WHY, extra_json_schema={"enum": [reason.value for reason in Reason]})] = (
        Reason.WANTED.value
    )
    reason: str | Left = LEFT_OUT
    numbers: Numbers = field(default_factory=dict)


class KeptNodes(Record, frozen=True):
    """What an audit asks of a plan, or of a result of `fix`: the nodes that were to stay out of FP16."""

    fp32_nodes: tuple[str | StatedNode, ...]
    target: str | None = None

    @property
    def formats(self) -> dict[str, Format]:
        stated = [StatedNode(node) if isinstance(node, str) else node for node in self.fp32_nodes]
        return {node.name: FORMATS[node.format] for node in stated}


class RepairRecord(Record, frozen=True):
    """An exact rewrite at one place, and the nodes that it saves from FP32."""

    rule: RuleId
    nodes: Annotated[tuple[str, ...], Meta(min_length=1)]
    algebra: str = ""
    was: Annotated[str | Left, about("The left side of the algebra, where it is an equation.")] = LEFT_OUT
    becomes: Annotated[str | Left, about("Its right side.")] = LEFT_OUT
    parameters: Mapping[str, Any] = field(default_factory=dict)
    saved_fp32_nodes: Count = 0
    saved: tuple[str, ...] = ()


class ModelRecord(Record, frozen=True, forbid_unknown_fields=True):
    """The model that a plan was made for; without a sha256 it is for any that has these nodes."""

    path: str = ""
    sha256: str = ""
    nodes: Annotated[Count, about("As its file counts them, without those of functions and bodies.")] = 0
    data_sha256: Annotated[
        str | Left,
        about("Of the external data, where the model has some; of more than 1 GiB piece by piece."),
    ] = LEFT_OUT
    graph_sha256: Annotated[str | Left, about("Of the graph without its weights.")] = LEFT_OUT
    reference_sha256: Annotated[str | Left, about("Of the FP32 original that judged, where one was given.")] = LEFT_OUT


class RolloutQuestion(Record, frozen=True, forbid_unknown_fields=True):
    """How many steps in a row are judged; outputs by the inputs that take them in the next step."""

    steps: Count
    feedback: Mapping[str, str]


class PlanDocument(Document, frozen=True, tag="halfwise.plan/1", kw_only=True, forbid_unknown_fields=True):
    """A plan: which nodes stay out of FP16 and why. Written by hand it needs `schema` and `fp32_nodes` only."""

    model: ModelRecord = ModelRecord()
    target: str = str(DEFAULT_TARGET)
    profile: str = STRICT_PROFILE
    profile_sha256: Annotated[str | Left, about("Of the machine file that `profile` names, if it names one.")] = (
        LEFT_OUT
    )
    tolerance: Bounds | Left = LEFT_OUT
    output_kinds: OutputKinds | Left = LEFT_OUT
    metric: Annotated[str | Left, about("The ready measure that the tolerance's `metric` speaks of.")] = LEFT_OUT
    io_types: FormatName = "fp32"
    io_formats: Annotated[
        Mapping[str, Annotated[tuple[str, ...], Meta(min_length=1)]] | Left,
        about("Memory layouts of inputs and outputs; what is not named is plain `chw`."),
    ] = LEFT_OUT
    inputs: str = ""
    rollout: Annotated[RolloutQuestion | Left, about("Where many steps in a row were judged.")] = LEFT_OUT
    fp32_nodes: tuple[str | StatedNode, ...]
    repairs: tuple[RepairRecord, ...] = ()
