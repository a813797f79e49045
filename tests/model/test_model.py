"""Loading: every form a model comes in, and one clear line for what is no sound graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import f32, graph, model, node, value, weight
from tests.models.model_cases import refusal, relu
from tests.support.model_runs import run
from tests.support.says import Says

# -- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_from_7_on_loads_runs_and_emits(opset: int) -> None:
    proto = model(
        [node("MatMul", "x w", "m"), node("Softmax", "m", "y", axis=1)],
        [value("x", shape=[2, 3])],
        [value("y", shape=[2, 3])],
        [weight("w", np.eye(3, dtype=np.float32))],
        opset=opset,
    )
    given_answer = Session(proto).run({"x": np.ones((2, 3), np.float32)})["y"]
    assert given_answer == pytest.approx(1 / 3)
    assignment = Assignment.all_narrow(Sites(load(proto)))
    assert len(assignment.formats) == 2
    answer = Emulator().session(assignment).run({"x": np.ones((2, 3), np.float32)})["y"]
    assert np.array_equal(answer, np.full((2, 3), np.float16(1 / 3), np.float32))
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    assert [(o.domain, o.version) for o in typed.opset_import] == [("", opset)]


def test_an_opset_before_7_is_raised_where_that_changes_nothing() -> None:
    assert load(relu(opset=6)).opset() == 7


def test_an_opset_before_7_is_refused_where_a_meaning_changed(says: Says) -> None:
    added = node("Add", "x x", "y", broadcast=1)
    says(refusal(model([added], [value("x", shape=[2])], [value("y", shape=[2])], opset=6)))


def test_an_opset_of_the_future_is_refused(says: Says) -> None:
    newest = onnx.defs.onnx_opset_version()
    says(refusal(relu(opset=newest + 1)))


def test_a_model_without_an_opset_is_refused(says: Says) -> None:
    proto = relu()
    proto.ClearField("opset_import")
    says(refusal(proto))


def test_the_long_name_of_the_default_domain_is_understood() -> None:
    proto = relu()
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    loaded = load(proto)
    assert loaded.nodes[0].domain == ""
    assert loaded.opset() == 17
    assert Sites(loaded).all[0].free


# -- graphs that are not sound ---------------------------------------------------------------------------------------


def test_a_cycle(says: Says) -> None:
    proto = model([node("Add", "x b", "a"), node("Relu", "a", "b")], [value("x")], [value("a")])
    says(refusal(proto))


def test_an_input_that_nothing_produces(says: Says) -> None:
    says(refusal(model([node("Add", "x ghost", "y")], [value("x")], [value("y")])))


def test_an_output_that_nothing_produces(says: Says) -> None:
    says(refusal(model([node("Relu", "x", "y")], [value("x")], [value("z")])))


def test_no_outputs(says: Says) -> None:
    says(refusal(model([node("Relu", "x", "y")], [value("x")], [])))


def test_a_tensor_produced_twice(says: Says) -> None:
    proto = model([node("Relu", "x", "y"), node("Neg", "x", "y", name="other")], [value("x")], [value("y")])
    says(refusal(proto))


def test_a_node_cannot_write_an_input() -> None:
    proto = model([node("Relu", "x", "x")], [value("x")], [value("x")])
    assert refusal(proto).startswith("the model")


def test_a_body_that_hands_out_an_outer_tensor_gets_a_node_for_it() -> None:
    passed = graph([], [], [value("x")])
    other = graph([node("Neg", "x", "x_inner")], [], [value("x_inner")])
    nested = graph([node("If", "c", "r", then_branch=passed, else_branch=other)], [], [value("r")])
    proto = model(
        [node("If", "c", "y", then_branch=nested, else_branch=passed)],
        [value("x"), value("c", TensorProto.BOOL, [])],
        [value("y")],
    )
    before = proto.SerializeToString()
    assert sorted(n.op_type for n in load(proto).nodes) == ["Identity", "Identity", "If", "If", "Neg"]
    assert proto.SerializeToString() == before
    feeds = {"x": f32(1, -2, 3, 4), "c": np.array(True)}
    assert np.array_equal(run(proto, feeds)["y"], feeds["x"])


def test_a_body_cannot_read_its_sibling(says: Says) -> None:
    then = graph([node("Relu", "x", "t")], [], [value("t")])
    other = graph([node("Neg", "t", "e")], [], [value("e")])
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)],
        [value("x"), value("c", TensorProto.BOOL, [])],
        [value("y")],
    )
    says(refusal(proto))


@pytest.mark.parametrize(
    "change",
    [{"raw_data": b"\x00" * 7}, {"dims": [-4]}, {"dims": [1 << 60, 1 << 60]}, {"data_type": 99}, {"data_type": 0}],
)
def test_a_weight_that_does_not_fit_its_declaration(change: dict[str, Any], says: Says) -> None:
    proto = model([node("Add", "x w", "y")], [value("x")], [value("y")], [weight("w", np.ones(4, np.float32))])
    for field, content in change.items():
        proto.graph.initializer[0].ClearField(field)
        if isinstance(content, list):
            proto.graph.initializer[0].dims.extend(content)
        else:
            setattr(proto.graph.initializer[0], field, content)
    says(refusal(proto))


def test_a_model_without_nodes_is_a_model() -> None:
    loaded = load(model([], [value("x")], [value("x")]))
    assert loaded.nodes == ()
    assert loaded.output_names == ("x",)
    typed = typed_proto(Assignment.all_narrow(Sites(loaded)))
    onnx.checker.check_model(typed, full_check=True)
    assert np.array_equal(run(typed, {"x": f32(1, 2, 3, 4)})["x"], f32(1, 2, 3, 4))
