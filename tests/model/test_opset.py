"""An opset is raised only where every operator keeps its meaning, and then the answers stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto

from halfwise.emulation.emulate import Emulator
from halfwise.model.model import Model, load
from halfwise.model.normal_form import normalise
from halfwise.model.opset import can_raise, raise_opset
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.zoo.graph_writer import GraphWriter

X = np.random.default_rng(17).standard_normal((2, 4, 6, 8)).astype(np.float32)


def answers(model: Model) -> list[np.ndarray[Any, Any]]:
    session = Emulator().session(Assignment(Sites(model), {}))
    return list(session.run({"x": X}).values())


def one(op: str, opset: int, *others: str, outputs: int = 1, kind: int = TensorProto.FLOAT, **attributes: Any) -> Model:
    writer = GraphWriter("test")
    x = writer.input("x", list(X.shape))
    for other in others:
        writer.weight(other, np.ones(4))
    made = writer.ops(op, [x, *others], "", outputs, **attributes)
    for place, tensor in enumerate(made):
        writer.output(tensor, f"y{place}", [], kind)
    proto = writer.model(opset)
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return load(proto)


def raised(model: Model, version: int) -> Model | None:
    copy = model.ir.clone()
    if not raise_opset(copy, version):
        return None
    normalise(copy)
    return replace(model, ir=copy)


RESPELLED: dict[str, tuple[Callable[[], Model], int]] = {
    "ReduceMean": (lambda: one("ReduceMean", 13, axes=[1, -1], keepdims=0), 18),
    "ReduceMean of all": (lambda: one("ReduceMean", 13), 18),
    "ReduceMax": (lambda: one("ReduceMax", 11, axes=[2]), 23),
    "ReduceSum": (lambda: one("ReduceSum", 11, axes=[2]), 17),
    "ReduceL2": (lambda: one("ReduceL2", 11, axes=[2]), 17),
    "Unsqueeze": (lambda: one("Unsqueeze", 11, axes=[0, 2]), 17),
    "Split by sizes": (lambda: one("Split", 11, outputs=2, axis=1, split=[1, 3]), 18),
    "Split evenly": (lambda: one("Split", 11, outputs=2, axis=1), 18),
    "Softmax over the last axis": (lambda: one("Softmax", 11, axis=3), 17),
    "LogSoftmax over the last axis": (lambda: one("LogSoftmax", 11, axis=-1), 17),
    "a softmax that flattens": (lambda: one("Softmax", 11, axis=2), 17),
    "a softmax that flattens by default": (lambda: one("Softmax", 9), 17),
    "one that flattens from the end": (lambda: one("LogSoftmax", 11, axis=-2), 13),
    "Dropout": (lambda: one("Dropout", 10, ratio=0.3), 17),
    "MaxPool": (lambda: one("MaxPool", 11, kernel_shape=[2, 2]), 23),
    "AveragePool": (lambda: one("AveragePool", 11, kernel_shape=[2, 2]), 23),
    "DepthToSpace": (lambda: one("DepthToSpace", 9, blocksize=2), 17),
    "LeakyRelu": (lambda: one("LeakyRelu", 11), 17),
    "Shape": (lambda: one("Shape", 11, kind=TensorProto.INT64), 17),
    "Cast": (lambda: one("Cast", 11, kind=TensorProto.INT32, to=TensorProto.INT32), 23),
}


@pytest.mark.parametrize("name", RESPELLED)
def test_answers_stay(name: str) -> None:
    build, version = RESPELLED[name]
    model = build()
    after = raised(model, version)
    assert after is not None and can_raise(model.ir, version)
    assert after.opset() == version and model.opset() < version
    for before, behind in zip(answers(model), answers(after), strict=True):
        np.testing.assert_allclose(before, behind, rtol=1e-5, atol=1e-6)  # versions have kernels of their own


REFUSED: dict[str, tuple[Callable[[], Model], int]] = {
    "a clip by attributes": (lambda: one("Clip", 10, min=0.0, max=6.0), 17),
    "a deprecated operator": (lambda: one("Upsample", 9, "scales", mode="nearest"), 17),
    "a slice by attributes": (lambda: one("Slice", 9, starts=[0], ends=[1]), 17),
    "regions whose default moved": (lambda: one("RoiAlign", 11, "rois", "indices"), 17),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_is_refused_and_left_as_it_is(name: str) -> None:
    build, version = REFUSED[name]
    model = build()
    before = ir.to_proto(model.ir).SerializeToString()
    assert not can_raise(model.ir, version)
    copy = model.ir.clone()
    assert not raise_opset(copy, version)
    assert ir.to_proto(copy).SerializeToString() == before


def test_a_model_that_is_there_already_stays() -> None:
    model = one("Softmax", 13, axis=1)
    copy = model.ir.clone()
    assert raise_opset(copy, 11) and copy.opset_imports[""] == 13
    assert raised(model, 17) is not None


def test_the_ir_version_follows() -> None:
    model = one("Relu", 11)
    copy = model.ir.clone()
    copy.ir_version = 6
    assert raise_opset(copy, 17)
    assert copy.ir_version >= 8
