"""Processes forked from one child, and fresh ones: each end is told, and nothing outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from halfwise.core.child.forks import Forks, Fresh, Processes
from tests.support.paths import ROOT

linux = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
HERE = "tests.core.test_child_forks"
LIMIT = 60.0


def end(how: dict[str, int]) -> int:
    if how.get("signal"):
        os.kill(os.getpid(), how["signal"])
    time.sleep(how.get("sleep", 0))
    return how.get("code", 0)


def gone(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().split(")")[1].split()[0] == "Z"
    except OSError:
        return True


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ends(processes: Processes, count: int) -> dict[int, int]:
    found: dict[int, int] = {}
    until(lambda: bool(found.update(processes.ended(0.1))) or len(found) >= count)
    return found


@pytest.mark.parametrize("kind", [pytest.param(lambda: Forks(()), marks=linux), Fresh])
def test_every_end_is_told(kind: Callable[[], Processes]) -> None:
    with kind() as processes:
        wanted = {
            processes.start(f"{HERE}:end", {"code": 7}): 7,
            processes.start(f"{HERE}:end", {"signal": int(signal.SIGSEGV)}): -int(signal.SIGSEGV),
            processes.start(f"{HERE}:nothing", {}): 1,
        }
        hangs = processes.start(f"{HERE}:end", {"sleep": 600})
        assert ends(processes, 3) == wanted
        processes.kill(hangs)
        assert ends(processes, 1) == {hangs: -int(signal.SIGKILL)}
        left = processes.start(f"{HERE}:end", {"sleep": 600})
    until(lambda: gone(left))


@linux
def test_a_child_that_dies_takes_its_forks_along_and_is_replaced() -> None:
    with Forks(()) as processes:
        number = processes.start(f"{HERE}:end", {"sleep": 600})
        parent = int(Path(f"/proc/{number}/stat").read_text().split(")")[1].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert ends(processes, 1) == {number: -9}
        until(lambda: gone(number))
        assert ends(processes, 1 if processes.start(f"{HERE}:end", {"code": 3}) else 0).popitem()[1] == 3


@linux
def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'src')]!r}\n"
        "from halfwise.core.child.forks import Forks\n"
        f"print(Forks(()).start('{HERE}:end', {{'sleep': 600}}), flush=True)\n"
        "import time; time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        child = int(Path(f"/proc/{number}/stat").read_text().split(")")[1].split()[1])
        parent.kill()
    until(lambda: gone(number) and gone(child))
