"""Recurrent nodes that take lengths: TensorRT's parser masks them in FP32 whatever their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise import fix
from halfwise.core.notes import NoteKind
from tests.support.deployed import needs_rtx
from tests.support.messages import kinds, only

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
STEPS, BATCH, WIDE, HIDDEN = 6, 2, 8, 16


def recurrent(op: str, direction: str, lengths: bool) -> onnx.ModelProto:
    rng, ways = np.random.default_rng(3), 2 if direction == "bidirectional" else 1
    shapes = {"W": (ways, GATES[op] * HIDDEN, WIDE), "R": (ways, GATES[op] * HIDDEN, HIDDEN)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    reads = ["before", "W", "R", "", "lengths" if lengths else ""]
    nodes = [
        helper.make_node("Tanh", ["x"], ["before"], "tanh"),
        helper.make_node(op, reads, ["states"], "cell", hidden_size=HIDDEN, direction=direction),
        helper.make_node("Sigmoid", ["states"], ["y"], "sigmoid"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, WIDE])
    own = [helper.make_tensor_value_info("lengths", TensorProto.INT32, [BATCH])] if lengths else []
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, ways, BATCH, HIDDEN])
    graph = helper.make_graph(nodes, "g", [x, *own], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def feeds(lengths: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    found: list[dict[str, Any]] = []
    for longest in (6, 5, 4, 6):
        feed: dict[str, Any] = {"x": rng.standard_normal((STEPS, BATCH, WIDE)).astype(np.float32)}
        found.append({**feed, "lengths": np.array([longest, 3], np.int32)} if lengths else feed)
    return found


@needs_rtx
@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_with_lengths_they_stay_in_fp32_and_build(op: str, direction: str) -> None:
    """Without asking the compiler node by node, so for a release that is not here, too."""
    for target in ("rtx-1.7", "trt-10.9"):
        result = fix(recurrent(op, direction, True), feeds(True), target=target)
        assert result.good and list(result.fp32_nodes) == ["cell"]
        told = only(result.notes, NoteKind.MOST_FOR_COMPILER)
        assert told.subject == "cell" and told.values["op"] == op  # not for an error that another measure may allow
        assert not {NoteKind.BUILT_WITH_MORE, NoteKind.NOT_PROVEN} & set(kinds(result.notes))


@needs_rtx
def test_without_lengths_they_build_in_fp16() -> None:
    result = fix(recurrent("GRU", "bidirectional", False), feeds(False), target="rtx-1.7")
    assert result.good and not result.fp32_nodes


@pytest.mark.parametrize("target", ["trt-10.9+weak", "ort-cuda", "onnx"])
def test_where_types_are_not_stated_to_tensorrt_they_may_be_fp16(target: str) -> None:
    assert not fix(recurrent("LSTM", "forward", True), feeds(True), target=target).fp32_nodes
