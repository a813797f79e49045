"""What passes between a process and its children is cleared away, at the latest by the next process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

from halfwise.core.child import folders

_MAKES = """
import sys
from halfwise.core.child.folders import ChildFolder
with ChildFolder() as folder:
    (folder / "in-0.npz").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


def _started(place: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _MAKES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(place), "PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.skipif(sys.platform == "win32", reason="there a killed process's files are still held for a while")
def test_a_killed_processs_folder_is_cleared_away_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    living, its = _started(tmp_path)
    killed, left = _started(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    strangers = tmp_path / "halfwise-child-of-another-program"
    strangers.mkdir()
    assert its.is_dir() and (left / "in-0.npz").exists()
    after, own = _started(tmp_path)
    assert not left.exists()
    assert (its / "in-0.npz").exists() and own.is_dir() and strangers.is_dir()
    for process in (living, after):
        process.communicate()
    assert sorted(tmp_path.iterdir()) == [strangers]


_FORKS = """
import os, sys
from halfwise.core.child.folders import ChildFolder
folder = ChildFolder()
if not os.fork():
    if sys.argv[1] == "drops":
        del folder
    sys.exit()  # with all that a program does at its end
os.wait()
print(folder.path.is_dir())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
@pytest.mark.parametrize("how", ["drops", "ends"])
def test_a_fork_does_not_clear_away_what_is_its_parents(tmp_path: Path, how: str) -> None:
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, how], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "True\n" and not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "halfwise-child-link").symlink_to(elsewhere)
    process, _ = _started(tmp_path)
    process.communicate()
    assert (elsewhere / "lock").exists() and (tmp_path / "halfwise-child-link").is_symlink()


def test_a_folder_that_is_taken_for_left_before_its_lock_is_held_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may look in between: it holds the lock meanwhile, or has cleared the folder away."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tries = list[IO[str]]()

    def contended(file: IO[str]) -> bool:
        tries.append(file)
        if len(tries) == 2:
            shutil.rmtree(Path(file.name).parent)
        return len(tries) > 1

    monkeypatch.setattr(folders, "lock", contended)
    with folders.ChildFolder() as folder:
        assert len(tries) == 3 and folder.is_dir() and list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_locks_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: IO[str]) -> bool:
        raise OSError("no locks")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "lock", refused)
    with folders.ChildFolder() as folder:
        assert folder.is_dir()
    assert not list(tmp_path.iterdir())
