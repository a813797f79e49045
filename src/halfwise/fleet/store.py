"""The store of a fleet's results: one SQLite file, written by one process at a time, read by any."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import Meta

from halfwise.core import limits
from halfwise.core.document import Count, matching
from halfwise.core.errors import InputError
from halfwise.core.held_folder import locked
from halfwise.core.json_text import parse_json
from halfwise.core.opened import check_own
from halfwise.fleet.jobs import Job
from halfwise.fleet.outcome import Outcome
from halfwise.fleet.store_tables import check_tables

__all__ = ["MIGRATIONS", "STORE", "Result", "Store"]

STORE = "fleet.sqlite"
_LOCK = "fleet.lock"

# Each script brings a store of the version before to the next one; a new store runs them all.
MIGRATIONS = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, halfwise TEXT NOT NULL, settings TEXT NOT NULL,
        state TEXT NOT NULL
    );
    CREATE TABLE results (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, subject TEXT NOT NULL, model TEXT NOT NULL, version TEXT NOT NULL,
        action TEXT NOT NULL, target TEXT NOT NULL, tolerance TEXT NOT NULL, path TEXT NOT NULL, halfwise TEXT NOT NULL,
        started REAL NOT NULL, seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL, state TEXT NOT NULL,
        why TEXT NOT NULL, nodes INTEGER, fp32_nodes INTEGER, fp32_share REAL, error REAL, model_runs REAL,
        culprits TEXT NOT NULL, folder TEXT NOT NULL, document BLOB
    );
    CREATE INDEX results_by_key ON results (key);
    CREATE INDEX results_by_subject ON results (subject, id);
    CREATE TABLE run_results (
        run INTEGER NOT NULL REFERENCES runs (id), result INTEGER NOT NULL REFERENCES results (id),
        reused INTEGER NOT NULL, PRIMARY KEY (run, result)
    ) WITHOUT ROWID;
    CREATE TABLE contents (
        path TEXT PRIMARY KEY, size INTEGER NOT NULL, changed INTEGER NOT NULL, digest TEXT NOT NULL,
        parts TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE results ADD COLUMN host TEXT NOT NULL DEFAULT '';
    ALTER TABLE results ADD COLUMN report TEXT NOT NULL DEFAULT '';
    """,
)
T = TypeVar("T")

_DONE = ("good", "bad")  # the same job would end so again; what was refused for a full disk would not


Time = Annotated[float, Meta(ge=0, le=1e11)]  # that a calendar has


class _Run(NamedTuple):
    id: int
    started: Time
    ended: Time | None
    state: str


@dataclass(frozen=True)
class Result:
    """One job as it ended, without its document."""

    id: int
    key: str
    subject: str
    model: str
    version: str
    action: str
    target: str
    tolerance: str
    path: str
    halfwise: str
    started: Time
    seconds: float
    peak_bytes: Count
    state: str
    why: str
    nodes: int | None
    fp32_nodes: int | None
    fp32_share: float | None
    error: float | None
    model_runs: float | None
    culprits: tuple[tuple[str, int], ...]
    folder: str
    host: str
    report: str

    @property
    def good(self) -> bool:
        return self.state == "good"

    @property
    def wary(self) -> bool:
        """Whether it is good with a caution, which `why` tells."""
        return self.good and bool(self.why)


_COLUMNS = tuple(field.name for field in fields(Result))


