"""What a stranger left in a folder of results: it stops nothing, and what it names outside stays as it is."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.core.held_folder import held, locked
from halfwise.core.whole_files import finish_interrupted
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.report.files import check_writable
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.fix.fix import fix
from tests.models.build import f32, model, node, value, weight

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and modes as POSIX has them")


def halved() -> onnx.ModelProto:
    return model([node("Mul", "x w", "y")], [value("x")], [value("y")], [weight("w", f32(0.5))])


SCRATCH = ".halfwise-999999999-x"


def scratch_in(folder: Path, **note: Any) -> Path:
    scratch = folder / SCRATCH
    scratch.mkdir(parents=True)
    (scratch / "a").write_text("a")
    (scratch / "names.json").write_text(json.dumps({"names": {}, "dropped": []} | note))
    return scratch


def linked_to_itself(folder: Path) -> None:
    (folder / "taken").symlink_to("taken")


NOTES: dict[str, tuple[dict[str, Any], Callable[[Path], None]]] = {
    "a folder dropped": ({"dropped": ["taken"]}, lambda folder: (folder / "taken").mkdir()),
    "a folder's name": ({"names": {f"{SCRATCH}/a": "taken"}}, lambda folder: (folder / "taken").mkdir()),
    "below a file": ({"names": {f"{SCRATCH}/a": "taken/b"}}, lambda folder: (folder / "taken").touch()),
    "below a link to itself": ({"names": {f"{SCRATCH}/a": "taken/b"}}, linked_to_itself),
    "a long name": ({"names": {f"{SCRATCH}/a": "n" * 300}, "dropped": ["n" * 300]}, lambda folder: None),
    "into itself": ({"names": {SCRATCH: f"{SCRATCH}/b"}}, lambda folder: None),
}


@pytest.mark.parametrize("which", NOTES)
def test_a_note_that_names_what_can_be_no_file_is_cleared_away(which: str, tmp_path: Path) -> None:
    note, put = NOTES[which]
    out = tmp_path / "out"
    scratch = scratch_in(out, **note)
    put(out)
    before = [path for path in out.iterdir() if path != scratch]
    finish_interrupted(out)
    assert list(out.iterdir()) == before


def test_a_scratch_folder_that_names_a_folder_does_not_stop_fix(tmp_path: Path) -> None:
    out = tmp_path / "out"
    scratch_in(out, dropped=["mine"], names={f"{SCRATCH}/a": "mine"})
    (out / "mine").mkdir()
    assert fix(halved(), out=out, max_runs=6).met
    assert sorted(path.suffix for path in out.iterdir()) == ["", ".json", ".onnx"]


def test_a_note_names_nothing_that_was_not_written_in_a_scratch_folder(tmp_path: Path) -> None:
    scratch_in(tmp_path, names={"mine": "moved"})
    (tmp_path / "mine").write_text("mine")
    finish_interrupted(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_folders_deeper_than_python_follows_stop_nothing(tmp_path: Path) -> None:
    here, scratch = Path.cwd(), scratch_in(tmp_path)
    os.chdir(scratch)
    try:
        for _ in range(1500):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    try:
        with held(tmp_path):
            pass
    finally:
        subprocess.run(["rm", "-rf", str(scratch)], check=True)  # nor does pytest follow


def test_a_disk_that_fails_is_one_line_and_the_note_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an interrupted run wrote is kept until its names can be given."""
    scratch = scratch_in(tmp_path, names={f"{SCRATCH}/a": "b"})

    def failing(self: Path, target: Path) -> Path:
        raise OSError(5, "Input/output error", str(self))

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(InputError, match="Input/output error"), held(tmp_path):
        pass
    monkeypatch.undo()
    with held(tmp_path):
        assert (tmp_path / "b").read_text() == "a" and not scratch.exists()


def test_a_link_to_itself_is_no_place_to_write(tmp_path: Path) -> None:
    linked_to_itself(tmp_path)
    with pytest.raises(InputError, match="two outputs have this name"):
        check_writable(tmp_path / "taken", tmp_path / "taken")


def test_bisect_leaves_alone_what_lies_in_its_folder(tmp_path: Path) -> None:
    """Its own steps and answers have a folder of their own."""
    out = tmp_path / "out"
    for name in ("outputs", "reference"):
        (out / name).mkdir(parents=True)
        (out / name / "mine.npz").write_text("mine")
    os.mkfifo(out / "step.onnx")
    before = sorted(out.rglob("*"))
    found = bisect(halved(), "ort-cpu", out=out, check="true", builds=3)
    assert found.good and sorted(out.rglob("*")) == before


def test_a_pipe_is_no_folder_to_remove(tmp_path: Path) -> None:
    """Nobody writes to it: whoever opened it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    KeptWalks(tmp_path / "pipe").discard()
    assert (tmp_path / "pipe").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_stops_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lustre is where nobody asked for them."""

    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", none)
    assert fix(halved(), out=tmp_path / "out", max_runs=6).met
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json", ".onnx"]


def test_a_lock_that_cannot_be_written_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("socket.gethostname", full)
    with pytest.raises(InputError, match="No space left"), held(tmp_path / "out"):
        pass
    with pytest.raises(OSError, match="No space left"):
        locked(tmp_path / "lock", "")
    assert not list(tmp_path.rglob("*lock"))
