"""Under a limit sessions take fewer threads, where ONNX Runtime would wait for ever for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from halfwise.core import control_groups
from halfwise.core.thread_room import room_for
from tests.support.paths import ROOT

_SESSIONS = """
import resource, sys
from onnx import helper
from halfwise.emulation.ort import MANY, Session
limit = getattr(resource, sys.argv[1])
resource.setrlimit(limit, (int(sys.argv[2]) << 20,) * 2)
x, y = (helper.make_tensor_value_info(name, 1, [4]) for name in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
made = [Session(model, threads=MANY) for _ in range(60)]
print(len(made))
"""


def test_without_a_limit_there_is_room() -> None:
    assert room_for(8)


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
@pytest.mark.parametrize(("most", "room"), [("max", True), ("100", True), ("55", False), ("40", False)])
@pytest.mark.parametrize(
    ("line", "place"),
    [("0::/some/container", "some/container"), ("8:pids:/some/container", "pids/some/container"), ("0::/its/own", "")],
)
def test_a_container_may_limit_tasks(
    line: str, place: str, most: str, room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / place
    group.mkdir(parents=True, exist_ok=True)
    (group / "pids.max").write_text(f"{most}\n")
    (group / "pids.current").write_text("40\n")
    (tmp_path / "cgroup").write_text(f"1:cpu:/elsewhere\n{line}\n")
    monkeypatch.setattr(control_groups, "_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "_GROUPS", tmp_path)
    assert room_for(8) is room


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize(("limit", "megabytes"), [("RLIMIT_DATA", 1200), ("RLIMIT_AS", 3000)])
def test_as_many_sessions_as_there_are_segments_start(limit: str, megabytes: int) -> None:
    words = [sys.executable, "-c", _SESSIONS, limit, str(megabytes)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=100, check=False)
    assert ended.stdout.split() == ["60"], ended.stderr[-500:]
