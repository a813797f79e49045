"""What precision an engine really ran in, in one screen: the counts, and every node at which a plan was not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from halfwise.compiler.audit_findings import what_ran
from halfwise.core.english import say
from halfwise.core.nearest import nearest
from halfwise.core.wording import counted
from halfwise.report.terminal import Terminal
from halfwise.report.text import safe

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit, Violation
    from halfwise.verbs.audit import AuditResult, Wanted

__all__ = ["show_audit"]

_SHOWN = 20
_KERNEL = 24  # columns


def show_audit(terminal: Terminal, audited: AuditResult, shown: Wanted) -> None:
    """`shown`: the nodes to list."""
    result = audited.audit
    wanted = len(audited.wanted) if audited.wanted is not None else None
    cost = result.cost
    terminal.line(
        f"{result.source}: {counted(cost.kernels, 'kernel')}, {cost.bytes_moved / 1e6:.2f} MB between them, "
        f"{counted(cost.casts, 'cast')}, {counted(cost.reformats, 'reformat')}"
        + (f", {counted(cost.unsized, 'tensor')} of unknown size" if cost.unsized else ""),
        "bold",
    )
    if result.attention_kernels:
        kernels = ", ".join(result.attention_kernels)
        terminal.line(f"fused attention: {kernels}; its scores and softmax are not visible")
    counts = Counter((node.precision, node.coverage) for node in result.nodes if node.compute)
    terminal.line(f"{sum(counts.values())} compute nodes:")
    for (precision, coverage), number in counts.most_common():
        terminal.line(f"  {number:6} {precision:8} {coverage}")
    for note in result.notes:
        terminal.line(f"note: {say(note)}")
    if not shown:
        _show_violations(terminal, "violation", result.violations, "red")
        _show_violations(terminal, "unproven", result.unproven, "yellow")
    _show_nodes(terminal, audited.only(shown), bool(shown))
    if wanted is not None:
        terminal.line(_plan_verdict(result, wanted), "bold green" if result.kept else "bold red")


def _show_nodes(terminal: Terminal, result: AuditResult, chosen: bool) -> None:
    """What each node was asked to run in and ran in: those that were chosen, else what violations do not tell."""
    nodes = [n for n in result.nodes if n.compute or n.asked]
    if not chosen:
        nodes = [n for n in nodes if n.status in ("kept", "")]
    if not nodes:
        if chosen and result.shown is not None:
            terminal.line(f"no node is of these{_why_none(result, result.shown)}")
        return
    terminal.line()
    asked = any(node.asked for node in nodes)
    titles = ["node", *(["asked"] if asked else []), "got", "kernel", "evidence"]
    rows = [
        [
            node.node,
            *([node.asked] if asked else []),
            f"{node.got} ({node.status})" if node.status in ("violation", "unproven") else node.got,
            safe(", ".join(node.kernels), _KERNEL),
            node.evidence,
        ]
        for node in terminal.some(nodes, _SHOWN)
    ]
    terminal.table(titles, rows, fold=len(titles) - 1)
    terminal.more(len(nodes), _SHOWN, "node")


def _why_none(result: AuditResult, wanted: Wanted) -> str:
    if wanted.status and result.wanted is None:
        return ": nothing was asked of the engine; give --plan"
    names = [node.node for node in result.audit.nodes]
    if wanted.node:
        return nearest(wanted.node, names)
    parents = (str(parent) for name in names for parent in PurePosixPath(name).parents if parent.name)
    return nearest(wanted.module, parents) if wanted.module else ""


def _plan_verdict(result: Audit, wanted: int) -> str:
    broken, open_ = len(result.violations), len(result.unproven)
    if not wanted:
        return "the plan keeps no node out of FP16, so there is nothing to check"
    if broken:
        nodes = f"{broken} of {counted(wanted, 'node')}"
        return f"the plan was not kept: {nodes} ran otherwise or do not show the planned precision"
    if result.kept:
        return "no node breaks the plan" + (f"; {open_} of its {wanted} are in no kernel (folded)" if open_ else "")
    return f"the plan is not shown to have been kept: {open_} of its {counted(wanted, 'node')} cannot be verified"


def _show_violations(terminal: Terminal, title: str, violations: Sequence[Violation], style: str) -> None:
    for violation in terminal.some(violations, _SHOWN):
        kernels = f" [{', '.join(violation.kernels[:3])}]" if violation.kernels else ""
        terminal.line(f"{title} {violation.node}: {say(what_ran(violation))}{kernels}", style)
    terminal.more(len(violations), _SHOWN, indent=2)
