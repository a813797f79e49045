"""Every write survives: a process that is killed, a full disk, a closed or lost folder, two runs at once."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from halfwise.core.errors import InputError, NoRoom
from halfwise.core.file_lock import lock
from halfwise.core.held_folder import LOCK, held
from halfwise.core.whole_files import WholeFiles, check_room, finish_interrupted, scratch_folder, write_text
from halfwise.report.html.fix_report import with_report
from halfwise.verbs.fix.fix import JOURNAL, fix
from tests.models.build import f32, model, node, value, weight
from tests.support.paths import ROOT
from tests.support.says import Says

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks as POSIX has them")


def saved(folder: Path) -> Path:
    proto = model([node("Mul", "x w", "h"), node("Exp", "h", "y")], [value("x")], [value("y")], [weight("w", f32(0.5))])
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# -- killed -----------------------------------------------------------------------------------------------------------


def test_a_command_that_is_killed_goes_on() -> None:
    """At a few of the points that `python -m tools.fuzz.kills` tries all of."""
    commands = ("fix", "cost", "stages", "bisect", "gate", "fleet")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "tools.fuzz.kills", *commands, "--points", "2"],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    told = [f"{command}: killed at 2 points, 2 of them good" for command in commands]
    assert [line for line in ended.stdout.splitlines() if line] == told, ended


def test_a_batch_that_was_killed_among_its_names_is_finished(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old a")
    (tmp_path / "gone").write_text("old")
    child = os.fork()
    if child == 0:
        with WholeFiles() as files:
            files.text(tmp_path / "a", "new a")
            files.text(tmp_path / "b", "new b")
            files.drop(tmp_path / "gone")
            unlink = Path.unlink
            Path.unlink = lambda *a, **k: (unlink(*a, **k), os.kill(os.getpid(), signal.SIGKILL))[0]  # type: ignore[method-assign]
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "a").read_text() == "old a" and not (tmp_path / "gone").exists()
    finish_interrupted(tmp_path)
    assert tree(tmp_path) == {"a": b"new a", "b": b"new b"}


def test_the_scratch_of_a_process_that_was_killed_is_cleared_away(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with scratch_folder(tmp_path) as folder, WholeFiles() as files:
            files.text(folder / "typed.onnx", "half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with scratch_folder(tmp_path) as mine:
        assert len(list(tmp_path.iterdir())) == 2
        write_text(tmp_path / "a", "a")
        assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a", mine])
    assert tree(tmp_path) == {"a": b"a"}


@pytest.mark.parametrize("name", ["../outside", "/tmp/halfwise-outside", "a/../../outside"])
def test_a_note_of_a_stranger_names_nothing_outside(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    scratch = folder / ".halfwise-999999999-x"
    scratch.mkdir(parents=True)
    (scratch / "a").write_text("a")
    (tmp_path / "outside").write_text("mine")
    promised = {"names": {".halfwise-999999999-x/a": name}, "dropped": [name]}
    (scratch / "names.json").write_text(json.dumps(promised))
    finish_interrupted(folder)
    assert tree(tmp_path) == {"outside": b"mine"}


def test_a_note_of_a_stranger_leads_out_by_no_link(tmp_path: Path) -> None:
    folder, mine = tmp_path / "out", tmp_path / "mine"
    scratch = folder / ".halfwise-999999999-x"
    scratch.mkdir(parents=True)
    mine.mkdir()
    for name in ("given", "taken", "dropped"):
        (mine / name).write_text("mine")
    (scratch / "a").write_text("a")
    (folder / "link").symlink_to(mine)
    promised = {"names": {".halfwise-999999999-x/a": "link/given", "link/taken": "taken"}, "dropped": ["link/dropped"]}
    (scratch / "names.json").write_text(json.dumps(promised))
    finish_interrupted(folder)
    assert tree(mine) == dict.fromkeys(("given", "taken", "dropped"), b"mine") and not (folder / "taken").exists()


@pytest.mark.parametrize(
    "note",
    [
        json.dumps({"names": {}, "dropped": ["a\0b"]}),
        json.dumps({"names": {"a": "\ud800"}, "dropped": ["\ud800"]}),
        '{"names": {}, "names": {}, "dropped": []}',
        "[" * 100_000,
        None,
    ],
    ids=["zero", "surrogate", "twice", "deep", "pipe"],
)
def test_a_note_of_a_stranger_that_says_nothing_is_cleared_away(note: str | None, tmp_path: Path) -> None:
    scratch = tmp_path / ".halfwise-999999999-x"
    scratch.mkdir()
    if note is None:
        os.mkfifo(scratch / "names.json")
    else:
        (scratch / "names.json").write_text(note)
    finish_interrupted(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [LOCK, JOURNAL])
@pytest.mark.parametrize("put", ["symlink_to", "hardlink_to", "dangling", "pipe"])
def test_what_a_stranger_put_in_the_place_of_our_own_files_is_refused(name: str, put: str, tmp_path: Path) -> None:
    model, other, place = saved(tmp_path), tmp_path / "mine", tmp_path / "out" / name
    place.parent.mkdir()
    if put == "pipe":
        os.mkfifo(place)
    elif put == "dangling":
        place.symlink_to(other)
    else:
        other.write_text("mine")
        getattr(place, put)(other)
    with pytest.raises(InputError, match=f"{name} is a link to"):
        fix(model, out=place.parent, max_runs=6)
    assert not other.exists() if put in ("pipe", "dangling") else other.read_text() == "mine"
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("ending", [".fp16.onnx", ".fp16.onnx.data", ".plan.json", ".report.html"])
def test_a_pipe_in_the_place_of_a_result_is_refused_before_the_search(ending: str, tmp_path: Path, says: Says) -> None:
    """Nobody reads from it: whoever opened it would wait for ever."""
    model, out = saved(tmp_path), tmp_path / "out"
    out.mkdir()
    os.mkfifo(out / f"{model.stem}{ending}")
    with says.raises(InputError):
        fix(model, out=out, max_runs=6)
    assert [each.name for each in out.iterdir()] == [f"{model.stem}{ending}"]


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    scratch = tmp_path / f".halfwise-{os.getppid()}-x"
    scratch.mkdir()
    finish_interrupted(tmp_path)
    assert scratch.exists()


def dead() -> int:
    """The number of a process that was."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def test_what_a_killed_process_left_beside_a_file_goes_with_the_next_one(tmp_path: Path) -> None:
    left = tmp_path / f".halfwise-{dead()}-x"
    (left / "1").mkdir(parents=True)
    (left / "1" / "report.xml").write_text("ha")
    write_text(tmp_path / "report.xml", "whole")
    assert tree(tmp_path) == {"report.xml": b"whole"} and not left.exists()


