"""Types and shapes as onnx_ir's pass tells them, which writes the whole model out and reads it again."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from halfwise.model.inference import infer_types
from halfwise.model.shape_inference import infer_shapes
from tests.models.build import model, value
from tests.models.zoo import SHAPES, encoder


def told(of: ir.Model) -> list[list[tuple[str | None, str, str]]]:
    """Of each graph, in the order in which a file would have them."""
    graphs = [
        (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs))
        for graph in of.graphs()
    ]
    return [[(each.name, str(each.type), str(each.shape)) for each in values] for values in graphs]


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("name", [*SHAPES, "encoder"])
def test_as_the_pass_of_onnx_ir(name: str, follow: bool) -> None:
    proto = (encoder() if name == "encoder" else SHAPES[name]()).model
    del proto.graph.value_info[:]
    ours, theirs = ir.from_proto(proto), ir.from_proto(proto)
    weights = {name: value.const_value for name, value in ours.graph.initializers.items()}
    infer_shapes(ours, follow_values=follow)
    ShapeInferencePass(check_type=False, strict_mode=False, data_prop=follow)(theirs)
    assert told(ours) == told(theirs)
    assert {name: value.const_value for name, value in ours.graph.initializers.items()} == weights


def test_where_inference_gives_up_the_model_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object, **__: object) -> None:
        raise onnx.shape_inference.InferenceError("too odd")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", give_up)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    large = onnx.numpy_helper.from_array(np.zeros((3, 600), np.float32), "w")
    given = ir.from_proto(model([node], [value("x", shape=(2, 3))], [value("y", shape=None)], [large]))
    before = told(given), list(given.graph.initializers), given.graph.initializers["w"].const_value
    with pytest.raises(onnx.shape_inference.InferenceError):
        infer_shapes(given, follow_values=True)
    infer_types(given)
    assert (told(given), list(given.graph.initializers), given.graph.initializers["w"].const_value) == before
