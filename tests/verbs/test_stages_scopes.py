"""What PyTorch's exporter tells of the module that a node comes from."""

from __future__ import annotations

import onnx

from halfwise.model.model import load
from halfwise.verbs.stages.scopes import spoken, stage_labels
from tests.models.build import model, node, value


def labels_of(proto: onnx.ModelProto, depth: int = 1) -> list[str]:
    return [spoken(label) for label in stage_labels(load(proto), depth).values()]


def test_the_metadata_of_pytorchs_exporter_tells_modules() -> None:
    nodes = [node("Relu", "x", "a", name="node_relu"), node("Sigmoid", "a", "y", name="node_sigmoid")]
    proto = model(nodes, [value("x")], [value("y")])
    for each, scopes in zip(proto.graph.node, (["", "body", "body.act", "relu"], ["", "head", "sigmoid"]), strict=True):
        each.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes))
    assert labels_of(proto, 2) == ["body.act", "head"]
    proto.graph.node[0].metadata_props[0].value = "[[[ not a list"
    assert labels_of(proto) == ["(root)", "head"] or labels_of(proto)[0] == "(root)"


def test_what_pytorchs_exporter_adds_for_open_shapes_is_of_no_module() -> None:
    nodes = [
        node("Identity", "x", "n", name="node_Shape_0"),
        node("Relu", "n", "a", name="node_relu"),
        node("Sigmoid", "a", "y", name="node_sigmoid"),
    ]
    proto = model(nodes, [value("x")], [value("y")])
    listed = (["_empty_nn_module_stack_from_metadata_hook", "sym"], ["", "net", "net.body", "r"], ["", "net", "s"])
    for each, scopes in zip(proto.graph.node, listed, strict=True):
        each.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes))
    assert labels_of(proto) == ["(root)", "body", "(root)"]
