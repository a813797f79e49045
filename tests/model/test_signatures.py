"""Nodes that no runtime takes are refused before native code meets them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from halfwise.core.errors import InputError
from halfwise.model.model import load
from tests.models.build import model, node, value
from tests.support.says import Says


def einsum(equation: str) -> onnx.ModelProto:
    shapes = {"x": [2, 2], "z": [2, 2]}
    inputs = [value(name, shape=shape) for name, shape in shapes.items()]
    return model([node("Einsum", "x z", "y", equation=equation)], inputs, [value("y", shape=None)])


def test_an_equation_that_is_none(says: Says) -> None:
    """On each of these ONNX Runtime's shape inference never ends."""
    for equation in ("a\nb", "i\tj,kj->ik", "i-j,kj->ik", "i>j,kj->ik", ".ij,kj", "ij,k\0j"):
        with pytest.raises(InputError) as refused:
            load(einsum(equation))
        says(str(refused.value))


def test_an_equation_that_a_function_s_caller_gives() -> None:
    called = helper.make_node("Einsum", ["x", "z"], ["y"])
    called.attribute.append(onnx.AttributeProto(name="equation", ref_attr_name="how", type=onnx.AttributeProto.STRING))
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["x", "z"], ["y"], [called], opset, ["how"])
    whole = einsum("ij,jk->ik")
    whole.functions.append(function)
    whole.opset_import.append(helper.make_opsetid("own", 1))
    whole.graph.node[0].CopyFrom(helper.make_node("F", ["x", "z"], ["y"], domain="own", how="a\nb"))
    with pytest.raises(InputError, match="has the equation"):
        load(whole)


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", " i j , j k -> i k ", "...i,...j", "i...,ij->j...", "AB,CB->", "ij,jk"]
)
def test_an_equation_that_the_runtime_takes(equation: str) -> None:
    assert load(einsum(equation)).nodes[0].op_type == "Einsum"
    session = ort.InferenceSession(einsum(equation).SerializeToString())
    ones = np.ones((2, 2), np.float32)
    assert session.run(None, {"x": ones, "z": ones})[0].size
