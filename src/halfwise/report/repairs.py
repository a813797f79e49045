"""Repairs in words: where each is, the algebra of what it does, and what it saves; alike ones together."""

from __future__ import annotations

from collections.abc import Sequence

from halfwise.core.wording import and_more, counted, listed
from halfwise.precision.plan_document import RepairRecord
from halfwise.report.terminal import Terminal

__all__ = ["alike", "explain_repairs", "places"]

_NAMED = 2  # nodes that are told by name


def explain_repairs(terminal: Terminal, repairs: Sequence[RepairRecord]) -> None:
    """All of them; with --explain there is nothing to be short about."""
    terminal.line()
    if not repairs:
        terminal.line("repairs: none; no rule saves an FP32 node here")
        return
    terminal.line(f"repairs ({len(repairs):,}):", "bold")
    for repair in repairs:
        where, algebra = places([repair]), repair.algebra
        terminal.line(f"{repair.rule} {where}: {algebra}; {_saved(repair)}", indent=2)


def alike(repairs: Sequence[RepairRecord]) -> list[list[RepairRecord]]:
    """Those of one rule and one algebra, in the order of the first of each."""
    found: dict[tuple[str, str], list[RepairRecord]] = {}
    for repair in repairs:
        found.setdefault((repair.rule, repair.algebra), []).append(repair)
    return list(found.values())


def places(repairs: Sequence[RepairRecord]) -> str:
    """The nodes of the first, and how many others there are."""
    nodes = repairs[0].nodes
    first = ", ".join(nodes) if len(nodes) < 3 else f"{nodes[0]} to {nodes[-1]} ({len(nodes)} nodes)"
    return first + and_more(len(repairs), 1)


def _saved(repair: RepairRecord) -> str:
    saved, names = repair.saved_fp32_nodes, repair.saved
    if not saved:
        return "saves no FP32 node by itself, but other repairs need it"
    shown = listed(names, _NAMED, str)
    return f"saves {counted(saved, 'FP32 node')}" + (f" ({shown})" if shown else "")
