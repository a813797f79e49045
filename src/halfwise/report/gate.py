"""The gate in a few lines: the answer, then one line a check."""

from __future__ import annotations

from halfwise.core.english import say_all
from halfwise.report.terminal import Terminal
from halfwise.report.verdict import show_notes
from halfwise.verbs.gate import Gate

__all__ = ["WORDS", "show_gate"]

WORDS = {"pass": "pass", "fail": "FAIL", "skip": "skip"}
_STYLES = {"pass": "green", "fail": "bold red", "skip": ""}
_SHOWN = 5


def show_gate(terminal: Terminal, result: Gate) -> None:
    path = result.model.path or "the model"
    if result.holds:
        terminal.line(f"{result.plan} holds for {path}:", "bold green")
    else:
        terminal.line(f"{result.plan} does not hold for {path}:", "bold red")
    for check in result.checks:
        line = f"{WORDS[check.status]}  {check.id:<11} {check.message}"
        terminal.line(line, _STYLES[check.status], indent=2)
        for detail in terminal.some(say_all(check.details), _SHOWN):
            terminal.line(detail, indent=20)
        terminal.more(len(check.details), _SHOWN, "", indent=20)
    show_notes(terminal, result.notes)
