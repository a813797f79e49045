"""What NVIDIA ModelOpt's AutoCast makes of a network: `python -m benchmarks.gpu.autocast FOLDER NAME ...`.

AutoCast runs with its defaults, calibrated with one input, inputs and outputs keeping their types. Its file is kept
without the weights that the network has too, so that it is small; `filled` puts them back, for any batch size.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.gpu.missing import MISSING

__all__ = ["filled", "without_weights"]


def without_weights(typed: onnx.ModelProto, exact: onnx.ModelProto) -> onnx.ModelProto:
    """The typed model; of weights that the exact one has by the same name and shape only the type is kept."""
    frame = onnx.ModelProto()
    frame.CopyFrom(typed)
    shapes = {tensor.name: list(tensor.dims) for tensor in exact.graph.initializer}
    del frame.graph.initializer[:], frame.graph.value_info[:]
    for tensor in typed.graph.initializer:
        source = tensor.name if tensor.name in shapes else re.sub(r"_\d+$", "", tensor.name)  # AutoCast makes copies
        if shapes.get(source) == list(tensor.dims):
            bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0], doc_string=source)
            frame.graph.initializer.append(bare)
        else:
            frame.graph.initializer.append(tensor)
    return frame


def filled(frame: onnx.ModelProto, exact: onnx.ModelProto) -> onnx.ModelProto:
    """The typed model with the weights, and the sizes of inputs and outputs, of the exact one."""
    weights: Mapping[str, onnx.TensorProto] = {tensor.name: tensor for tensor in exact.graph.initializer}
    model = onnx.ModelProto()
    model.CopyFrom(frame)
    for tensor in model.graph.initializer:
        if tensor.doc_string in weights:
            values = numpy_helper.to_array(weights[tensor.doc_string])
            kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            if values.dtype.kind == "f" and kind == np.float16:
                values = np.clip(values, -65504, 65504)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), tensor.name))
    shapes = {value.name: value.type for value in (*exact.graph.input, *exact.graph.output)}
    for value in (*model.graph.input, *model.graph.output):
        value.type.CopyFrom(shapes[value.name])
    return model


def main() -> None:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    for name in sys.argv[2:]:
        built = MISSING[name]()
        with tempfile.TemporaryDirectory() as folder:
            path, inputs = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
            onnx.save(built.model, path)
            np.savez(inputs, **built.inputs[0])  # type: ignore[arg-type]
            typed = convert_to_mixed_precision(str(path), "fp16", keep_io_types=True, calibration_data=str(inputs))
        onnx.save(without_weights(typed, built.model), Path(sys.argv[1], f"{name}.autocast.onnx"))
        print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main()
