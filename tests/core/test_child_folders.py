"""What passes between a process and its children is cleared away, at the latest by the next process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "halfwise-child-link").symlink_to(elsewhere)
    process, _ = _started(tmp_path)
    process.communicate()
    assert (elsewhere / "lock").exists() and (tmp_path / "halfwise-child-link").is_symlink()
