"""FP32 to FP16 as some machine may convert it: kept within the range, or without denormals."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from halfwise.emulation.profiles.steps import cast
from halfwise.precision.rewrite import Names

__all__ = ["LARGEST", "LEAST_NORMAL", "converted"]

LARGEST, LEAST_NORMAL = 65504.0, 2.0**-14


def converted(source: str, target: str, conversion: str, names: Names) -> list[onnx.NodeProto]:
    """A tensor rounded to FP16 and held in FP32. `conversion` is a hypothesis of that name."""
    nodes: list[onnx.NodeProto] = []

    def op(op_type: str, *inputs: str) -> str:
        result = names.value(f"{target}__{op_type.lower()}")
        nodes.append(helper.make_node(op_type, list(inputs), [result]))
        return result

    def number(value: float) -> str:
        result = names.value(f"{target}__number")
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        nodes.append(helper.make_node("Constant", [], [result], value=tensor))
        return result

    if "saturated" in conversion:
        source = op("Max", op("Min", source, number(LARGEST)), number(-LARGEST))
    narrow = names.value(f"{target}__narrow")
    nodes.append(cast(source, narrow, TensorProto.FLOAT16))
    wide = target if "flushed" not in conversion else names.value(f"{target}__kept")
    nodes.append(cast(narrow, wide, TensorProto.FLOAT))
    if "flushed" in conversion:
        small = op("Less", op("Abs", wide), number(LEAST_NORMAL))
        nodes.append(helper.make_node("Where", [small, number(0.0), wide], [target]))
    return nodes