def test_the_lock_tells_who_writes_though_its_number_is_that_of_a_dead_process(tmp_path: Path) -> None:
    """As it is where two containers write into one folder."""
    mine = tmp_path / f".halfwise-{dead()}-x"
    mine.mkdir()
    with (mine / "lock").open("w") as file:
        assert lock(file)
        write_text(tmp_path / "report.xml", "whole")
        assert mine.exists()
    reused = mine.rename(tmp_path / f".halfwise-{os.getppid()}-x")
    write_text(tmp_path / "report.xml", "whole")
    assert not reused.exists()


def test_what_is_left_of_clearing_away_goes_though_the_next_process_has_the_same_number(tmp_path: Path) -> None:
    """As it is in containers, where the number is always the same. Killed after each removal."""
    for removals in range(1, 20):
        child = os.fork()
        if child == 0:
            _end_after(removals)
            with scratch_folder(tmp_path) as mine, WholeFiles() as files:
                (mine / "deep").mkdir()
                (mine / "deep" / "typed.onnx").write_text("large")
                files.text(tmp_path / "a", "a")
                files.text(tmp_path / "b", "b")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        for left in tmp_path.glob(".halfwise-*"):
            left.rename(tmp_path / f".halfwise-{os.getpid()}-{left.name[-8:]}")
        finish_interrupted(tmp_path)
        assert tree(tmp_path) == {"a": b"a", "b": b"b"}
        if status == 0:
            return
    raise AssertionError("never at its end")


def _end_after(removals: int) -> None:
    """Kills this process after so many files and folders that it removed."""
    left = [removals]

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def removing(*given: Any, **named: Any) -> None:
            remove(*given, **named)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        return removing

    os.unlink, os.rmdir = counted(os.unlink), counted(os.rmdir)  # type: ignore[assignment]


# -- two at once ------------------------------------------------------------------------------------------------------


