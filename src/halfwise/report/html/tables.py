"""The long tables of the page as data: rows that the page shows a few at a time, sorted and searched there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.core.counting import Counts
from halfwise.core.finding import SEVERITIES
from halfwise.report.axis import zone_of
from halfwise.report.html.embed import digits
from halfwise.report.html.histogram import WeightHistogram
from halfwise.report.html.names import Names
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.scan import ScanResult
from halfwise.verbs.trace import Trace

__all__ = ["audit_rows", "finding_rows", "kernel_rows", "node_rows", "tensor_rows", "weight_rows"]

Row = list[Any]
_KERNEL_NODES = 40  # named of one kernel
ZONE_KEYS = ("normal", "sub", "lost", "over", "nonfinite")  # by badness


def tensor_rows(result: FixResult, names: Names, trace: Trace | None) -> list[Row]:
    """In execution order: name, node, zone, min, max, least magnitude, largest, shares over, subnormal, lost, and of
    what is not finite."""
    order = {site.name: site.index for site in result.sites.all}
    makers = {value.name: site.name for site in result.sites.all for value in site.node.outputs if value.name}
    traced = {tensor.name: tensor for tensor in trace.tensors} if trace is not None else {}
    rows: list[Row] = []
    for name, counts in result.measured.ranges.items():
        low, high, shares = counts.min, counts.max, _shares(counts)
        if (seen := traced.get(name)) is not None:  # over more inputs than one
            low, high = min(low, seen.min), max(high, seen.max)
            shares = (seen.over, seen.below_normal - seen.below_subnormal, seen.below_subnormal, seen.nonfinite)
        most = max(abs(low), abs(high), counts.max_abs)
        rows.append(
            [
                names(name),
                order.get(makers.get(name, ""), -1),
                ZONE_KEYS.index(zone_of(*shares)),
                *(digits(x) for x in (low, high, counts.min_abs, most)),
                *(digits(x) for x in shares),
            ]
        )
    return rows


def _shares(counts: Counts) -> tuple[float, float, float, float]:
    places = max(counts.count, 1)
    return (
        counts.overflow / places,
        counts.subnormal / places,
        counts.underflow / places,
        counts.nonfinite / places,
    )


def node_rows(result: FixResult, names: Names) -> list[Row]:
    """What is kept out of FP16 and what cannot be in it: node, operator, format, why, reason."""
    return [
        [names(node.name), names(node.op), node.format.value.upper(), names(node.why), names(node.reason)]
        for node in (*result.plan.nodes, *result.decision.pinned)
    ]


def weight_rows(histogram: WeightHistogram, names: Names) -> list[Row]:
    return [[names(w.name), w.count, w.subnormal, w.underflow, w.overflow, w.nonfinite] for w in histogram.worst]


def finding_rows(scan: ScanResult, names: Names) -> list[Row]:
    return [
        [SEVERITIES.index(f.severity), names(f.rule), names(f.where.name), names(f.message), names(f.remedy)]
        for f in scan.findings
    ]


def audit_rows(result: FixResult, names: Names) -> list[Row]:
    """What the compiler made of each node that computes: node, operator, wanted, ran in, how sure, kernels, note."""
    compiled = result.deploy_files.compiled
    if compiled is None or compiled.audit is None:
        return []
    wanted: Mapping[str, str] = {name: fmt.value for name, fmt in compiled.decision.wanted.items()}
    broken = {violation.node for violation in compiled.audit.violations}
    return [
        [
            names(node.node),
            names(node.op),
            wanted.get(node.node, "").upper(),
            node.precision.upper() if node.precision not in ("mixed", "unknown") else node.precision,
            node.coverage,
            names(", ".join(node.kernels)),
            int(node.node in broken),
        ]
        for node in compiled.audit.nodes
        if node.compute
    ]


def kernel_rows(result: FixResult, names: Names) -> list[Row]:
    """The same by kernel, in the order of the nodes: kernel, how many nodes, which, what they ran in, casts in it."""
    compiled = result.deploy_files.compiled
    if compiled is None or compiled.audit is None:
        return []
    casting = set(compiled.audit.kernels_with_casts)
    inside: dict[str, list[tuple[str, str]]] = {}
    for node in compiled.audit.nodes:
        for kernel in node.kernels:
            inside.setdefault(kernel, []).append((node.node, node.precision))
    return [
        [
            names(kernel),
            len(nodes),
            names(", ".join(name for name, _ in nodes[:_KERNEL_NODES])),
            " and ".join(dict.fromkeys(p.upper() if p in ("fp16", "fp32", "bf16") else p for _, p in nodes)),
            int(kernel in casting),
        ]
        for kernel, nodes in inside.items()
    ]
