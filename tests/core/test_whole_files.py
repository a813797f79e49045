"""A batch of files: all of them under their names, or all as they were before."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from halfwise.core.errors import InputError
from halfwise.core.whole_files import WholeFiles, write_text
from tests.support.says import Says

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and pipes are POSIX")


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_text("before")
    return tmp_path


def test_all_files_get_their_names_at_the_end(folder: Path) -> None:
    with WholeFiles(folder / "new" / "deep") as files:
        files.text(folder / "a", "one\n")
        files.place(folder / "new" / "deep" / "b.npz").write_bytes(b"two")
        assert tree(folder)["a"] == "before" and not (folder / "new").exists()
    assert tree(folder) == {"a": "one\n", "new/deep/b.npz": "two"}


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1)])
def test_nothing_changes_where_anything_fails(folder: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), WholeFiles(folder / "new") as files:
        files.text(folder / "a", "one")
        files.text(folder / "new" / "b", "two")
        files.drop(folder / "a")
        raise error
    assert [p.name for p in folder.iterdir()] == ["a"] and tree(folder) == {"a": "before"}


def test_a_full_disk_is_one_line_that_names_the_file(folder: Path, says: Says) -> None:
    with pytest.raises(InputError) as caught, WholeFiles() as files:
        files.text(folder / "b", "one")
        files.place(folder / "a")
        raise OSError(28, "No space left on device")
    says(caught.value)
    assert tree(folder) == {"a": "before"}


def test_one_target_that_cannot_be_leaves_the_others_alone(folder: Path, says: Says) -> None:
    (folder / "taken").mkdir()
    with says.raises(InputError), WholeFiles() as files:
        files.text(folder / "a", "one")
        files.text(folder / "taken", "two")
    assert tree(folder) == {"a": "before"}


def test_a_folder_is_made_only_where_that_was_said(folder: Path, says: Says) -> None:
    with says.raises(InputError), WholeFiles() as files:
        files.text(folder / "none" / "a", "x")
    assert not (folder / "none").exists()
    write_text(folder / "made" / "of it" / "a", "x")
    assert (folder / "made" / "of it" / "a").read_text() == "x"


def test_what_is_dropped_goes_unless_it_is_written(folder: Path) -> None:
    (folder / "old").write_text("old")
    with WholeFiles() as files:
        files.drop(folder / "a")
        files.drop(folder / "old")
        files.drop(folder / "absent")
        files.text(folder / "a", "new")
        files.place(folder / "asked for, and not written")
    assert tree(folder) == {"a": "new"}


@posix
def test_modes_are_those_of_any_new_file(folder: Path) -> None:
    plain = folder / "plain"
    plain.write_text("")
    with WholeFiles() as files:
        files.text(folder / "text", "")
        script = files.text(folder / "script", "")
        script.chmod(script.stat().st_mode | 0o111)
    assert (folder / "text").stat().st_mode == plain.stat().st_mode
    assert stat.S_IMODE((folder / "script").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode) | 0o111


@posix
def test_a_pipe_is_written_to_as_it_is(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 9) == b"text" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)


def test_names_that_the_disk_has_and_utf8_has_not(folder: Path) -> None:
    write_text(folder / "a", "\udcff", errors="surrogateescape")
    assert (folder / "a").read_bytes() == b"\xff"
    with pytest.raises(UnicodeEncodeError):
        write_text(folder / "a", "\udcff")
    assert (folder / "a").read_bytes() == b"\xff"
