"""A comparison in one screen."""

from __future__ import annotations

from halfwise.core.english import said, say
from halfwise.core.wording import counted
from halfwise.report.terminal import Terminal
from halfwise.report.verdict import error_table, is_synthetic, show_notes, show_profiles
from halfwise.verbs.verify import Verification

__all__ = ["show_verification"]


def show_verification(terminal: Terminal, result: Verification, reference: str, other: str) -> None:
    verb, style = ("agrees", "bold green") if result.met else ("does not agree", "bold red")
    inputs = counted(result.samples, "synthetic input" if any(map(is_synthetic, result.notes)) else "input")
    terminal.line(f"{other} {verb} with {reference} within the tolerance, on {inputs}:", style)
    terminal.line(say(result.verdict.because), indent=2)
    if result.by_profile:
        show_profiles(terminal, result.by_profile)
    show_notes(terminal, result.notes)
    error_table(terminal, {"": result.outputs}, result.floats, ("rel_l2", "max_abs", "cosine", "topk"))
    for name, metrics in result.outputs.items():
        if metrics.uncompared:
            terminal.line(f"note: {name}: {said(metrics.uncompared)}", "yellow")
