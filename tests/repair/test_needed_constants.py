"""Axes and weights that constants alone lead to become constants where a target's parser reads no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.core.targets import Target
from halfwise.model.families import REDUCTIONS
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.own_operators import read_by
from halfwise.verbs.gate import gate
from tests.models.build import model, node, value, weight
from tests.support.deployed import needs_rtx

SHAPE = (2, 3, 4)


def reducing(op: str = "ReduceMean", axes: str = "c") -> onnx.ModelProto:
    """As exporters write `dim` without optimisation; the last axis is counted from the shape of a constant."""
    return model(
        [
            node("Reshape", "one flat", "first"),
            node("Shape", "c3", "sizes"),
            node("Sub", "sizes one", "last"),
            node("Concat", "first last", "c", axis=0),
            node(op, f"x {axes}", "y", keepdims=0),
        ],
        [value("x", shape=SHAPE), value("given", TensorProto.INT64, (2,))],
        [value("y", shape=None)],
        [weight("one", np.array([1], np.int64)), weight("flat", np.array([-1], np.int64)), weight("c3", np.ones(3))],
        opset=18,
    )


@pytest.mark.parametrize("op", sorted(REDUCTIONS))
def test_the_answer_stays_and_the_axes_are_stored(op: str) -> None:
    target = "rtx-1.7" if op == "ReduceLogSumExp" else "trt-10.9"  # TensorRT gets the steps of that one
    read = read_by(Target.parse(target), load(reducing(op)))[0]
    assert [each.op_type for each in read.nodes] == [op]
    written = typed_proto(Assignment(Sites(read), {}))
    x = np.random.default_rng(0).uniform(0.5, 2, SHAPE).astype(np.float32)
    answers = [
        ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x, "given": np.array([0, 1])})[0]
        for proto in (reducing(op), written)
    ]
    np.testing.assert_array_equal(*answers)


def standardised() -> onnx.ModelProto:
    """A convolution whose weights are standardised by batch norm in training, as PyTorch exports it."""
    size, each = (4, 3, 3, 3), np.ones(4, np.float32)
    return model(
        [
            node("Reshape", "w flat", "rows"),
            node("BatchNormalization", "rows gain bias mean var", "even m v", training_mode=1, momentum=1.0),
            node("Reshape", "even size", "kernels"),
            node("Conv", "x kernels", "y"),
        ],
        [value("x", shape=(1, 3, 8, 8))],
        [value("y", shape=None)],
        [
            *(weight("w", np.random.default_rng(1).normal(size=size).astype(np.float32)),),
            *(weight("flat", np.array([1, 4, -1])), weight("size", np.array(size))),
            *(weight("gain", each), weight("bias", 0 * each), weight("mean", 0 * each), weight("var", each)),
        ],
        opset=17,
    )


def test_standardised_weights_are_stored() -> None:
    read = read_by(Target.parse("rtx-1.7"), load(standardised()))[0]
    assert [each.op_type for each in read.nodes] == ["Reshape", "Conv"]
    x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    written = typed_proto(Assignment(Sites(read), {}))
    answers = [ort.InferenceSession(p.SerializeToString()).run(None, {"x": x})[0] for p in (standardised(), written)]
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-5)  # of a stored weight another kernel


@pytest.mark.parametrize(("target", "axes"), [("onnx", "c"), ("trt-10.9", "one"), ("rtx-1.7", "given")])
def test_else_the_model_is_as_it_was(target: str, axes: str) -> None:
    given = load(reducing(axes=axes))
    assert read_by(Target.parse(target), given)[0] is given


def feeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=SHAPE).astype(np.float32), "given": np.array([0, 1])} for _ in range(3)]


@needs_rtx
def test_tensorrt_rtx_builds_it(tmp_path: Path) -> None:
    assert fix(reducing(), feeds(), target="rtx-1.7", out=tmp_path).good


def test_the_gate_knows_the_graph_that_the_target_reads(tmp_path: Path) -> None:
    plan = fix(reducing(), feeds(), target="trt-10.9").plan
    trained = reducing()
    trained.graph.initializer[2].CopyFrom(weight("c3", np.zeros(3)))
    path = tmp_path / "trained.onnx"
    onnx.save(trained, path)
    found = gate(plan, path, feeds())
    assert found.change == "weights" and found.holds


def test_a_weakly_typed_build_reads_them_stored(tmp_path: Path) -> None:
    onnx.save(reducing(), tmp_path / "m.onnx")
    result = fix(tmp_path / "m.onnx", feeds(), target="trt-8.6", out=tmp_path / "out")
    assert result.good
    built = onnx.load(tmp_path / "out" / "m.fp32.onnx")
    assert [each.op_type for each in built.graph.node] == ["ReduceMean"]
