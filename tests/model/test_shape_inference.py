"""Types and shapes as onnx_ir's pass tells them, which writes the whole model out and reads it again."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from halfwise.model.inference import infer_types
from halfwise.model.model import load
from halfwise.model.shape_inference import infer_shapes
from tests.models.build import graph, model, node, value, weight
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


def test_branches_that_call_their_tensors_alike_have_shapes_of_their_own() -> None:
    """As a merged decoder has them; ONNX's inference tells one branch the shape that the other one computes."""

    def branch(places: list[int], name: str) -> onnx.GraphProto:
        nodes = [node("Shape", "x", "s"), node("Gather", "s place", "g"), node("Concat", "rest g", "c", axis=0),
                 node("Reshape", "x c", "r")]  # fmt: skip
        held = [weight("place", np.array(places[:1])), weight("rest", np.array(places[1:]))]
        return graph(nodes, [], [value("r", shape=None)], held, name)

    chosen = node("If", "choice", "y", then_branch=branch([0, -1], "then"), else_branch=branch([1, 2, -1], "else"))
    inputs = [value("x", shape=("n", 6)), value("choice", onnx.TensorProto.BOOL, [])]
    loaded = load(model([chosen], inputs, [value("y", shape=None)]))
    made = [made for each in loaded.nodes for made in each.outputs]
    assert len({each.name for each in made}) == len(made)
    ends = {body.graph.name: list(body.graph.outputs[0].shape or ()) for body in loaded.bodies}
    assert (len(ends["then"]), len(ends["else"])) == (2, 3)
    assert ends["else"][0] == 2 and ends["else"][2] == 6


def test_a_body_knows_the_axes_that_are_constants_around_it() -> None:
    body = graph([node("ReduceMax", "x axes", "m")], [], [value("m", shape=None)], name="then")
    other = graph([node("Identity", "x", "i")], [], [value("i", shape=None)], name="else")
    inputs = [value("x", shape=("n", 6)), value("choice", onnx.TensorProto.BOOL, [])]
    chosen = node("If", "choice", "y", then_branch=body, else_branch=other)
    proto = model([chosen], inputs, [value("y", shape=None)], [weight("axes", np.array([-1]))], opset=18)
    ends = {body.graph.name: list(body.graph.outputs[0].shape or ()) for body in load(proto).bodies}
    assert ends["then"][1:] == [1]
