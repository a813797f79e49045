"""The gate in a few lines: the answer, then one line a check."""

from __future__ import annotations

from halfwise.core.english import say_all
from halfwise.report.shell import input_words, measuring_words, shell, without
from halfwise.report.terminal import Terminal
from halfwise.report.verdict import show_notes
from halfwise.verbs.gate import Gate

__all__ = ["WORDS", "show_gate"]

WORDS = {"pass": "pass", "fail": "FAIL", "skip": "skip"}
_STYLES = {"pass": "green", "fail": "bold red", "skip": ""}
_RANKS = {"met": "bold green", "caution": "bold yellow", "missed": "bold red"}
_SHOWN = 5


def show_gate(terminal: Terminal, result: Gate, command: str = "") -> None:
    """`command` is the line that asked, for the one that helps where the plan does not hold."""
    path = result.model.path or "the model"
    terminal.line(f"{result.plan} {result.told} for {path}:", _RANKS[result.rank])
    wary = ["tolerance"] if result.caution is not None else []
    for check in result.checks:
        line = f"{WORDS[check.status]}  {check.id:<11} {check.message}"
        terminal.line(line, "yellow" if check.id in wary else _STYLES[check.status], indent=2)
        for detail in terminal.some(say_all(check.details), _SHOWN):
            terminal.line(detail, indent=20)
        terminal.more(len(check.details), _SHOWN, indent=20)
    show_notes(terminal, result.notes)
    if not result.holds and result.model.path is not None:
        terminal.command("next    ", shell(_next(result, command)))


def _next(result: Gate, command: str) -> list[str]:
    """The same question with an update, which no plan of another engine can have; where that failed, a search."""
    asked = without(command, ("--engine",))
    if asked and "--update" not in asked:
        return [*asked, "--update"]
    target = [] if result.result is None else ["--target", result.result.plan.target]
    given = [*input_words(command), *measuring_words(command)]
    return ["halfwise", "fix", str(result.model.path), *given, *target, "--out", "again"]
