"""What threads freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from halfwise.core.freed_memory import large_pages

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


def test_a_child_takes_large_pages_unless_its_user_said_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert large_pages() == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")
    assert large_pages() == {}
    monkeypatch.delenv("GLIBC_TUNABLES")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert large_pages() == {}
