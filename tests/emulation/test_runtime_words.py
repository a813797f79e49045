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
from tests.support.says import Says

ANY = None


def _head() -> onnx.ModelProto:
    nodes = [node("Relu", "x", "h"), node("Reshape", "h four", "r", name="/head/Reshape"), node("Softmax", "r", "y")]
    return model(nodes, [value("x", shape=["n", 8])], [value("y", shape=[4, 4])], [weight("four", np.array([4, 4]))])


def _zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


REFUSED = {
    "Add": node("Add", "a b", "y", name="add"),
    "MatMul": node("MatMul", "a b", "y", name="mm"),
    "Concat": node("Concat", "a b", "y", name="cc", axis=0),
    "without a name": node("Add", "a b", "y", name=""),
}


@pytest.mark.parametrize("which", REFUSED)
def test_the_node_is_told(which: str, says: Says) -> None:
    ends = [value(name, shape=ANY) for name in "aby"]
    session = Session(model([REFUSED[which]], ends[:2], ends[2:]))
    with says.raises(InputError):
        session.run({"a": _zeros(2, 3), "b": _zeros(2, 4)})


def test_of_nodes_in_nodes_the_innermost_is_told(says: Says) -> None:
    branch = onnx.helper.make_graph([node("Reshape", "x four", "inside", name="deep")], "b", [], [value("inside")])
    made = model(
        [node("If", "c", "y", then_branch=branch, else_branch=branch, name="outer")],
        [value("c", onnx.TensorProto.BOOL, []), value("x", shape=["n"])],
        [value("y", shape=ANY)],
        [weight("four", np.array([4]))],
    )
    with says.raises(InputError):
        Session(made).run({"c": np.array(True), "x": _zeros(3)})


@pytest.mark.parametrize(
    "verb", [trace, stages, lambda made, feeds: verify(made, made, feeds)], ids=["trace", "stages", "verify"]
)
def test_the_sample_is_told(verb: Callable[..., object], says: Says) -> None:
    with says.raises(InputError):
        verb(_head(), [{"x": _zeros(2, 8)}, {"x": _zeros(3, 8)}])
