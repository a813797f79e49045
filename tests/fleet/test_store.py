"""The store: one writer, old versions open; a full disk and a cut-off file are one line, and what was done is kept."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfwise.core.child.black_box import BlackBox
from halfwise.core.errors import InputError
from halfwise.fleet.store import MIGRATIONS, STORE, Store
from tests.fleet.test_run import fleet, run
from tests.support.says import Says

SMALL = 4 << 20  # bytes of a disk: six jobs and the log of their store, but not beside a filler


def test_a_second_fleet_on_one_store_is_refused(tmp_path: Path, says: Says) -> None:
    with Store(tmp_path, write=True), says.raises(InputError):
        Store(tmp_path, write=True)
    Store(tmp_path, write=True).__exit__(None, None, None)


def test_a_store_that_is_none_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / STORE).write_text("a text")
    with pytest.raises(InputError, match="move it away"):
        Store(tmp_path, write=True)
    assert [path.name for path in tmp_path.iterdir()] == [STORE]


def test_an_old_store_is_brought_up_to_date(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / STORE) as db:
        db.executescript(MIGRATIONS[0])
        db.execute(
            "INSERT INTO results VALUES (1, 'k', 's', 'm', '', 'fix', 'onnx', '', 'm.onnx', '0.1', 1, 2, 3, 'good', "
            "'', 10, 1, 0.1, 0.01, 5, '[]', 'm/fix', NULL)"
        )
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(InputError, match="earlier version"):
        Store(tmp_path, write=False)
    with Store(tmp_path, write=True) as store:
        kept = store.done("k")
        assert kept is not None and (kept.fp32_nodes, kept.host) == (1, "")
    with sqlite3.connect(tmp_path / STORE) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="later version"):
        Store(tmp_path, write=False)


def test_a_store_that_is_cut_off_anywhere_is_told_in_one_line_or_read(tmp_path: Path) -> None:
    file = fleet(tmp_path, {"a": {}, "b": {}})
    run(file)
    store = tmp_path / "fleet-results" / STORE
    with sqlite3.connect(store) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
    db.close()
    whole = store.read_bytes()
    ends = []
    for length in (0, 50, 100, 4_096, 6_000, len(whole) // 2, len(whole) - 4_096, len(whole) - 1):
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        store.write_bytes(whole[:length])
        try:
            ends.append(run(file).good)
        except InputError as error:
            assert str(store) in str(error) and "\n" not in str(error) and "move it away" in str(error)
            ends.append(False)
    assert ends[0] and not all(ends)
    store.write_bytes(whole)
    assert run(file).reused == 2


def test_a_log_that_is_cut_off_loses_its_last_job_at_most(tmp_path: Path) -> None:
    """What a power cut leaves: the file, and a part of what was written ahead."""
    file = fleet(tmp_path, {"a": {}, "b": {}, "c": {}})
    with Store(tmp_path / "fleet-results", write=True):  # held open, so that the log is not folded into the file
        pass
    results = tmp_path / "fleet-results"
    held = sqlite3.connect(results / STORE)
    held.execute("SELECT count(*) FROM results").fetchone()
    run(file)
    log = results / f"{STORE}-wal"
    copy = tmp_path / "copy"
    shutil.copytree(results, copy)
    held.close()
    content = log.read_bytes() if log.exists() else (copy / log.name).read_bytes()
    (copy / f"{STORE}-shm").unlink(missing_ok=True)
    (copy / log.name).write_bytes(content[: len(content) * 3 // 4])
    file.write_text(file.read_text().replace("[fleet]", "[fleet]\nresults = 'copy'"))
    again = run(file)
    assert again.good and again.reused in (1, 2)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = sys.platform == "linux" and shutil.which("mount") is not None
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)]
    if not mounted or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_is_told_and_what_was_done_is_kept(tmp_path: Path, small_disk: Path, says: Says) -> None:
    file = fleet(tmp_path, {f"m{index}": {} for index in range(6)})
    file.write_text(file.read_text().replace("[fleet]", f"[fleet]\nresults = '{small_disk}'"))
    filler = small_disk / "filler"
    filler.write_bytes(bytes(SMALL - (156 << 10)))
    with says.raises(InputError):
        run(file)
    filler.unlink()
    again = run(file)
    assert again.good and again.reused >= 1


@pytest.mark.parametrize("left", [b"", b"half"])
def test_what_a_job_left_that_was_stopped_as_it_began_does_not_stop_the_next(left: bytes, tmp_path: Path) -> None:
    """A file that was made and never filled, as on a full disk."""
    (tmp_path / "call").write_bytes(left)
    BlackBox(tmp_path / "call").write(b"running a node")
    assert BlackBox(tmp_path / "call").read() == b"running a node"
