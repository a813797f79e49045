"""What threads freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from halfwise.core import freed_memory

_OURS = """
import ctypes, threading
from halfwise.core.freed_memory import give_back_memory
from halfwise.core.put_off import put_off
put_off()
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
c.free(c.malloc(30 << 20))  # from now on the end of a heap is kept up to twice that
def held():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
def work():
    taken = [c.malloc(60_000) for _ in range(300)]
    for each in taken:
        ctypes.memset(each, 1, 60_000)
    print(held())
    for each in taken:
        c.free(each)
before = held()
thread = threading.Thread(target=work)
thread.start()
thread.join()
give_back_memory()
print(before, held())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone can be asked")
def test_what_a_thread_freed_goes_back() -> None:
    told = subprocess.run([sys.executable, "-c", _OURS], capture_output=True, text=True, check=True).stdout.split()
    most, before, after = (int(each) / 1024 for each in told)
    assert most - before > 16
    assert after - before < 4


def test_the_more_came_back_the_later_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process holds 100 MB of which the first time 40 MB come back, and then nothing."""
    megabyte, held, asked = 1 << 20, [100 << 20], []

    def give_back() -> None:
        asked.append(held[0])
        held[0] = 60 << 20

    monkeypatch.setattr(freed_memory, "give_back_memory", give_back)
    monkeypatch.setattr(freed_memory, "own_bytes", lambda: held[0])
    freed = freed_memory.Freed()
    when = []
    for number in range(800):
        before = len(asked)
        freed.count(megabyte)
        when += [number + 1] * (len(asked) - before)
    assert when[0] == 17  # more than 16 MB
    assert when[1] - when[0] == 16 * 40 + 1
    assert [late - early for early, late in pairwise(when[1:])] == [17] * (len(when) - 2)
    assert len(when) > 5