def test_the_second_run_says_who_holds_the_folder(tmp_path: Path, says: Says) -> None:
    path = saved(tmp_path)
    with held(tmp_path / "out"):
        before = tree(tmp_path)
        with says.raises(InputError):
            fix(path, out=tmp_path / "out")
        assert tree(tmp_path) == before
    assert not (tmp_path / "out").exists()
    assert fix(path, out=tmp_path / "out").met


def test_the_lock_of_a_dead_process_does_not_count(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with held(tmp_path / "out"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "out" / LOCK).exists()
    with held(tmp_path / "out"):
        assert f"process {os.getpid()} " in (tmp_path / "out" / LOCK).read_text()
    assert not (tmp_path / "out").exists()  # the dead one had made it


def test_a_lock_of_any_size_is_read_as_far_as_it_says_something(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / LOCK).open("w") as file:
        file.truncate(1 << 40)
    with held(tmp_path / "out"):
        assert (tmp_path / "out" / LOCK).stat().st_size < 1000


def test_a_folder_that_a_user_made_outlives_a_dead_process(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    child = os.fork()
    if child == 0:
        with held(tmp_path / "out"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with held(tmp_path / "out"):
        pass
    assert list((tmp_path / "out").iterdir()) == []


# -- disks and folders ------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_results_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    path = saved(tmp_path)
    fix(path, out=tmp_path / "out")
    before = tree(tmp_path)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with says.raises(InputError):
        fix(path, out=tmp_path / "out", target="trt-10.9@t4")
    with pytest.raises(InputError):
        fix(path, out=tmp_path / "new")
    kept = [tmp_path / folder / JOURNAL for folder in ("out", "new")]
    assert all(journal.stat().st_size for journal in kept)  # with which the same command goes on
    for journal in kept:
        journal.unlink()
    (tmp_path / "new").rmdir()
    assert tree(tmp_path) == before


def test_a_search_that_a_full_disk_ended_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, said = saved(tmp_path), list[str]()
    with monkeypatch.context() as full:
        full.setattr("halfwise.precision.typed_onnx.WholeFiles.need", lambda *_: check_room(path, tmp_path, 1 << 60))
        with pytest.raises(InputError, match="make room"):
            fix(path, out=tmp_path / "out")
    assert fix(path, out=tmp_path / "out", notify=said.append).met
    assert any("resuming" in step for step in said) and not (tmp_path / "out" / JOURNAL).exists()


def test_a_quota_is_one_line(tmp_path: Path) -> None:
    """Files of at most 100 bytes: the system refuses the rest of each."""
    path = saved(tmp_path)
    before = tree(tmp_path)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    ended = subprocess.run(
        [sys.executable, "-m", "halfwise", "fix", str(path), "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, preexec_fn=limited,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended
    assert "File too large" in ended.stderr
    assert tree(tmp_path) == before


def test_a_file_that_may_not_be_so_large_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    path, said = saved(tmp_path), list[str]()
    before = tree(tmp_path)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    with says.raises(NoRoom):
        fix(path, out=tmp_path / "out", notify=said.append)
    assert not said and tree(tmp_path) == before


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root writes everywhere")
def test_a_closed_folder_is_refused_before_the_search(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "out").mkdir(mode=0o555)
    with pytest.raises(InputError, match="out cannot be written to"):
        fix(path, out=tmp_path / "out")


def test_a_folder_that_vanishes_is_made_again_or_one_line(tmp_path: Path) -> None:
    path = saved(tmp_path)

    told_before: list[str] = []

    def vanish(told: str) -> None:
        told_before.append(told)
        if any(each.startswith("writing") for each in told_before):  # the results are there from then on
            return
        shutil.rmtree(tmp_path / "out", ignore_errors=True)

    try:
        result = fix(path, out=tmp_path / "out", notify=vanish)
    except InputError as error:
        assert "cannot be written" in str(error)
    else:
        assert result.files.typed is not None and result.files.typed.path.exists()


def test_a_folder_that_vanishes_before_the_report_is_no_result(tmp_path: Path) -> None:
    result = fix(saved(tmp_path), out=tmp_path / "out", max_runs=6)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(InputError, match="is gone: something removed it"):
        with_report(result)
    assert not (tmp_path / "out").exists()


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    fix(path, out=tmp_path / "a")
    jumps = iter(range(10**9, 0, -(10**6)))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    fix(path, out=tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
