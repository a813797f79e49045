"""Runs a model with ONNX Runtime on the CPU: no fusion, no rewriting, weights shared by memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

from halfwise.engine.stamp import RUNTIME_IR_VERSION, stamped
from halfwise.errors import HalfwiseError, InputError

__all__ = ["RUNTIME_IR_VERSION", "Session", "check_casts"]

Array = NDArray[Any]


def _options(*, lean: bool, threads: int = 0) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # The search for a buffer to reuse is quadratic in the nodes: a second at 1,900 nodes, twenty at 7,300. Without it
    # tensors are still freed after their last use, and neither run time nor memory was seen to change.
    options.enable_mem_reuse = False
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
    return options


class Session:
    """One model, ready to run. `weights` fill the initializers that the protobuf only declares."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, Array] | None = None,
        *,
        lean: bool = False,
        threads: int = 0,
    ) -> None:
        options = _options(lean=lean, threads=threads)
        self._weights = [_ort_value(array) for array in (weights or {}).values()]  # the session reads their memory
        if weights:
            options.add_external_initializers(list(weights), self._weights)
        try:
            with stamped(proto):
                content = proto.SerializeToString()
            self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot load the model: {runtime_reason(error)}") from error
        self.output_names = tuple(out.name for out in self._session.get_outputs())
        self.input_names = tuple(value.name for value in self._session.get_inputs())

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Outputs by name."""
        names = list(outputs or self.output_names)
        try:
            results = self._session.run(names, dict(feeds))
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot run the model: {runtime_reason(error)}") from error
        return dict(zip(names, results, strict=True))

    def run_values(self, feeds: Mapping[str, ort.OrtValue], outputs: Sequence[str]) -> list[ort.OrtValue]:
        """The same on the runtime's own values: no copies, any type."""
        try:
            return list(self._session.run_with_ort_values(list(outputs), dict(feeds)))
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot run the model: {runtime_reason(error)}") from error


def _ort_value(array: Array) -> ort.OrtValue:
    """A value that shares the array's memory; the runtime knows NumPy's own types only, so BF16 goes by its bits."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def runtime_reason(error: Exception) -> str:
    """ONNX Runtime's own words without its prefixes and paths."""
    text = " ".join(str(error).split())
    for mark in ("Status Message: ", "Unsupported model", "This is an invalid model. "):
        if mark in text:
            text = text[text.index(mark) + (len(mark) if mark.endswith(" ") else 0) :]
    if text.startswith("[ONNXRuntimeError] : "):
        text = text.split(" : ", 3)[-1]
    return text[:400]


@cache
def check_casts() -> None:
    """Make sure that this ONNX Runtime does not drop the Cast pairs that emulation stands on."""
    probe = np.array([1 + 2.0**-11, 2.0**-25, 65520.0, 1 + 3 * 2.0**-11], dtype=np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    shape = [len(probe)]
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, shape)],
    )
    opset = [helper.make_opsetid("", 13)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=RUNTIME_IR_VERSION)
    seen = Session(proto).run({"x": probe})["z"]
    if not np.array_equal(seen, np.array([1.0, 0.0, np.inf, 1 + 2.0**-9], dtype=np.float32)):
        raise HalfwiseError(
            f"ONNX Runtime {ort.__version__} does not round through Cast as it should (got {seen.tolist()}); "
            "emulation cannot be trusted with it: install another version"
        )
