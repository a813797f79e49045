"""Memory that all sessions on the CPU share: what one tensor leaves the next takes, as fresh memory is slow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from halfwise.core.put_off import Later
from halfwise.emulation.stamp import RUNTIME_IR_VERSION

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")

__all__ = ["shrink", "use_arena"]

_SAME_AS_REQUESTED = 1  # the arena grows by what is asked for; else by powers of two


def use_arena(options: ort.SessionOptions) -> None:
    """For a session that these options make."""
    _first()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False  # which lays all tensors of a run into one piece, and keeps the arena larger


def shrink() -> None:
    """What nobody uses goes back to the system."""
    if _first.cache_info().currsize:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        _run(_first(), options)


@cache
def _first() -> ort.InferenceSession:
    """The arena keeps its first piece for good: a session that needs little takes that."""
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, ort.OrtArenaCfg({"arena_extend_strategy": _SAME_AS_REQUESTED}))
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "first", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=RUNTIME_IR_VERSION)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.use_env_allocators", "1")
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    _run(session, ort.RunOptions())
    return session


def _run(session: ort.InferenceSession, options: ort.RunOptions) -> None:
    session.run(None, {"x": np.zeros(1, np.float32)}, options)
