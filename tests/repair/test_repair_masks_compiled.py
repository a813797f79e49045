"""What NVIDIA's compiler makes of attention whose mask was repaired."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from halfwise.compiler import rtx
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges, repaired
from halfwise.repair.masks import Masks
from tests.models.numbered_graph import NumberedGraph
from tests.models.zoo.graph_writer import GraphWriter
from tests.support.deployed import needs_rtx
from tests.support.repairing import effect

RULE = Masks()
LOWEST = float(np.finfo(np.float32).min)
SEEN = Ranges({"mask": 1.0}, {"mask": 1.0})
RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(403).bit_generator.state


@needs_rtx
@pytest.mark.parametrize("size", [1.0, 60.0])
def test_attention_stays_fused(tmp_path: Path, size: float) -> None:
    graph = GraphWriter("attention")
    q, v = (graph.input(name, [2, 4, 64, 32]) for name in "qv")
    k, mask = graph.input("k", [2, 4, 32, 64]), graph.input("mask", [2, 1, 1, 64])
    inverted = graph.op("Sub", [graph.weight("one", 1.0), mask], "")
    lowest = graph.op("Mul", [inverted, graph.weight("lowest", -1e9)], "")
    masked = graph.op("Add", [graph.op("MatMul", [q, k], ""), lowest], "")
    graph.output(graph.op("MatMul", [graph.op("Softmax", [masked], "", axis=-1), v], ""), "y", [2, 4, 64, 32])
    shapes = {"q": (2, 4, 64, 32), "k": (2, 4, 32, 64), "v": (2, 4, 64, 32)}
    feed = {name: (size**0.5 * RNG.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    feed["mask"] = np.ones((2, 1, 1, 64), dtype=np.float32)
    found = effect(RULE, graph.model(), [feed])
    assert len(found.repairs) == 1
    kernels = []
    for model in (found.model, found.repaired):
        path = write_typed(Assignment.all_narrow(Sites(model)), tmp_path / "m.onnx").path
        kernels.append([re.sub(r"Name: ([^,]*),.*", r"\1", line) for line in rtx.build(path).kernels])
    assert any("_gemm_mha" in name for name in kernels[1])
    assert len(kernels[1]) <= len(kernels[0])


@needs_rtx
@pytest.mark.parametrize("biased", [False, True])
def test_a_triangle_joined_with_padding_is_compiled(tmp_path: Path, biased: bool) -> None:
    """As exporters write the mask of a decoder: the compiler crashed on the repaired model."""
    g = NumberedGraph(17)
    q, k, v = (g.input(name, [2, 4, 48, 32]) for name in "qkv")
    seen = g.op("Cast", [g.input("mask", [2, 1, 1, 48])], "", to=TensorProto.BOOL)
    triangle = g.op("Cast", [g.number(np.tril(np.ones((48, 48))))], "", to=TensorProto.BOOL)
    lowest = g.op("Where", [g.op("And", [triangle, seen], ""), g.number(0.0), g.number(LOWEST)], "")
    scores = g.op("MatMul", [q, g.op("Transpose", [k], "", perm=[0, 1, 3, 2])], "")
    if biased:
        scores = g.op("Add", [scores, g.number(RNG.standard_normal((1, 4, 1, 48)))], "")
    weights = g.op("Softmax", [g.op("Add", [scores, lowest], "")], "", axis=-1)
    g.output(g.op("MatMul", [weights, v], ""), "y", [2, 4, 48, 32])
    model = load(g.model())
    made, done = repaired(model, [(RULE, each) for each in RULE.find(model, SEEN)])
    assert len(done) == 1
    path = write_typed(Assignment.all_narrow(Sites(made)), tmp_path / "m.onnx").path
    assert any("_gemm_mha" in kernel for kernel in rtx.build(path).kernels)
