"""Audits an engine: the precision each ONNX node really ran in, how sure that is, and where a plan was not kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from halfwise.compiler.audit_document import AuditDocument, CoverageRecord, EngineRecord, NodeRecord, Violation
from halfwise.compiler.kernel_names import cast_count
from halfwise.compiler.layers_cost import EngineCost, cost_of, is_reformat
from halfwise.compiler.layers_evidence import UNKNOWN, Coverage, Evidence, NodeAudit, NodeInfo, nodes_from_log
from halfwise.compiler.layers_fields import NARROW, EngineLayers, Layer
from halfwise.core.document import Documented
from halfwise.core.english import documented, said
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.summary import Summary
from halfwise.core.wording import counted

if TYPE_CHECKING:
    from halfwise.compiler.buildlog.report import LogReport

__all__ = ["UNPROVEN", "Audit", "Coverage", "NodeAudit", "NodeInfo", "Violation", "audit", "nodes_from_log", "stated"]

UNPROVEN = "unproven"

# What no wish for FP32 can be about.
_INTEGERS = frozenset({"int32", "int64", "uint8", "bool"})


@dataclass(frozen=True, repr=False)
class Audit(Documented):
    """The result. `unproven` nodes are neither kept nor broken by anything visible."""

    source: str
    cost: EngineCost
    nodes: tuple[NodeAudit, ...]
    violations: tuple[Violation, ...]
    unproven: tuple[Violation, ...]
    notes: tuple[Note, ...] = ()
    kernels_with_casts: tuple[str, ...] = ()  # types change inside these, by their names
    reformat_layers: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()  # as they were listed; no part of the document

    @property
    def attention_kernels(self) -> tuple[str, ...]:
        return tuple(sorted({node.attention for node in self.nodes if node.attention}))

    @property
    def kept(self) -> bool:
        """Whether every wish is shown to have been kept; a node that was folded away ran in no type at all."""
        folded = {node.node for node in self.nodes if node.coverage == "folded"}
        return not self.violations and all(violation.node in folded for violation in self.unproven)

    def coverage(self) -> dict[str, int]:
        """Compute nodes by coverage."""
        counts: dict[str, int] = dict.fromkeys(("exact", "mixed", "region-only", "folded", "unknown"), 0)
        for node in self.nodes:
            counts[node.coverage] += node.compute
        return counts

    def engine(self) -> EngineRecord:
        return EngineRecord(
            **structs.asdict(self.cost),
            fused_attention=self.attention_kernels,
            kernels_with_casts=self.kernels_with_casts,
            reformat_layers=self.reformat_layers,
        )

    def summary(self) -> Summary:
        """What each node that computes ran in."""
        rows = tuple((n.node, n.op, n.precision, ", ".join(n.kernels), n.coverage) for n in self.nodes if n.compute)
        headline = f"{self.source}: {counted(len(rows), 'compute node')} in {counted(self.cost.kernels, 'kernel')}"
        return Summary(headline, ("node", "operator", "ran in", "kernels", "evidence"), rows)

    def document(self) -> AuditDocument:
        return AuditDocument(
            source=self.source,
            engine=self.engine(),
            coverage=CoverageRecord(**{name.replace("-", "_"): count for name, count in self.coverage().items()}),
            nodes=[_record(node) for node in self.nodes],
            violations=self.violations,
            unproven=self.unproven,
            **documented(self.notes),
        )


def audit(
    layers: EngineLayers,
    log: LogReport | None = None,
    model_nodes: Sequence[NodeInfo] | None = None,
    wanted: Mapping[str, Format] | None = None,
    source: str = "",
) -> Audit:
    """Judge each node of the model by the layers of its engine.

    The log adds what the layers lack: the map from layers to nodes, the nodes inside a Myelin region, the declared
    types. Without `model_nodes` the log's own nodes are taken, else those that the layers name.
    """
    evidence = Evidence(layers, log, model_nodes)
    nodes = tuple(evidence.node(info) for info in evidence.infos)
    violations, unproven = _compare(nodes, evidence, wanted or {})
    return Audit(
        source=source,
        cost=cost_of(layers.layers),
        nodes=nodes,
        violations=violations,
        unproven=unproven,
        notes=tuple(evidence.notes()),
        kernels_with_casts=tuple(layer.name for layer in layers.layers if cast_count(layer.name)),
        reformat_layers=tuple(layer.name for layer in layers.layers if is_reformat(layer)),
        layers=layers.layers,
    )


def stated(
    layers: EngineLayers, log: LogReport | None = None, model_nodes: Sequence[NodeInfo] | None = None
) -> dict[str, Format]:
    """The nodes that a model of mixed types asks for in FP32 by its own types, where the build was bound to these."""
    evidence = Evidence(layers, log, model_nodes)
    types = {info.name: evidence.declared(info.name) for info in evidence.infos if info.compute}
    asked = {name: Format.FP32 for name, declared in types.items() if declared == Format.FP32.value}
    return asked if NARROW & set(types.values()) else {}


def _compare(
    nodes: Iterable[NodeAudit], evidence: Evidence, wanted: Mapping[str, Format]
) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
    """The nodes that did not run as wanted. A wish for FP16 is never broken: a wider type is no loss of accuracy."""
    by_name = {node.node: node for node in nodes}
    violations: list[Violation] = []
    unproven: list[Violation] = []
    for name, fmt in wanted.items():
        if fmt is Format.FP16:
            continue
        node = by_name.get(name)
        if node is None:
            unproven.append(_violation(name, fmt, UNPROVEN, (), (evidence.why_not_found(),)))
            continue
        if node.coverage == "folded" and node.compute:
            unproven.append(_violation(name, fmt, UNPROVEN, (), node.notes))
            continue
        if node.coverage == "folded" or node.precision in ("fp32", fmt.value, *_INTEGERS):
            continue
        if evidence.strong and not node.compute:
            continue  # it moves what those around it give, whose types are bound, and loses nothing by itself
        region = evidence.region_of(name) if node.coverage == "region-only" else None
        if node.precision == UNKNOWN:
            # Nothing shows a value that wide: where every boundary type in sight is narrow, the wish counts as broken.
            boundary = evidence.float_types(region) if region is not None else set()
            narrow = node.attention is not None or (bool(boundary) and not boundary & {"fp32", fmt.value})
            target = violations if narrow else unproven
            target.append(_violation(name, fmt, UNPROVEN, node.kernels, node.notes))
        else:
            why = node.notes or (Note.of(NoteKind.READS_AND_WRITES, types=[node.precision]),)
            violations.append(_violation(name, fmt, node.precision, node.kernels, why))
    return tuple(violations), tuple(unproven)


def _record(n: NodeAudit) -> NodeRecord:
    return NodeRecord(n.node, n.op, n.compute, n.precision, n.coverage, n.kernels, said(n.notes), n.notes)


def _violation(name: str, wanted: Format, got: str, kernels: Sequence[str], why: Sequence[Note]) -> Violation:
    return Violation(name, wanted.value, got, kernels, said(why), why)