class Store:
    """Opened to write it is locked against other writers; to read it is not, and is never created."""

    def __init__(self, folder: Path, *, write: bool) -> None:
        self.folder = folder
        self._write = False  # whether this process holds the lock
        self._open_files = ExitStack()
        path = folder / STORE
        if write:
            with _told(path):
                folder.mkdir(parents=True, exist_ok=True)
                self._open_files.enter_context(
                    locked(folder / _LOCK, "wait for it, or give another folder (results = ...)")
                )
                self._write = True
        elif not path.is_file():
            raise InputError(f"{path} is not there: `halfwise fleet run` makes it")
        try:
            if write:
                check_own(path)
            with _told(path):
                where = f"{path.absolute().as_uri()}{'' if write else '?mode=rw'}"
                self._db = sqlite3.connect(where, uri=True, isolation_level=None, timeout=30.0)
                self._open_files.enter_context(closing(self._db))
                self._db.execute("PRAGMA foreign_keys = ON" if write else "PRAGMA query_only = ON")
                self._open(path, write)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin(self, halfwise: str, settings: str) -> int:
        """A run; one of before that never ended is called interrupted."""
        with self._transaction():
            self._db.execute("UPDATE runs SET state = 'interrupted' WHERE state = 'running'")
            made = self._db.execute(
                "INSERT INTO runs (started, halfwise, settings, state) VALUES (?, ?, ?, 'running')",
                (time.time(), halfwise, settings),
            )
            return int(made.lastrowid or 0)

    def add(self, run: int, job: Job, key: str, outcome: Outcome, halfwise: str, folder: str, host: str) -> Result:
        """What a job came to, whole or not at all."""
        document = zlib.compress(json.dumps(outcome.document).encode()) if outcome.document is not None else None
        values: dict[str, Any] = {
            "key": key,
            "subject": job.subject,
            "model": job.model,
            "version": job.version,
            "action": job.action,
            "target": job.target,
            "tolerance": " ".join(job.tolerance),
            "path": str(job.path),
            "halfwise": halfwise,
            "started": outcome.started,
            "seconds": outcome.seconds,
            "peak_bytes": outcome.peak_bytes,
            "state": outcome.state,
            "why": outcome.why,
            "nodes": outcome.nodes,
            "fp32_nodes": outcome.fp32_nodes,
            "fp32_share": outcome.fp32_share,
            "error": outcome.error,
            "model_runs": outcome.model_runs,
            "culprits": json.dumps(outcome.culprits),
            "folder": folder,
            "host": host,
            "report": outcome.report,
        }
        names = ", ".join([*values, "document"])
        marks = ", ".join("?" * (len(values) + 1))
        with self._transaction():
            made = self._db.execute(f"INSERT INTO results ({names}) VALUES ({marks})", (*values.values(), document))
            self._db.execute("INSERT INTO run_results VALUES (?, ?, 0)", (run, made.lastrowid))
        return next(self._results("WHERE id = ?", (made.lastrowid,)))

    def reuse(self, run: int, results: Sequence[Result]) -> None:
        with self._transaction():
            rows = [(run, result.id) for result in results]
            self._db.executemany("INSERT OR IGNORE INTO run_results VALUES (?, ?, 1)", rows)

    def end(self, run: int, state: str) -> None:
        with self._transaction():
            self._db.execute("UPDATE runs SET state = ?, ended = ? WHERE id = ?", (state, time.time(), run))

    def remember(self, path: Path, size: int, changed: int, digest: str, parts: Sequence[str]) -> None:
        """The digest of a file that has this size and this time of its last change."""
        with self._transaction():
            row = (str(path.absolute()), size, changed, digest, json.dumps(list(parts)))
            self._db.execute("INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?, ?)", row)

    # -- reading ------------------------------------------------------------------------------------------------------

    def known(self, path: Path, size: int, changed: int) -> tuple[str, list[str]] | None:
        asked = (str(path.absolute()), size, changed)
        found = self._rows("SELECT digest, parts FROM contents WHERE path = ? AND size = ? AND changed = ?", asked)
        with suppress(ValueError):  # damaged: it is digested anew
            return matching((found[0][0], parse_json(found[0][1])), tuple[str, list[str]]) if found else None
        return None

    def done(self, key: str) -> Result | None:
        """The last answer to the same question, where asking again would give it again."""
        marks = ", ".join("?" * len(_DONE))
        return next(
            self._results(f"WHERE key = ? AND state IN ({marks}) ORDER BY id DESC LIMIT 1", (key, *_DONE)), None
        )

    def last(self, subject: str) -> Result | None:
        return next(self._results("WHERE subject = ? ORDER BY id DESC LIMIT 1", (subject,)), None)

    def runs(self) -> Sequence[tuple[int, float, float | None, str]]:
        """Id, start, end and state, the latest first."""
        rows = self._rows("SELECT id, started, ended, state FROM runs ORDER BY id DESC")
        return [self._read(row, _Run) for row in rows]

    def results_of(self, run: int) -> list[Result]:
        return list(self._results("WHERE id IN (SELECT result FROM run_results WHERE run = ?) ORDER BY id", (run,)))

    def before(self, run: int) -> dict[str, Result]:
        """By subject, the latest result of all runs before this one."""
        latest = "SELECT max(result) FROM run_results JOIN results ON result = id WHERE run < ? GROUP BY subject"
        which = f"WHERE id IN ({latest})"
        return {result.subject: result for result in self._results(which, (run,))}

    def history(self) -> list[tuple[int, Result]]:
        """Every result with each run that it belongs to, in the order of the runs."""
        pairs = self._rows("SELECT run, result FROM run_results ORDER BY run, result")
        by_id = {result.id: result for result in self._results("", ())}
        return [(run, by_id[result]) for run, result in pairs if result in by_id]

    def document(self, result: int) -> Mapping[str, Any] | None:
        found = self._rows("SELECT document FROM results WHERE id = ?", (result,))
        if not found or found[0][0] is None:
            return None
        with _told(self.folder / STORE):
            text = zlib.decompressobj().decompress(found[0][0], limits.LARGEST_JSON)
            return self._read(parse_json(text), dict[str, Any])

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with _told(self.folder / STORE):
            return self._db.execute(query, values).fetchall()

    def _results(self, which: str, values: Sequence[Any]) -> Iterator[Result]:
        for row in self._rows(f"SELECT {', '.join(_COLUMNS)} FROM results {which}", values):
            named = dict(zip(_COLUMNS, row, strict=True))
            with _told(self.folder / STORE):
                named["culprits"] = parse_json(named["culprits"])
            yield self._read(named, Result)

    def _read(self, held: Any, kind: type[T]) -> T:
        """SQLite lets a column hold anything."""
        with _told(self.folder / STORE):
            found = matching(held, kind)
            if found is None:
                raise ValueError("a row holds what no store holds")
            return found

    # -- the file -----------------------------------------------------------------------------------------------------

    def _open(self, path: Path, write: bool) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if path.stat().st_size % self._db.execute("PRAGMA page_size").fetchone()[0]:  # SQLite reads zeros beyond
            raise sqlite3.DatabaseError("it is malformed: its end is cut off")
        if version < 0:
            raise sqlite3.DatabaseError(f"it is malformed: it has no version {version}")
        if version > len(MIGRATIONS):
            raise InputError(f"{path} was written by a later version of halfwise: update halfwise")
        check_tables(self._db, MIGRATIONS[:version])
        if not write:
            if version < len(MIGRATIONS):
                raise InputError(f"{path} was written by an earlier version: `halfwise fleet run` brings it up to date")
            return
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            with self._transaction():
                for statement in filter(str.strip, script.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _told(self.folder / STORE):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _close(self) -> None:
        """The lock goes while it is held: whoever comes next makes its own."""
        if self._write:
            with suppress(OSError):
                (self.folder / _LOCK).unlink()
        with suppress(sqlite3.Error):
            self._open_files.close()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What goes wrong with the file, in one line."""
    try:
        yield
    except (ValueError, TypeError, zlib.error) as error:
        raise InputError(f"{path}: it is malformed: {error}{_advice('malformed')}") from error
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: {error}{_advice(str(error))}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def _advice(told: str) -> str:
    if "full" in told:
        return "; free some space and run the same command again: what was done is kept"
    if "I/O" in told:
        return "; its disk may be full or fail: what was done is kept"
    if "malformed" in told or "not a database" in told:
        return "; move it away and run the same command again: a new store is made"
    return ""
