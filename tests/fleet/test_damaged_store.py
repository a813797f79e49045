"""A store that somebody changed, and what another left in the folders of jobs: one line, and no answer of theirs."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from halfwise.core.errors import InputError
from halfwise.fleet.jobs import jobs_of
from halfwise.fleet.outcome import ANSWER, LOG, NO_FOLDER, Outcome, ended
from halfwise.fleet.run import Watcher, run_fleet
from halfwise.fleet.settings import read_settings
from halfwise.fleet.show import show_run
from halfwise.fleet.store import MIGRATIONS, STORE, Store
from halfwise.fleet.stored import last_run, whole_history
from halfwise.fleet.template import template
from halfwise.fleet.work import CALL, Order, work
from halfwise.report.terminal import Terminal
from tests.fleet.verbs import toy

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a store with one run and one result."""
    with Store(tmp_path, write=True) as store:
        run = store.begin("0", "")
        store._db.execute(
            "INSERT INTO results VALUES (1, 'k', 's', 'm', '', 'scan', '', '', 'm.onnx', '0', 1.0, 2.0, 3, 'good', '',"
            " 4, 0, 0.0, 0.1, 5.0, '[]', 'm/scan', NULL, 'here', '')"
        )
        store._db.execute("INSERT INTO run_results VALUES (?, 1, 0)", (run,))
        store.end(run, "ended")
    return tmp_path


