"""The fingerprint of a graph: weights do not count, everything else does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import halfwise
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.model import load
from tests.models.zoo import SHAPES
from tests.support.gates import scaled

# -- the fingerprint --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["layer_norm_overflow", "large_phase", "inverse_sigmoid"])
def test_weights_do_not_count_and_everything_else_does(name: str) -> None:
    model = SHAPES[name]().model
    known = graph_sha256(load(model))
    trained = onnx.ModelProto()
    trained.CopyFrom(model)
    scaled(1.5)(trained)
    assert graph_sha256(load(trained)) == known
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    inner = renamed.graph.node[0].output[0]
    for node in renamed.graph.node:
        for names in (node.input, node.output):
            for index, each in enumerate(names):
                if each == inner:
                    names[index] = "another_name_inside"
    if inner not in {value.name for value in model.graph.output}:
        assert graph_sha256(load(renamed)) == known
    for change in (
        lambda m: setattr(m.graph.node[0], "name", "x"),
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 77),
        lambda m: setattr(m.opset_import[0], "version", 18),
    ):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        change(other)
        try:
            assert graph_sha256(load(other)) != known
        except halfwise.InputError:
            continue  # the change made it unfit


def test_shapes_that_a_graph_computes_with_count_and_large_tables_do_not() -> None:
    def model(shape: list[int], table: int) -> onnx.ModelProto:
        nodes = [
            onnx.helper.make_node("Reshape", ["x", "shape"], ["r"], name="r"),
            onnx.helper.make_node("Gather", ["r", "table"], ["y"], name="g"),
        ]
        graph = onnx.helper.make_graph(
            nodes,
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 6])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [
                numpy_helper.from_array(np.array(shape, np.int64), "shape"),
                numpy_helper.from_array(np.full(2000, table, np.int64), "table"),
            ],
        )
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)

    known = graph_sha256(load(model([3, 4], 0)))
    assert graph_sha256(load(model([3, 4], 1))) == known
    assert graph_sha256(load(model([4, 3], 0))) != known
