"""Of a model with several outputs, what serves only those that plain FP16 keeps needs no FP32."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.metrics import compare
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Measured, Question
from halfwise.search.run_counter import RunCounter
from halfwise.search.search import Search, Solution
from halfwise.search.serving import missed, serving


def _keypoints(layers: int = 4) -> onnx.ModelProto:
    """A detector of keypoints: scores of which the largest around is chosen, nearly equal; and descriptors."""
    rng = np.random.default_rng(0)
    values = [numpy_helper.from_array(np.zeros((), np.float32), "zero")]
    nodes = []

    def conv(read: str, made: str, channels: tuple[int, int], size: float) -> None:
        weight = rng.standard_normal((*channels, 3, 3)) * size / np.sqrt(9 * channels[1])
        values.append(numpy_helper.from_array(weight.astype(np.float32), f"w_{made}"))
        nodes.append(helper.make_node("Conv", [read, f"w_{made}"], [made], made, pads=[1] * 4))

    for layer in range(layers):
        conv(f"r{layer - 1}" if layer else "x", f"c{layer}", (8, 8 if layer else 1), 0.5)
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"], f"r{layer}"))
    conv(f"r{layers - 1}", "logits", (8, 8), 0.1)
    conv(f"r{layers - 1}", "describe", (8, 8), 1.0)
    nodes += [
        helper.make_node("Softmax", ["logits"], ["score"], "score", axis=1),
        helper.make_node("MaxPool", ["score"], ["around"], "around", kernel_shape=[5, 5], pads=[2] * 4),
        helper.make_node("Equal", ["score", "around"], ["largest"], "largest"),
        helper.make_node("Where", ["largest", "score", "zero"], ["scores"], "scores"),
        helper.make_node("ReduceL2", ["describe"], ["length"], "length", axes=[1]),
        helper.make_node("Div", ["describe", "length"], ["descriptors"], "descriptors"),
    ]
    float_of = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in _SHAPES.items()}
    graph = helper.make_graph(
        nodes, "keypoints", [float_of["x"]], [float_of["scores"], float_of["descriptors"]], values
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


_SHAPES = {"x": [1, 1, 24, 24], "scores": [1, 8, 24, 24], "descriptors": [1, 8, 24, 24]}


def _searched(saving: float, journal: Journal | None = None) -> tuple[Search, Solution]:
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.standard_normal(_SHAPES["x"]).astype(np.float32)} for _ in range(2)]
    sites, emulator = Sites(load(_keypoints())), Emulator()
    judge = Judge(sites, emulator, Question(Tolerance.default()), feeds, counter=RunCounter(saving))
    search = Search(sites, judge, Stepper(emulator), journal or Journal())
    return search, search.run()


def test_what_serves_only_outputs_that_fp16_keeps_leaves_fp32_though_no_runs_are_left() -> None:
    search, solution = _searched(saving=0.0)
    assert missed(solution.fp16, search.judge.floats, 1.0) == {"scores"}
    assert solution.found.unseen_bound <= 1.0
    assert solution.keep
    assert not {node.name for node in solution.keep} & {"describe", "length", "descriptors"}


def test_a_resumed_search_knows_which_outputs_fp16_keeps(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _, wanted = _searched(0.0, Journal(path, "question"))
    search, found = _searched(0.0, Journal(path, "question"))
    assert missed(found.fp16, search.judge.floats, 1.0) == {"scores"}
    assert {node.name for node in found.keep} == {node.name for node in wanted.keep}
    assert found.fp16.outputs == wanted.fp16.outputs


def test_a_body_serves_what_its_node_serves() -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["a", "a"], ["m"], "inside")],
        "body",
        [],
        [helper.make_tensor_value_info("m", TensorProto.FLOAT, [3])],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "captured"),
        helper.make_node("If", ["c"], ["y"], "if", then_branch=body, else_branch=body),
        helper.make_node("Neg", ["a"], ["z"], "beside"),
    ]
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xyz")
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [x, c], [y, z])
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    every = frozenset(ir.traversal.RecursiveGraphIterator(model.graph))
    found = serving({"y"}, every, model, Stepper(Emulator()))
    assert {node.op_type for node in found} == {"Exp", "If", "Mul"}
    assert {node.op_type for node in serving({"z"}, every, model, Stepper(Emulator()))} == {"Exp", "Neg"}


def test_an_output_is_missed_by_its_own_bounds_and_by_new_nonfinite_values() -> None:
    tolerance = Tolerance((Bound.of("a", "rel_l2", 0.1), Bound.of("*", "rel_l2", 0.01)))
    exact = compare(np.ones(4), np.ones(4))
    near, lost = compare(np.ones(4), np.full(4, 1.05)), compare(np.ones(4), np.array([1, 1, 1, np.inf]))
    outputs = {"a": near, "b": near, "c": exact, "d": lost}
    measured = Measured((math.inf,), outputs, question=Question(tolerance))
    assert missed(measured, frozenset("abcd"), 1.0) == {"b", "d"}
    assert missed(measured, frozenset("abcd"), 0.4) == {"a", "b", "d"}
    by_function = replace(measured, question=Question(Tolerance((Bound.of("*", "metric", 0.01),))))
    assert missed(by_function, frozenset("abcd"), 1.0) == set("abcd")
