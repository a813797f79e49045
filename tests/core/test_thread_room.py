"""Under a limit of memory sessions take fewer threads, where ONNX Runtime would wait for ever for one."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize(("limit", "megabytes"), [("RLIMIT_DATA", 1200), ("RLIMIT_AS", 3000)])
def test_as_many_sessions_as_there_are_segments_start(limit: str, megabytes: int) -> None:
    words = [sys.executable, "-c", _SESSIONS, limit, str(megabytes)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=100, check=False)
    assert ended.stdout.split() == ["60"], ended.stderr[-500:]
