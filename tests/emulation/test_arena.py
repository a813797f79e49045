"""Sessions share memory, and what nobody uses goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SESSIONS = """
import numpy as np, onnx
from onnx import helper
from halfwise.core.freed_memory import own_bytes
from halfwise.emulation.arena import shrink
from halfwise.emulation.ort import Session
def session(steps):
    names = ["x", *(f"v{step}" for step in range(steps)), "y"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in zip(names, names[1:])]
    nodes.append(helper.make_node("ReduceMax", ["y"], ["most"], keepdims=0))
    ends = [helper.make_tensor_value_info(name, 1, None) for name in ("x", "most")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
x = np.ones(10_000_000, np.float32)
few, many = session(2), session(5)
held = [own_bytes()]
for each in (few, many):
    assert each.run({"x": x})["most"] in (1.0, -1.0)
    held.append(own_bytes())
shrink()
held.append(own_bytes())
print(*held)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is asked of Linux")
def test_sessions_share_what_they_take_and_it_goes_back() -> None:
    told = subprocess.run([sys.executable, "-c", _SESSIONS], capture_output=True, text=True, check=True).stdout
    start, one, both, shrunk = (int(each) / 1e6 for each in told.split())
    assert one - start > 60  # two tensors of 40 MB at a time
    assert both - one < 20
    assert shrunk - start < 20


def test_nothing_is_begun_where_there_is_nothing_to_give_back() -> None:
    code = "import sys; from halfwise.emulation.arena import shrink; shrink(); print('onnxruntime.capi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
