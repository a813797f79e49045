"""A Loop without a condition, whose body hands on the one that it is given: as exporters of Python's `for` write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise.compiler import rtx
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import f32, model, node, value, weight
from tests.support.deployed import needs_rtx
from tests.support.model_runs import run


def _loop(*condition: onnx.NodeProto) -> onnx.ModelProto:
    """x four times halved."""
    body = helper.make_graph(
        [node("Mul", "s half", "halved"), *condition],
        "body",
        [value("i", TensorProto.INT64, []), value("told", TensorProto.BOOL, []), value("s")],
        [value("more", TensorProto.BOOL, []), value("halved")],
    )
    loop = helper.make_node("Loop", ["times", "", "x"], ["y"], name="loop", body=body)
    weights = [weight("times", np.array(4)), weight("half", f32(0.5)), weight("loop_condition", f32(3))]
    return model([loop, node("Add", "y loop_condition", "z")], [value("x")], [value("z")], weights)


HANDED_ON = node("Identity", "told", "more")


def test_a_condition_that_is_handed_on_is_stated() -> None:
    loaded = load(_loop(HANDED_ON))
    (loop,) = (each for each in loaded.nodes if each.op_type == "Loop")
    stated = loop.inputs[1]
    assert stated is not None and stated.const_value is not None and bool(stated.const_value.numpy())
    assert stated.name == "loop_condition_"
    assert np.array_equal(run(_loop(HANDED_ON), {"x": f32(16, 32, 0, 1)})["z"], f32(4, 5, 3, 3.0625))


@pytest.mark.parametrize(
    "condition",
    [
        (node("ReduceMax", "halved", "most", keepdims=0), node("Cast", "most", "more", to=TensorProto.BOOL)),
        (node("Not", "told", "more"),),
    ],
)
def test_a_condition_that_is_computed_is_left_alone(condition: tuple[onnx.NodeProto, ...]) -> None:
    (loop,) = (each for each in load(_loop(*condition)).nodes if each.op_type == "Loop")
    assert loop.inputs[1] is None


@needs_rtx
def test_the_compiler_builds_it(tmp_path: Path) -> None:
    typed = typed_proto(Assignment.all_narrow(Sites(load(_loop(HANDED_ON)))))
    onnx.save(typed, tmp_path / "typed.onnx")
    rtx.build(tmp_path / "typed.onnx")
