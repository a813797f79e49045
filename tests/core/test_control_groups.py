"""What containers and services are given: by files of both versions of control groups, as the kernel writes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfwise.core import control_groups, cores
from halfwise.core.control_groups import cores_allowed, memory_free, memory_left
from halfwise.core.cores import cores_here
from halfwise.fleet import processes

Files = dict[str, str]

GB = 1 << 30


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(control_groups, "_GROUP", tmp_path / "self")
    monkeypatch.setattr(control_groups, "_GROUPS", tmp_path / "fs")
    cores._time_of.cache_clear()
    yield tmp_path
    cores._time_of.cache_clear()


def planted(root: Path, group: str, files: Files) -> None:
    (root / "self").write_text(group)
    for name, text in files.items():
        path = root / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


CASES = [
    ("0::/", {"memory.max": f"{4 * GB}", "memory.current": f"{GB}"}, 3 * GB),
    ("0::/", {"memory.max": "max", "memory.current": f"{GB}"}, math.inf),
    ("0::/a/b", {"a/memory.max": f"{2 * GB}", "a/b/memory.max": "max", "a/memory.current": "0"}, 2 * GB),
    ("0::/a/b", {"a/memory.max": f"{9 * GB}", "a/b/memory.max": f"{GB}"}, GB),
    ("0::/../../seen/from/outside", {"memory.max": f"{GB}", "memory.current": f"{2 * GB}"}, 0),
    (
        "0::/",
        {
            "memory.max": f"{4 * GB}",
            "memory.current": f"{3 * GB}",
            "memory.stat": f"anon 7\nactive_file {GB}\ninactive_file 8",
        },
        2 * GB + 8,
    ),
    (
        "9:name=systemd:/\n4:memory:/docker/0123\n1:cpu,cpuacct:/docker/0123",
        {"memory/memory.limit_in_bytes": f"{4 * GB}", "memory/memory.usage_in_bytes": f"{GB}"},
        3 * GB,
    ),
    (
        "4:memory:/docker/0123",
        {
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/docker/0123/memory.limit_in_bytes": f"{2 * GB}",
            "memory/docker/0123/memory.usage_in_bytes": f"{GB}",
            "memory/docker/0123/memory.stat": f"active_file 1\ntotal_active_file {GB // 2}",
        },
        GB + GB // 2,
    ),
    ("4:memory:/a\n0::/a", {"unified/a/memory.max": f"{GB}"}, GB),
    ("1:cpu:/a", {"memory/memory.limit_in_bytes": "5"}, math.inf),
    ("no lines of this kind", {"memory.max": "5"}, math.inf),
    ("0::/", {"memory.max": "garbage"}, math.inf),
]


@pytest.mark.parametrize(("group", "files", "left"), CASES)
def test_memory(root: Path, group: str, files: Files, left: float) -> None:
    planted(root, group, files)
    assert memory_left() == left


@pytest.mark.parametrize(
    ("told", "most", "free"),
    [
        ("MemTotal: 9 kB\nMemAvailable:    2097152 kB\nBuffers: 7 kB\n", "max", 2 * GB),
        ("MemTotal: 9 kB\nMemAvailable:    2097152 kB\n", f"{GB}", GB),
        ("MemTotal: 9 kB\n", "max", 10 * GB),
        ("MemAvailable: many kB\n", f"{GB}", GB),
    ],
)
def test_what_is_free(root: Path, monkeypatch: pytest.MonkeyPatch, told: str, most: str, free: int) -> None:
    planted(root, "0::/", {"memory.max": most})
    (root / "meminfo").write_text(told)
    monkeypatch.setattr(control_groups, "_MEMORY", root / "meminfo")
    assert memory_free() == free


@pytest.mark.parametrize(
    ("group", "files", "allowed"),
    [
        ("0::/", {"cpu.max": "max 100000"}, math.inf),
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "400000 100000"}, 0.5),
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, math.inf),
        ("1:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, 2.0),
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "200000"}, math.inf),
        ("0::/", {"cpu.max": "none"}, math.inf),
    ],
)
def test_cores(root: Path, group: str, files: Files, allowed: float) -> None:
    planted(root, group, files)
    assert cores_allowed() == allowed


def test_a_fleet_and_threads_heed_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    free = processes.memory_here()
    planted(root, "0::/job", {"memory.max": f"{GB}", "memory.current": f"{GB // 2}", "job/cpu.max": "10000 100000"})
    assert processes.memory_here() == min(free, round(0.8 * (GB // 2)))
    assert cores_here() == cores.cores() == 1
