"""Memory that all sessions on the CPU share: what one tensor leaves the next takes, as fresh memory is slow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from halfwise.core.freed_memory import give_back_memory
from halfwise.core.put_off import Later
from halfwise.emulation.stamp import RUNTIME_IR_VERSION

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")

__all__ = ["shrink", "use_arena"]

_GROWTH = {
    "arena_extend_strategy": 0,  # by powers of two: in a piece of memory lie many tensors
    "initial_chunk_size_bytes": 1 << 20,
    "max_power_of_two_extend_bytes": 1 << 26,
    "max_dead_bytes_per_chunk": 1 << 18,  # more than that is not left over behind a tensor
}


def use_arena(options: ort.SessionOptions) -> None:
    """For a session that these options make."""
    _first()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False  # which lays all tensors of a run into one piece, and keeps the arena larger


def shrink() -> None:
    """What nobody uses goes back to the system, of what the C library keeps, too."""
    if _first.cache_info().currsize:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        _run(_first(), options)
    give_back_memory()


@cache
def _first() -> ort.InferenceSession:
    """Begins the arena. Only a run shrinks it, and this session needs nothing else."""
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, ort.OrtArenaCfg(_GROWTH))
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
