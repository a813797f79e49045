"""What threads freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

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


def test_memory_is_given_back_where_much_more_is_held_than_must_be() -> None:
    """A process must hold 100 MB. What is freed stays with it, until it is given back."""
    megabyte, must = 1 << 20, 100
    held, given, when = [100], [], []

    def give_back() -> None:
        given.append(held[0] - must)
        held[0] = must

    def count(number: int, more: int) -> None:
        before = len(given)
        held[0] += more
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(freed_memory, "own_bytes", lambda: held[0] * megabyte)
            freed.count(megabyte)
        when.extend([number] * (len(given) - before))

    freed = freed_memory.Freed(give_back)
    for number in range(1, 18):  # more than 16 MB
        count(number, 0)
    assert (given, when) == ([0], [17])
    for number in range(18, 400):
        count(number, 0)
    assert given == [0]  # it holds what it must
    for number in range(400, 4000):
        count(number, 1)
    least, *others = given[1:]
    assert 1.5 * must + 64 < must + least <= 1.5 * must + 64 + 17
    assert all(second - first > 3 * more for first, second, more in zip(when[1:], when[2:], given[1:], strict=False))
    assert len(others) > 1
