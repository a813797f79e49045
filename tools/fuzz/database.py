"""A store of SQLite whose rows and tables are changed as nobody writes them."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from tools.fuzz.artifacts import Artifact
from tools.fuzz.file_mutations import JSON_MUTATIONS, json_text
from tools.fuzz.odd_values import ODD_LEAVES

__all__ = ["Database"]

Change = Callable[[sqlite3.Connection, Random], None]

_PLAIN = [value for value in ODD_LEAVES if isinstance(value, (int, float, str))]
_CELLS: list[Any] = [value for value in _PLAIN if not str(value).startswith(("\ud800", "\udcff"))]
_CELLS += [b"", b"\xff\xfe", "[]", "[[1, 2]]", '[["a", "b"]]', "[" * 2000, None]
_MOST_STEPS = 10_000_000  # of one change: what another one put there may be without an end
_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


class Database(Artifact):
    """The file of a store, held as its bytes and the changes to come."""

    mutations: ClassVar[Mapping[str, Change]]

    def change(self, name: str, number: int) -> None:
        if name not in self.mutations:
            super().change(name, number)
            return
        with TemporaryDirectory(prefix="halfwise-fuzz-") as folder:
            path = Path(folder, "store")
            path.write_bytes(self._held)
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                database.set_progress_handler(lambda: 1, _MOST_STEPS)
                database.execute("PRAGMA journal_mode = DELETE")
                self.mutations[name](database, Random(number))
            self._held = path.read_bytes()

    def _written(self) -> bytes:
        return bytes(self._held)


def _tables(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return [name for (name,) in rows]


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def db_cell(database: sqlite3.Connection, random: Random) -> None:
    table = random.choice(_tables(database))
    column = random.choice(_columns(database, table))
    value = random.choice([cell for cell in _CELLS if not isinstance(cell, int) or abs(cell) < 1 << 63])
    database.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))


def db_text(database: sqlite3.Connection, random: Random) -> None:
    """JSON in a column, changed."""
    name, column = random.choice((("results", "culprits"), ("contents", "parts"), ("results", "document")))
    held = [["Pow", 1]] if column == "culprits" else ["w.bin"] if column == "parts" else {"schema": "halfwise.fix/1"}
    document: list[Any] = [held]
    JSON_MUTATIONS[random.choice(sorted(JSON_MUTATIONS))](document, random)
    text = json_text(document[0] if document else None)
    value = zlib.compress(text.encode()) if column == "document" else text
    database.execute(f"UPDATE {name} SET {column} = ?", (value,))


def db_row_gone(database: sqlite3.Connection, random: Random) -> None:
    table = random.choice(_tables(database))
    where = random.choice(("", f'WHERE "{_columns(database, table)[0]}" = 1'))
    database.execute(f'DELETE FROM "{table}" {where}')


def db_row_more(database: sqlite3.Connection, random: Random) -> None:
    database.execute("INSERT INTO run_results VALUES (?, ?, 0)", (random.choice((1, 2, 99)), random.choice((1, 99))))


def db_table_gone(database: sqlite3.Connection, random: Random) -> None:
    database.execute(f'DROP TABLE "{random.choice(_tables(database))}"')


def db_view(database: sqlite3.Connection, random: Random) -> None:
    """Instead of a table; one of them has no end."""
    table = random.choice(_tables(database))
    columns = _columns(database, table)
    named = ", ".join(f'i AS "{name}"' for name in columns)
    rows = (f'SELECT * FROM "{table}_2"', f"SELECT {named} FROM (SELECT 1 AS i)", f"SELECT {named} FROM ({_ENDLESS})")
    database.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_2"')
    database.execute(f'CREATE VIEW "{table}" AS {random.choice(rows)}')


def db_trigger(database: sqlite3.Connection, random: Random) -> None:
    table = random.choice(_tables(database))
    does = random.choice(
        (
            "SELECT RAISE(ABORT, 'no')", "SELECT RAISE(IGNORE)", f"SELECT count(*) FROM ({_ENDLESS})",
            "DELETE FROM runs", "UPDATE results SET state = 'good'",
        )
    )  # fmt: skip
    event = random.choice(("INSERT", "UPDATE"))
    database.execute(f'CREATE TRIGGER mine {random.choice(("BEFORE", "AFTER"))} {event} ON "{table}" BEGIN {does}; END')


def db_column(database: sqlite3.Connection, random: Random) -> None:
    table = random.choice(_tables(database))
    if random.random() < 0.5:
        database.execute(f'ALTER TABLE "{table}" ADD COLUMN mine TEXT NOT NULL DEFAULT ""')
    else:
        column = random.choice(_columns(database, table))
        database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_2"')


def db_version(database: sqlite3.Connection, random: Random) -> None:
    database.execute(f"PRAGMA user_version = {random.choice((0, 1, 3, -1, 1 << 30))}")


def db_key(database: sqlite3.Connection, random: Random) -> None:
    database.execute("DROP INDEX IF EXISTS results_by_key")


_CHANGES: tuple[Change, ...] = (
    db_cell, db_cell, db_cell, db_text, db_row_gone, db_row_more, db_table_gone, db_view, db_trigger, db_column,
    db_version, db_key,
)  # fmt: skip
Database.mutations = {change.__name__: change for change in _CHANGES}
