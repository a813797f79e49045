"""Two documents side by side in one screen: what got worse first, section by section."""

from __future__ import annotations

from halfwise.core.english import said
from halfwise.core.wording import three_digits
from halfwise.report.terminal import Terminal
from halfwise.report.text import safe
from halfwise.verbs.compare import Comparison, Section
from halfwise.verbs.compare.result import Value

__all__ = ["show_comparison"]

_SHOWN = 8
_VALUE = 40  # columns of a value that is text
_NARROW_NOTE = 150  # columns from which there is room for reasons


def show_comparison(terminal: Terminal, result: Comparison) -> None:
    better, worse, changed = (result.count(direction) for direction in ("better", "worse", "changed"))
    style = "bold red" if worse else "bold green" if better else "bold"
    if not result.sections:
        terminal.line(f"{result.b} against {result.a} ({result.kind}): no difference", "bold")
        return
    counts = f"{better:,} better, {worse:,} worse, {changed:,} otherwise different"
    terminal.line(f"{result.b} against {result.a} ({result.kind}): {counts}", style)
    for section in result.sections:
        _show_section(terminal, section)


def _show_section(terminal: Terminal, section: Section) -> None:
    notes = terminal.width >= _NARROW_NOTE and any(change.because for change in section.changes)
    titles = [section.title, "before", "after", "", *(["why"] if notes else [])]
    rows = [
        [
            " ".join(part for part in (change.name, change.what) if part) or section.title,
            _shown(change.before),
            _shown(change.after),
            change.direction,
            *([said(change.because)] if notes else []),
        ]
        for change in terminal.some(section.changes, _SHOWN)
    ]
    terminal.line()
    terminal.table(titles, rows, right=(1, 2), fold=4 if notes else None)
    terminal.more(len(section.changes), _SHOWN)


def _shown(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return three_digits(value) if isinstance(value, float) else safe(value, _VALUE)
