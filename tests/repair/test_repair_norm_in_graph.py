"""Norms in a graph: what others read, branches, random graphs, and the models that failed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfwise.compiler import rtx
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges, Repair, repaired
from tests.models.zoo import SHAPES, encoder
from tests.support.norm_graphs import GUARDS, LOOSE, RNG, RULE, WIDTH, Graph, outliers, ways, written
from tests.support.repairing import effect


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(402).bit_generator.state


# -- the graph around -------------------------------------------------------------------------------------------------


def test_what_others_read_stays_and_shared_constants_stay_as_they_are() -> None:
    graph = Graph(13)
    x = graph.input("x", [2, 5, WIDTH])
    two, epsilon, gamma = graph.number(2.0), graph.number(1e-5), graph.weight("gamma", RNG.uniform(0.5, 2, WIDTH))
    for _ in range(2):
        c = graph.op("Sub", [x, graph.reduce("ReduceMean", x, [-1])], "")
        variance = graph.reduce("ReduceMean", graph.op("Pow", [c, two], ""), [-1])
        root = graph.op("Sqrt", [graph.op("Add", [variance, epsilon], "")], "")
        x = graph.op("Mul", [graph.op("Div", [c, root], ""), gamma], "")
    twice = graph.op("Mul", [x, two], "")
    graph.output(root, "deviation", [2, 5, 1])
    graph.output(x, "y", [2, 5, WIDTH])
    graph.output(twice, "twice", [2, 5, WIDTH])
    found = effect(RULE, graph.model(13), [{"x": outliers(2, 5, WIDTH)}])
    assert ways(found) == ["LayerNormalization"] * 2
    assert found.repaired.output_names == ("deviation", "y", "twice")
    assert found.ops().count("LayerNormalization") == 2
    assert found.ops().count("Sqrt") == 1
    assert found.deviation < LOOSE
    assert [value.name for node in found.repaired.nodes if node.op_type == "LayerNormalization" for value in
            node.inputs if value is not None and value.is_initializer()] == ["gamma", "gamma"]  # fmt: skip


def test_norms_in_branches_are_repaired_inside() -> None:
    case = SHAPES["if_with_norms"]()
    found = effect(RULE, case.model, case.inputs, case.tolerance)
    assert len(found.repairs) == 2
    assert found.deviation < LOOSE
    assert found.after < 1.0 < found.before


def test_a_place_that_changed_meanwhile_is_not_touched() -> None:
    graph = Graph()
    graph.output(written(graph, graph.input("x", [2, 5, WIDTH]), [-1]), "y", [2, 5, WIDTH])
    model = graph.loaded()
    (repair,) = RULE.find(model, Ranges())
    once, done = repaired(model, [(RULE, repair)])
    assert done == (repair,)
    again, done = repaired(once, [(RULE, repair)])
    assert done == ()
    assert [node.op_type for node in again.nodes] == ["LayerNormalization"]
    elsewhere = Repair(repair.rule, ("/Gone", *repair.nodes[1:]), repair.algebra, repair.parameters)
    assert repaired(model, [(RULE, elsewhere)])[1] == ()
    assert len(model.nodes) == 7


@settings(deadline=None, max_examples=40)
@given(
    data=st.data(),
    width=st.integers(1, 24),
    factor=st.sampled_from([1e-3, 1.0, 50.0, 4e3]),
    offset=st.sampled_from([0.0, 1.0, -30.0]),
    name=st.sampled_from(["layer", "rms", "channel", "outside"]),
)
def test_the_fp32_answer_stays(data: st.DataObject, width: int, factor: float, offset: float, name: str) -> None:
    graph = Graph(16)
    x = graph.input("x", [2, 3, width])
    parts = GUARDS["add outside"] if name == "outside" else {}
    y = written(graph, x, [1] if name == "channel" else [-1], centre=name != "rms", **parts)
    graph.output(y, "y", [2, 3, width])
    seed = data.draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).standard_normal((2, 3, width)) * factor + offset * factor
    values[0, 0] = data.draw(st.sampled_from([0.0, 1.0, -65000.0]))
    found = effect(RULE, graph.model(16), [{"x": values.astype(np.float32)}])
    if found.repairs:
        assert found.deviation < RULE.bound


# -- the failing models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("layer_norm_overflow", "LayerNormalization"),
        ("rms_norm_overflow", "by rows"),
        ("instance_norm_overflow", "InstanceNormalization"),
        ("group_norm_overflow", "InstanceNormalization"),
    ],
)
def test_the_failing_shapes_need_no_fp32_node(name: str, way: str) -> None:
    case = SHAPES[name]()
    found = effect(RULE, case.model, case.inputs, case.tolerance)
    assert ways(found) == [way]
    assert found.deviation < LOOSE
    assert found.after < 0.2 < 1.0 < found.before


def test_the_encoder_of_305_nodes_needs_no_fp32_node_at_one_percent() -> None:
    case = encoder()
    found = effect(RULE, case.model, case.inputs, 0.01)
    assert len(found.model.nodes) == 305
    assert ways(found) == ["LayerNormalization"] * 13
    assert found.deviation < LOOSE
    sites = Sites(found.repaired)
    assert sites.pinned == ()  # nothing is FP32 but what is asked for, and nothing is asked for
    assert found.before > 50.0
    assert found.after < 0.2


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_the_compiler_takes_the_statistics_in_fp32_and_fuses_as_before(tmp_path: Path) -> None:
    case = encoder(layers=1)
    found = effect(RULE, case.model, case.inputs[:1])
    kernels = {}
    for word, model in (("before", found.model), ("after", found.repaired)):
        path = write_typed(Assignment.all_narrow(Sites(model)), tmp_path / f"{word}.onnx").path
        kernels[word] = [re.sub(r"Name: ([^,]*),.*", r"\1", line) for line in rtx.build(path).kernels]
    assert len(kernels["after"]) <= len(kernels["before"])
    wide = "CastMeanSubMulMeanAddSqrtDivMulCast"  # into FP32 before the first mean, back behind the quotient
    assert sum(wide in name for name in kernels["after"]) == 3
    assert not any(wide in name for name in kernels["before"])
    assert any("_gemm_mha" in name for name in kernels["after"])
