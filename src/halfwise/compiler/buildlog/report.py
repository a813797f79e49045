"""What was read from a build log: the build's facts, the findings, and the structure that maps layers to ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from halfwise.core.document import Count, Document, Documented
from halfwise.core.finding import Finding, most_severe_first
from halfwise.core.summary import Summary
from halfwise.core.wording import counted

__all__ = ["LogDocument", "LogReport", "LogStructure", "NodeType", "ReformatLayer"]


@dataclass(frozen=True)
class NodeType:
    """An ONNX node as the parser announced it: its operator and its outputs' names and types ("fp16", "int64", ...)."""

    op: str
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReformatLayer:
    """A layer that TensorRT added to change the layout or the type of a tensor."""

    name: str
    tensor: str
    source: str
    target: str

    @property
    def casts(self) -> bool:
        return self.source != self.target


@dataclass(frozen=True)
class LogStructure:
    """What a verbose log tells of the network. All of it is empty for a log that is not verbose."""

    registered: Mapping[str, str] = field(default_factory=dict)  # TensorRT layer -> ONNX node
    nodes: Mapping[str, NodeType] = field(default_factory=dict)  # ONNX node -> operator and declared output types
    foreign: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # Myelin region -> ONNX nodes in it
    reformats: tuple[ReformatLayer, ...] = ()
    layers_set: Mapping[str, str] = field(default_factory=dict)  # layer -> precision that trtexec says it set
    engine_lines: tuple[str, ...] = ()  # the layer list of the last engine, one line a layer
    engines: int = 0
    strategy: int | None = None  # the backend strategy chosen last


class LogDocument(Document, frozen=True, tag="halfwise.log/1"):
    """What `halfwise log --json` prints: a build log's messages about precision."""

    source: str
    trt_version: str | None
    precision: str | None
    constraints: str | None
    strongly_typed: bool | None
    device: str | None
    lines: Count
    findings: Sequence[Finding]


@dataclass(frozen=True, repr=False)
class LogReport(Documented):
    """A build log, read."""

    source: str
    trt_version: str | None
    precision: str | None  # as the build states it: "FP32", "FP32+FP16", "Strongly Typed"
    constraints: str | None  # "obey" or "prefer"
    strongly_typed: bool | None  # None: the log does not say
    command: str | None
    findings: tuple[Finding, ...]
    structure: LogStructure
    lines: int
    recognised: bool = True  # whether any line of it is TensorRT's or one of its tools'
    device: str | None = None  # the GPU that trtexec selected, by name
    capability: str | None = None  # its compute capability, as "7.5"

    @property
    def typing(self) -> str:
        """That the network is strongly typed, where the stated precision does not tell."""
        return "strongly typed" if self.strongly_typed and "Strong" not in (self.precision or "") else ""

    def summary(self) -> Summary:
        """Each finding, the most severe first."""
        ordered = most_severe_first(self.findings)
        rows = tuple((f.severity, f.rule, f.where.name, f.message, f.remedy) for f in ordered)
        version = f"TensorRT {self.trt_version}" if self.trt_version else "TensorRT version not stated"
        headline = f"{self.source}: {version}, {self.precision or 'precision not stated'}; "
        columns = ("severity", "rule", "where", "message", "remedy")
        return Summary(headline + counted(len(rows), "finding"), columns, rows)

    def document(self) -> LogDocument:
        return LogDocument(
            source=self.source,
            trt_version=self.trt_version,
            precision=self.precision,
            constraints=self.constraints,
            strongly_typed=self.strongly_typed,
            device=self.device,
            lines=self.lines,
            findings=self.findings,
        )
