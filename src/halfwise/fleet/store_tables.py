"""Whether the tables of a store are those that were made: a view in the place of one may be without an end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

__all__ = ["check_tables"]


def check_tables(database: sqlite3.Connection, scripts: Sequence[str]) -> None:
    """Refuse a store that lacks what these scripts made, or that does more on a change than it is told."""
    with closing(sqlite3.connect(":memory:")) as made:
        for script in scripts:
            made.executescript(script)
        wanted = _tables(made)
    found = _tables(database)
    lacking = next((name for name, columns in wanted.items() if not columns <= found.get(name, frozenset())), None)
    if lacking is not None:
        raise sqlite3.DatabaseError(f"it is malformed: it has no table {lacking!r} as a store has")
    trigger = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchone()
    if trigger is not None:
        raise sqlite3.DatabaseError(f"it is malformed: it has a trigger, {trigger[0]!r}")


def _tables(database: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The columns of each."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: frozenset(row[0] for row in database.execute("SELECT name FROM pragma_table_info(?)", (name,)))
        for (name,) in names
    }
