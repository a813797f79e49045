"""One screen of text on stdout: coloured and wrapped to its width on a terminal, plain lines where a program reads."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from halfwise.core.errors import InputError
from halfwise.core.wording import and_more
from halfwise.report.text import brief, safe, width_of

__all__ = ["SEVERITY_STYLES", "Terminal", "share", "write_out"]

Item = TypeVar("Item")

SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}

_ANY_WIDTH = 10_000
_USUAL_WIDTH = 80
_GAP = 2
_NARROWEST = 12
_CELL = 40  # columns of a cell that is neither a name nor wrapped


class Terminal:
    """Gathers lines and tables; `flush` writes them. Rich itself heeds NO_COLOR, FORCE_COLOR and COLUMNS."""

    def __init__(self, *, full: bool = False) -> None:
        """`full` shows whole tables, however long."""
        self._full = full
        self._console = Console(file=_Page(), highlight=False, markup=False, emoji=False)
        self._wraps = self._console.is_terminal or "COLUMNS" in os.environ
        if not self._wraps:
            self._console.width = _ANY_WIDTH
        elif not 0 < self._console.width <= _ANY_WIDTH:  # what COLUMNS says may be any number
            self._console.width = _ANY_WIDTH if self._console.width > 0 else _USUAL_WIDTH
        self._parts: list[str] = []

    @property
    def width(self) -> int:
        return self._console.width

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """One paragraph: wrapped on a terminal, where no name fills the screen; one line where a program reads."""
        if not self._wraps:
            self._parts.append(f"{' ' * indent}{safe(text)}".rstrip() + "\n")
            return
        shown = safe(text) if self._full else brief(text)
        self._print(Padding(Text(shown, style=style), (0, 0, 0, min(indent, self.width // 3))))

    def command(self, label: str, text: str) -> None:
        """A command to copy: whole, however long; the terminal wraps it without a line's end in it."""
        self._parts.append(f"{safe(label)}{safe(text)}\n")

    def table(
        self,
        titles: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[int] = (),
        fold: int | None = None,
    ) -> None:
        """The first column holds names, shortened in the middle where room lacks; `fold` is a column that wraps."""
        rows = [[self._cell(cell, index, fold) for index, cell in enumerate(row)] for row in rows]
        widths = _widths(titles, rows)
        if self._wraps and sum(widths) + _GAP * len(widths) > self.width:  # titles of several words take lines
            titles = [titles[0], *(title.replace(" ", "\n") for title in titles[1:])]
            widths = _widths(titles, rows)
        taken = sum(width + _GAP for i, width in enumerate(widths) if i not in (0, fold))
        if self._wraps and min(widths[0], _NARROWEST) + taken + (0 if fold is None else _NARROWEST) > self.width:
            self._paragraphs(titles, rows)
            return
        if not self._wraps:  # as wide as it needs
            self._console.width = max(_ANY_WIDTH, sum(widths) + _GAP * len(widths))
        if fold is None:
            room = self.width - taken - _GAP
        else:  # half of what is left is for the text, and what the names leave of theirs
            room = max((self.width - taken) // 2 - _GAP, self.width - taken - widths[fold] - 2 * _GAP)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for index, title in enumerate(titles):
            table.add_column(
                Text(title), justify="right" if index in right else "left", no_wrap=index != fold, overflow="fold"
            )
        for row in rows:
            name = safe(row[0], max(_NARROWEST, room)) if self._wraps else row[0]
            table.add_row(Text(name), *map(Text, row[1:]))
        self._print(table)

    def _paragraphs(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table for which the screen is too narrow: cut numbers would be wrong ones."""
        for name, *cells in rows:
            self.line(safe(name, self.width))
            if told := [
                f"{title} {cell}".replace("\n", " ") for title, cell in zip(titles[1:], cells, strict=True) if cell
            ]:
                self.line(", ".join(told), indent=_GAP)

    def _cell(self, cell: str, index: int, fold: int | None) -> str:
        if not self._wraps or index == 0:
            return safe(cell)
        return (safe(cell) if self._full else brief(cell)) if index == fold else safe(cell, _CELL)

    @property
    def full(self) -> bool:
        """Whether everything was asked for."""
        return self._full

    @property
    def short(self) -> bool:
        """Whether a person looks, who did not ask for everything."""
        return self._wraps and not self._full

    def some(self, items: Sequence[Item], most: int) -> Sequence[Item]:
        """What of a long list is shown."""
        return items if self._full else items[:most]

    def more(self, total: int, most: int, noun: str = "", indent: int = 0) -> None:
        """That there is more of it, and how to see it."""
        if not self._full and total > most:
            self.line(f"...{and_more(total, most, noun)} (--full shows all)", indent=indent)

    def flush(self) -> None:
        write_out("".join(self._parts))
        self._parts.clear()

    def _print(self, renderable: Padding | Table) -> None:
        with self._console.capture() as captured:
            self._console.print(renderable)
        self._parts.extend(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([*map(width_of, title.split("\n")), *(width_of(row[i]) for row in rows)]) for i, title in enumerate(titles)
    ]


class _Page(io.StringIO):
    """Where rich draws, so that it never writes to stdout itself; a terminal where stdout is one."""

    def isatty(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()


def write_out(text: str) -> None:
    """Write to stdout. A reader that is not there, or a terminal with few letters, does not end the program."""
    if sys.stdout is None:  # it was closed before the start
        return
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail again when the interpreter closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"the answer cannot be written to stdout: {error.strerror}") from error


def share(value: float) -> str:
    """A share of values, as a percentage that is never rounded to none."""
    if value == 0:
        return "-"
    return "<0.01%" if value < 1e-4 else f"{value:.2%}"
