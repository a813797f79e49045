"""Every repair in one line: where it is, the algebra of what it does, and what it bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halfwise.report.terminal import Terminal

__all__ = ["explain_repairs", "places"]

_NAMED = 2  # nodes that are told by name


def explain_repairs(terminal: Terminal, repairs: Sequence[Mapping[str, Any]]) -> None:
    """All of them; with --explain there is nothing to be short about."""
    terminal.line()
    if not repairs:
        terminal.line("repairs: none; no rule would have saved an FP32 node here")
        return
    terminal.line(f"repairs ({len(repairs):,}):", "bold")
    for repair in repairs:
        where, algebra = places(repair.get("nodes", ())), repair.get("algebra", "")
        terminal.line(f"{repair.get('rule', '')} {where}: {algebra}; {_bought(repair)}", indent=2)


def places(nodes: Sequence[str]) -> str:
    return ", ".join(nodes) if len(nodes) < 3 else f"{nodes[0]} to {nodes[-1]} ({len(nodes)} nodes)"


def _bought(repair: Mapping[str, Any]) -> str:
    saved, names = int(repair.get("saved_fp32_nodes", 0)), [str(name) for name in repair.get("saved", ())]
    if not saved:
        return "what it bought shows at other repairs: without it they would not do"
    shown = ", ".join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")
    return f"saves {saved} FP32 node{'s' if saved != 1 else ''}" + (f" ({shown})" if shown else "")
