"""What ONNX Runtime refuses is told with the node and the sample, and without the library's own paths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import stages, trace, verify
from halfwise.core.errors import InputError
from halfwise.emulation.ort import Session
from tests.models.build import model, node, value, weight

ANY = None


def _head() -> onnx.ModelProto:
    nodes = [node("Relu", "x", "h"), node("Reshape", "h four", "r", name="/head/Reshape"), node("Softmax", "r", "y")]
    return model(nodes, [value("x", shape=["n", 8])], [value("y", shape=[4, 4])], [weight("four", np.array([4, 4]))])


def _zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


NAMED = {
    "node 'add' (Add): Attempting to broadcast an axis by a dimension other than 1. 3 by 4": node(
        "Add", "a b", "y", name="add"
    ),
    "node 'mm' (MatMul): MatMul dimension mismatch": node("MatMul", "a b", "y", name="mm"),
    "node 'cc' (Concat): Non concat axis dimensions must match: Axis 1 has mismatched dimensions of 4 and 3": node(
        "Concat", "a b", "y", name="cc", axis=0
    ),
    "a Add node: Attempting to broadcast an axis by a dimension other than 1. 3 by 4": node("Add", "a b", "y", name=""),
}


@pytest.mark.parametrize("said", NAMED)
def test_the_node_is_told(said: str) -> None:
    ends = [value(name, shape=ANY) for name in "aby"]
    session = Session(model([NAMED[said]], ends[:2], ends[2:]))
    with pytest.raises(InputError) as told:
        session.run({"a": _zeros(2, 3), "b": _zeros(2, 4)})
    assert str(told.value) == f"ONNX Runtime cannot run the model: {said}"


def test_of_nodes_in_nodes_the_innermost_is_told() -> None:
    branch = onnx.helper.make_graph([node("Reshape", "x four", "inside", name="deep")], "b", [], [value("inside")])
    made = model(
        [node("If", "c", "y", then_branch=branch, else_branch=branch, name="outer")],
        [value("c", onnx.TensorProto.BOOL, []), value("x", shape=["n"])],
        [value("y", shape=ANY)],
        [weight("four", np.array([4]))],
    )
    with pytest.raises(InputError, match=r"model: node 'deep' \(Reshape\): The input tensor cannot be reshaped"):
        Session(made).run({"c": np.array(True), "x": _zeros(3)})


@pytest.mark.parametrize("verb", [trace, stages, lambda made, feeds: verify(made, made, feeds)])
def test_the_sample_is_told(verb: Callable[..., object]) -> None:
    with pytest.raises(InputError) as told:
        verb(_head(), [{"x": _zeros(2, 8)}, {"x": _zeros(3, 8)}])
    text = str(told.value)
    assert text.endswith("Input shape:{3,8}, requested shape:{4,4}, with sample 2") and "onnxruntime_src" not in text
    assert text.count("/head/Reshape") == 1
