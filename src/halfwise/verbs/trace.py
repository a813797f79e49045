"""One instrumented pass over the inputs: the range of every tensor, and what FP16 does to each node on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import onnx
import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.core.document import Document, Documented, Number, Record, Share, about
from halfwise.core.english import documented
from halfwise.core.finding import Finding
from halfwise.core.formats import Format
from halfwise.core.notes import Messages, Note
from halfwise.core.summary import Summary
from halfwise.core.wording import counted
from halfwise.emulation.cached_walks import cached_walks
from halfwise.emulation.emulate import widen_feeds
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.all_samples import UsedInputs, all_samples
from halfwise.model.model import Model, load_to_run
from halfwise.verbs.fix.model_inputs import input_effects, input_findings
from halfwise.verbs.fix.original import put_back
from halfwise.verbs.traced_walks import Squares, TracedWalks

__all__ = ["NodeTrace", "TensorTrace", "Trace", "TraceDocument", "trace"]

Key = TypeVar("Key")
Item = TypeVar("Item")


class TensorTrace(Record, frozen=True):
    """What one float tensor held in FP32, over all inputs. The four last are shares of its values."""

    name: str
    node: Annotated[str, about("That makes it; empty for an input.")]
    min: float
    max: float
    over: Share
    below_normal: Share
    below_subnormal: Share
    nonfinite: Share


class NodeTrace(Record, frozen=True):
    """One node in FP16 among FP32 ones: the relative error of its result; inf where FP16 makes it non-finite."""

    name: str
    op: str
    local_error: Number


class TraceDocument(Document, frozen=True, tag="halfwise.trace/1"):
    """What `halfwise trace --json` prints: ranges of tensors and local errors of nodes."""

    inputs: UsedInputs
    tensors: Sequence[TensorTrace]
    nodes: Sequence[NodeTrace]
    notes: Sequence[str]
    messages: Messages = ()
    findings: Annotated[Sequence[Finding], about("Float inputs that FP16 would not carry well.")] = ()


@dataclass(frozen=True, repr=False)
class Trace(Documented):
    """Every float tensor in the order it was first seen, and every node whose precision is a choice."""

    tensors: tuple[TensorTrace, ...]
    nodes: tuple[NodeTrace, ...]
    samples: int
    inputs: str  # where the samples come from
    notes: tuple[Note, ...] = ()
    findings: tuple[Finding, ...] = ()  # float inputs that FP16 would not carry well

    def summary(self) -> Summary:
        """Each tensor with the error of its node alone in FP16, the worst first."""
        errors = {node.name: node.local_error for node in self.nodes}
        worst = sorted(self.tensors, key=lambda t: (-t.nonfinite, -t.over, -t.below_normal))
        rows = tuple(
            (t.name, t.node, errors.get(t.node), t.over, t.nonfinite, t.min, t.max, t.below_normal, t.below_subnormal)
            for t in worst
        )
        bad = sum(bool(tensor.over or tensor.nonfinite) for tensor in self.tensors)
        tensors = counted(len(rows), "float tensor")
        headline = f"{tensors} over {counted(self.samples, 'input')}; {bad:,} with values that FP16 cannot hold"
        columns = ("tensor", "node", "error", "over", "not finite", "min", "max", "below normal", "below subnormal")
        return Summary(headline, columns, rows)

    def document(self) -> TraceDocument:
        return TraceDocument(
            inputs=UsedInputs(self.inputs, self.samples),
            tensors=self.tensors,
            nodes=self.nodes,
            **documented(self.notes),
            findings=self.findings,
        )


def trace(
    model: str | Path | onnx.ModelProto | Model,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    reference: str | Path | onnx.ModelProto | Model | None = None,
    fmt: Format = Format.FP16,
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Trace:
    """Run the FP32 model node by node; every tensor is counted when it is made and dropped after its last use.

    `inputs` are files or folders, or samples as dictionaries of arrays; none makes synthetic ones. Errors of
    nodes inside control flow are those of the node that holds them. `reference` is the FP32 original of a model that
    is typed already: its weights are taken. `notify` gets the nodes done and their total.
    """
    with cached_walks("trace", model, *([] if reference is None else [reference])) as kept:
        model, notes = put_back(fp32_model(model if isinstance(model, Model) else load_to_run(model)), reference)
        samples = all_samples(model.inputs, inputs, sizes=sizes_that_run(model, inputs))
        walks = TracedWalks(model, fmt, kept, len(samples.feeds), notify)
        seen = [walks.seen(index, widen_feeds(feed)) for index, feed in enumerate(samples.feeds)]
    model.stamps.check()
    return Trace(
        tuple(_traced(value, counts) for value, counts in _together(each.tensors for each in seen).items()),
        tuple(
            NodeTrace(node.name or "", node.op_type, _relative(parts))
            for node, parts in _together(each.errors for each in seen).items()
        ),
        len(samples.feeds),
        samples.origin,
        (*notes, *samples.notes),
        tuple(input_findings(input_effects(model, samples.feeds))) if fmt is Format.FP16 else (),
    )


def _together(each: Iterable[Mapping[Key, Sequence[Item]]]) -> dict[Key, list[Item]]:
    """Of all samples, in the order of the first that has it."""
    found: dict[Key, list[Item]] = {}
    for part in each:
        for key, items in part.items():
            found.setdefault(key, []).extend(items)
    return found


def _traced(value: ir.Value, counts: Sequence[Counts]) -> TensorTrace:
    """A tensor over all samples."""
    producer = value.producer()
    places = max(sum(each.count for each in counts), 1)
    finite = [each for each in counts if each.count > each.nonfinite]
    return TensorTrace(
        name=value.name or "",
        node=producer.name or "" if producer is not None else "",
        min=min((each.min for each in finite), default=0.0),
        max=max((each.max for each in finite), default=0.0),
        over=sum(each.overflow for each in counts) / places,
        below_normal=sum(each.subnormal + each.underflow for each in counts) / places,
        below_subnormal=sum(each.underflow for each in counts) / places,
        nonfinite=sum(each.nonfinite for each in counts) / places,
    )


def _relative(parts: Sequence[Squares]) -> float:
    difference = sum(part.difference for part in parts)
    reference = sum(part.reference for part in parts)
    if difference == 0:
        return 0.0
    return math.sqrt(difference / reference) if reference > 0 else math.inf
