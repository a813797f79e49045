"""The page of a result without a report of its own: its answer, its notes and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfwise.core.document import Documented
from halfwise.core.summary import Summary
from halfwise.core.whole_files import WholeFiles
from halfwise.report.html.embed import digits
from halfwise.report.html.names import Names
from halfwise.report.html.write import rendered
from halfwise.report.sheet_table import SheetTable

__all__ = ["write_sheet"]

_STYLES = ("tokens.css", "page.css", "pictures.css", "print.css")
_SCRIPTS = ("page.js", "table.js", "sheet.js", "csv.js")
_MOST_KINDS = 8  # values of a column that filters
_WORDY = frozenset({"message", "remedy", "reason", "evidence", "symptom", "workaround", "why"})
_FILTERS = ("status", "severity", "finding", "answer")


def write_sheet(
    path: Path,
    kind: str,
    result: Documented,
    tables: Sequence[SheetTable] = (),
    *,
    noun: str = "row",
    notes: Sequence[str] = (),
    command: str = "",
) -> Path:
    """Write one page that needs nothing beside it; `tables` come after the main one of the result's summary."""
    summary = result.summary()
    text = rendered("sheet.html", _page(kind, summary, tables, noun, notes, command), _STYLES, _SCRIPTS)
    with WholeFiles(path.parent) as files:
        files.text(path, text, errors="backslashreplace")
    return path


def _page(
    kind: str, summary: Summary, more: Sequence[SheetTable], noun: str, notes: Sequence[str], command: str
) -> dict[str, Any]:
    names = Names()
    first = SheetTable(f"By {noun}", noun, summary.columns, summary.rows)
    tables = [table for table in (first, *more) if table.rows]
    status = {"met": "Yes", "caution": "Yes, with a caution", "missed": "No", None: ""}[summary.rank]
    return {
        "title": kind,
        "kind": kind,
        "standing": summary.rank or "",
        "status": status,
        "headline": summary.headline,
        "tables": [(f"table-{index}", table) for index, table in enumerate(tables)],
        "notes": notes,
        "command": command,
        "data": {"tables": [_data(table, names) for table in tables], "names": names.table},
    }


def _data(table: SheetTable, names: Names) -> Mapping[str, Any]:
    columns = []
    for index, title in enumerate(table.columns):
        values = [row[index] for row in table.rows if row[index] is not None]
        number = bool(values) and all(isinstance(value, (int, float)) for value in values)
        columns.append([title, "num" if number else "wordy" if title in _WORDY else "text"])
    rows = [[_cell(value, names) for value in row] for row in table.rows]
    chosen = next((table.columns.index(title) for title in _FILTERS if title in table.columns), None)
    if chosen is not None and not 1 < len({row[chosen] for row in table.rows}) <= _MOST_KINDS:
        chosen = None
    return {"noun": table.noun, "columns": columns, "rows": rows, "filter": chosen}


def _cell(value: Any, names: Names) -> Any:
    """Texts are indices of names in a list of one, numbers stand for themselves."""
    if value is None:
        return None
    return digits(float(value)) if isinstance(value, (int, float)) else [names(str(value))]