def changed(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / STORE, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


CHANGES: dict[str, Sequence[str]] = {
    "a view without an end": (
        "ALTER TABLE run_results RENAME TO r", f"CREATE VIEW run_results AS SELECT i AS run FROM ({ENDLESS})",
    ),
    "a trigger": (f"CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT count(*) FROM ({ENDLESS}); END",),
    "a column that is gone": ("ALTER TABLE results RENAME COLUMN subject TO s",),
    "a version below zero": ("PRAGMA user_version = -1",),
    "a text for a number": ("UPDATE results SET seconds = 'long'",),
    "a time beyond the calendar": ("UPDATE results SET started = 1e300",),
    "a run beyond the calendar": ("UPDATE runs SET started = -1e300",),
    "deep culprits": (f"UPDATE results SET culprits = '{'[' * 100_000}'",),
    "other culprits": ("UPDATE results SET culprits = '[[\"a\", \"b\"]]'",),
    "bytes": ("UPDATE results SET why = x'ff'",),
}  # fmt: skip


@pytest.mark.parametrize("which", CHANGES)
def test_what_no_store_holds_is_one_line(which: str, folder: Path) -> None:
    assert last_run(folder).good
    changed(folder, *CHANGES[which])
    with pytest.raises(InputError, match=r"malformed: .*; move it away"):
        last_run(folder)


@pytest.mark.parametrize("which", ["a view without an end", "a trigger", "a column that is gone"])
def test_it_is_not_written_to_and_leaves_no_lock(which: str, folder: Path) -> None:
    changed(folder, *CHANGES[which])
    with pytest.raises(InputError, match="malformed"):
        Store(folder, write=True)
    assert [path.name for path in folder.iterdir()] == [STORE]


def test_a_result_that_is_gone_is_not_told(folder: Path) -> None:
    changed(folder, "INSERT INTO run_results VALUES (1, 99, 0)")
    assert [result.id for result in whole_history(folder)["m"]] == [1]


def test_a_store_of_every_version_is_taken(tmp_path: Path) -> None:
    for version in range(len(MIGRATIONS) + 1):
        (tmp_path / str(version)).mkdir()
        scripts = [*MIGRATIONS[:version], f"PRAGMA user_version = {version}"]
        with closing(sqlite3.connect(tmp_path / str(version) / STORE)) as database:
            for script in scripts:
                database.executescript(script)
        with Store(tmp_path / str(version), write=True) as store:
            assert store.runs() == []


@pytest.mark.parametrize("parts", ["[" * 100_000, '["a", 1]', "{}", "x"])
def test_a_digest_with_other_parts_is_not_known(parts: str, folder: Path) -> None:
    with Store(folder, write=True) as store:
        store.remember(Path("m.onnx"), 1, 2, "digest", ["w.bin"])
        assert store.known(Path("m.onnx"), 1, 2) == ("digest", ["w.bin"])
        store._db.execute("UPDATE contents SET parts = ?", (parts,))
        assert store.known(Path("m.onnx"), 1, 2) is None


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes as POSIX has them")
@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_stands_in_its_place_is_refused(put: object, tmp_path: Path) -> None:
    assert callable(put)
    put(tmp_path / STORE)
    with pytest.raises(InputError, match="link to another file"):
        Store(tmp_path, write=True)
    assert [path.name for path in tmp_path.iterdir()] == [STORE]


# -- folders of jobs --------------------------------------------------------------------------------------------------


def job_in(folder: Path) -> int:
    """The exit code of a job's process that says yes and complains."""
    child = os.fork()
    if child == 0:
        order = Order((), str(folder), "", "")
        os._exit(work({"order": asdict(order), "verb": f"{__name__}:said"}))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def said(words: Sequence[str]) -> int:
    print('{"status": "good"}', flush=True)
    return 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")
def test_a_job_writes_through_no_link(tmp_path: Path) -> None:
    folder, mine = tmp_path / "job", tmp_path / "mine"
    folder.mkdir()
    mine.write_text("mine")
    for name in (ANSWER, LOG, CALL):
        (folder / name).symlink_to(mine)
    assert job_in(folder) == 0
    assert json.loads((folder / ANSWER).read_text()) == {"status": "good"} and mine.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")
def test_the_answer_of_before_is_none_of_a_job_that_cannot_write(tmp_path: Path) -> None:
    (tmp_path / ANSWER).write_text('{"schema": "halfwise.scan/1", "status": "good"}')
    (tmp_path / LOG).mkdir()
    assert job_in(tmp_path) == NO_FOLDER
    wanted = Outcome("failed", f"{tmp_path} cannot be written to", 0.0, 1.0, 2)
    assert ended(tmp_path, NO_FOLDER, 0.0, 1.0, 2) == wanted


def test_a_model_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job says so: here nobody but the digest stumbles over it."""

    def shut(path: Path) -> str:
        if path.name == "shut.onnx":
            raise PermissionError(13, "Permission denied")
        return "digest"

    monkeypatch.setattr("halfwise.fleet.contents.digest_of", shut)
    for name in ("shut", "open"):
        (tmp_path / f"{name}.onnx").write_text("{}")
    (tmp_path / "fleet.toml").write_text(
        "[fleet]\nprocesses = 1\n[defaults]\ndo = ['fix']\n[[models]]\npath = '*.onnx'\n"
    )
    found = run_fleet(read_settings(tmp_path / "fleet.toml"), toy, Watcher())
    assert {result.model: result.state for result in found.results} == {"shut": "good", "open": "good"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
def test_a_name_that_is_no_unicode_is_one_line(tmp_path: Path) -> None:
    """Neither JSON nor SQLite holds it: the store was called malformed."""
    (tmp_path / os.fsdecode(b"caf\xe9.onnx")).write_text("{}")
    (tmp_path / "fleet.toml").write_text("[[models]]\npath = '*.onnx'\n")
    for asked in (lambda: jobs_of(read_settings(tmp_path / "fleet.toml")), lambda: template(tmp_path, tmp_path)):
        with pytest.raises(InputError, match="its name is no Unicode"):
            asked()


def test_a_run_that_was_killed_before_a_job_ended_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path, write=True) as store:
        store.begin("0", "")
    screen = Terminal()
    show_run(screen, last_run(tmp_path), ())
    screen.flush()
    assert "0 jobs: none has ended" in capsys.readouterr().out
