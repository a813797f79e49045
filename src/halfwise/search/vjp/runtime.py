"""One operator run by ONNX Runtime: for the heavy products, whose threads in NumPy spin and get in each other's way."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx.helper

from halfwise.emulation.ort import FEW, MANY, RUNTIME_IR_VERSION, Session
from halfwise.search.vjp.local import Array

__all__ = ["run"]

_OPSET = 13
_LARGE = 1 << 22  # elements that are worth many threads


def run(op: str, *arrays: Array, **attributes: Any) -> Array:
    """The first output of an operator on FP32 arrays."""
    threads = MANY if sum(array.size for array in arrays) >= _LARGE else FEW
    session = _session(op, len(arrays), tuple(attributes.items()), threads)
    feeds = {f"x{i}": np.ascontiguousarray(array, dtype=np.float32) for i, array in enumerate(arrays)}
    return session.run(feeds)["y"]


@lru_cache(maxsize=256)
def _session(op: str, count: int, attributes: tuple[tuple[str, Any], ...], threads: int) -> Session:
    names = [f"x{i}" for i in range(count)]
    node = onnx.helper.make_node(op, names, ["y"], **dict(attributes))
    given = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names]
    found = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph([node], op, given, found)
    opset = [onnx.helper.make_opsetid("", _OPSET)]
    proto = onnx.helper.make_model(graph, opset_imports=opset, ir_version=RUNTIME_IR_VERSION)
    return Session(proto, threads=threads)
