"""Hands weights to a session by memory: a large model's are read where they lie, others are copied into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.put_off import Later

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")

__all__ = ["INLINE_ELEMENTS", "declared_weight", "hand_over"]

Array = NDArray[Any]

INLINE_ELEMENTS = 256  # larger weights are handed to the runtime by memory

_FILE = Path(__file__)  # the runtime wants one to be there, and reads nothing of it
_FOLDER = "session.model_external_initializers_file_folder_path"


def declared_weight(name: str, element_type: int, shape: Sequence[int]) -> onnx.TensorProto:
    """An initializer whose content is handed over."""
    proto = onnx.TensorProto(name=name, data_type=element_type, dims=shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    proto.external_data.add(key="location", value=_FILE.name)
    return proto


def hand_over(options: ort.SessionOptions, weights: Mapping[str, Array], *, shared: bool) -> list[ort.OrtValue]:
    """What the session reads for as long as it lives, where they are `shared` with it."""
    values = {name: _value(array) for name, array in weights.items()}
    if shared and _shares():
        _share(options, values)
    elif values:
        options.add_external_initializers(list(values), list(values.values()))
    return list(values.values())


def _share(options: ort.SessionOptions, values: Mapping[str, ort.OrtValue]) -> None:
    options.add_session_config_entry(_FOLDER, str(_FILE.parent))
    for name, value in values.items():
        options.add_initializer(name, value)


def _value(array: Array) -> ort.OrtValue:
    """A value that shares the array's memory; the runtime knows NumPy's own types only, others go by their bits."""
    array = np.require(array, requirements=["C", "A"])
    if array.dtype.isbuiltin != 1:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.dtype.itemsize}"), kind)
    return ort.OrtValue.ortvalue_from_numpy(array)


@cache
def _shares() -> bool:
    """Whether this ONNX Runtime takes a weight of which the model only says that it is outside."""
    single, weight = onnx.TensorProto.FLOAT, np.arange(512, dtype=np.float32)
    ends = [helper.make_tensor_value_info(name, single, [weight.size]) for name in ("x", "y")]
    nodes, held = [helper.make_node("Add", ["x", "w"], ["y"])], [declared_weight("w", single, weight.shape)]
    graph = helper.make_graph(nodes, "shared", ends[:1], ends[1:], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    value = _value(weight)
    with suppress(Exception):
        _share(options, {"w": value})
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return bool(np.array_equal(session.run(None, {"x": weight})[0], 2 * weight))
    return False
