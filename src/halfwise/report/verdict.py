"""The table of errors by output, and the notes; for every verb that compares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from halfwise.core.english import say
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import counted, three_digits
from halfwise.report.terminal import Terminal

__all__ = ["error_table", "is_synthetic", "show_notes", "show_profiles"]

_SHOWN = 12
_FOLDED = 2  # routine notes from which they are one line


def error_table(
    terminal: Terminal, columns: Mapping[str, Mapping[str, Metrics]], floats: Collection[str], metrics: Sequence[str]
) -> None:
    """One row an output, the worst first; each metric before and after, or whatever `columns` are called."""
    last = list(columns.values())[-1]
    ranked = sorted(last, key=lambda name: (last[name].nonfinite == 0, -last[name].rel_l2, name))
    names = [name for name in ranked if name in floats]
    if names:
        any_bad = any(metrics[name].nonfinite for metrics in columns.values() for name in names)
        shown = [*metrics, *(["nonfinite"] if any_bad else [])]
        titles = ["output", *(f"{metric} {column}".strip() for metric in shown for column in columns)]
        rows = [
            [name, *(_cell(outputs[name], metric) for metric in shown for outputs in columns.values())]
            for name in terminal.some(names, _SHOWN)
        ]
        _table(terminal, titles, rows, len(names))
    others = sorted(name for name in last if name not in floats)
    if others:
        titles = ["output", *(f"equal {column}".strip() for column in columns)]
        rows = [
            [name, *(f"{outputs[name].exact:.2%}" for outputs in columns.values())]
            for name in terminal.some(others, _SHOWN)
        ]
        _table(terminal, titles, rows, len(others))


def _table(terminal: Terminal, titles: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> None:
    terminal.line()
    terminal.table(titles, rows, right=range(1, len(titles)))
    terminal.more(total, _SHOWN, "output")


def _cell(metrics: Metrics, name: str) -> str:
    value = getattr(metrics, name)
    return f"{value:,}" if name == "nonfinite" else three_digits(value)


def show_notes(terminal: Terminal, notes: Sequence[Note]) -> None:
    """What the user must know of the result; made-up inputs are said first and loudly."""
    for note in notes:
        if is_synthetic(note):
            terminal.line(f"SYNTHETIC INPUTS: {say(note)}", "bold yellow")
    others = [note for note in notes if not is_synthetic(note)]
    routine = [note for note in others if note.severity == "info"] if terminal.short else []
    for note in others:
        if len(routine) < _FOLDED or note not in routine:
            terminal.line(f"note: {say(note)}", "yellow")
    if len(routine) >= _FOLDED:
        terminal.line(f"{counted(len(routine), 'note')}: --full", "yellow")


def is_synthetic(note: Note) -> bool:
    """Whether the note says that the inputs were generated."""
    return note.kind is NoteKind.SYNTHETIC


def show_profiles(terminal: Terminal, by_profile: Mapping[str, float]) -> None:
    """What each profile that judged says; the worst counts."""
    seen = ", ".join(f"{name} {three_digits(ratio)}" for name, ratio in by_profile.items())
    terminal.line(f"error over allowed error, by profile: {seen}")
