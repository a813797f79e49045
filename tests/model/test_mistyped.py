"""Nodes that are typed as ONNX defines none are found where ONNX Runtime refuses them, and nowhere else."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph

from halfwise.model.mistyped import mistyped
from halfwise.model.model import load
from tests.models.build import model, node, value
from tests.models.typed_graphs import BRAIN, FLOAT, HALF, mlp, tensor


def norm(scale: int) -> onnx.ModelProto:
    nodes = [node("LayerNormalization", "x s", "y", axis=-1)]
    return model(nodes, [value("x", HALF, (2, 4))], [value("y", HALF, (2, 4))], [tensor("s", scale, [1.0] * 4)])


def cast(made: int) -> onnx.ModelProto:
    nodes = [node("Cast", "x", "c", to=FLOAT), node("Identity", "c", "y")]
    found = model(nodes, [value("x", TensorProto.INT64, (2,))], [value("y", made, (2,))])
    found.graph.value_info.append(value("c", made, (2,)))
    return found


def joined(second: int) -> onnx.ModelProto:
    nodes = [node("Concat", "x y", "z", axis=0)]
    return model(nodes, [value("x", HALF, (2,)), value("y", second, (2,))], [value("z", HALF, (4,))])


def statistics(kind: int) -> onnx.ModelProto:
    """A batch norm, whose operands have type parameters of their own."""
    held = [tensor(name, HALF if name in "sb" else kind, [1.0] * 3) for name in "sbmv"]
    nodes = [node("BatchNormalization", "x s b m v", "y")]
    return model(nodes, [value("x", HALF, (2, 3))], [value("y", HALF, (2, 3))], held)


def quantised(kind: int) -> onnx.ModelProto:
    """As Olive leaves it that converts a dynamically quantised model."""
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("DequantizeLinear", "q s z", "y")]
    return model(nodes, [value("x", kind, (4,))], [value("y", FLOAT, (4,))])


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (norm(FLOAT), "y"),
        (norm(HALF), None),
        (cast(HALF), "c"),
        (cast(FLOAT), None),
        (joined(FLOAT), "z"),
        (joined(HALF), None),
        (statistics(FLOAT), None),
        (quantised(HALF), "q"),
        (quantised(FLOAT), None),
        (mlp(HALF), None),
        (mlp(BRAIN), None),
    ],
)  # fmt: skip
def test_what_onnx_runtime_refuses_is_found(made: onnx.ModelProto, name: str | None) -> None:
    found = mistyped(load(made))
    assert (None if found is None else found.outputs[0].name) == name
    if name is not None:
        with pytest.raises((Fail, InvalidGraph)):
            onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
