"""What a notebook or a Python prompt shows of a result: a headline and the first rows of its table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import Any, Literal

from halfwise.core.errors import MissingBackend
from halfwise.core.wording import and_more, three_digits

__all__ = ["Rank", "Summary"]

Rank = Literal["met", "caution", "missed"]  # a yes, a yes with a caution, a no

_ROWS = 6
_CELL = 44  # characters
_LINE = 160
_MARKS: dict[Rank | None, tuple[str, str]] = {
    "met": ("✓ ", "#12663f"),
    "caution": ("⚠ ", "#8a5a00"),
    "missed": ("✕ ", "#a8231b"),
    None: ("", "inherit"),
}


@dataclass(frozen=True)
class Summary:
    """`good`: whether the answer is yes; None where the result is no such answer. `wary`: a yes with a caution."""

    headline: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    good: bool | None = None
    wary: bool = False

    @property
    def rank(self) -> Rank | None:
        if self.good is None:
            return None
        return "missed" if not self.good else "caution" if self.wary else "met"

    def text(self) -> str:
        """At most nine lines."""
        lines = [_short(self.headline, _LINE)]
        if self.rows:
            cells = [self.columns, *([_cell(value) for value in row] for row in self.rows[:_ROWS])]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
            lines += [f"  {line.rstrip()}" for line in padded]
        if len(self.rows) > _ROWS:
            lines.append(f"  ...{and_more(len(self.rows), _ROWS, 'row')} (to_dataframe() has them all)")
        return "\n".join(lines)

    def html(self) -> str:
        """The same for a notebook; nothing in it can act."""
        mark, colour = _MARKS[self.rank]
        parts = [f'<p style="color:{colour}"><b>{mark}{escape(_short(self.headline, 2 * _LINE))}</b></p>']
        if self.rows:
            head = "".join(f"<th>{escape(title)}</th>" for title in self.columns)
            body = "".join(
                f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>" for row in self.rows[:_ROWS]
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if len(self.rows) > _ROWS:
            parts.append(
                f"<p>...{and_more(len(self.rows), _ROWS, 'row')}; <code>to_dataframe()</code> has them all</p>"
            )
        return "".join(parts)

    def dataframe(self) -> Any:
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MissingBackend("to_dataframe() needs pandas: pip install pandas") from None
        return pandas.DataFrame(list(self.rows), columns=list(self.columns))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return three_digits(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return _short(text, _CELL) if " " not in text.strip() else _short(_begun(text), _CELL)


def _begun(text: str) -> str:
    """As many words of a sentence as fit."""
    if len(text) <= _CELL:
        return text
    return f"{text[: _CELL - 3].rpartition(' ')[0] or text[: _CELL - 3]}..."


def _short(text: str, width: int) -> str:
    """Names come out of files that anyone may have written: what is not seen is spelled out, long ones lose their
    middle."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: 2 * width + 2_000])
    if len(shown) <= width:
        return shown
    head = (width - 3) // 2
    return f"{shown[:head]}...{shown[head + 3 - width :]}"
