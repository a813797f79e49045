"""The emulation inside branches, loops and scans, and in bodies within bodies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import f32, graph, model, node, value, weight
from tests.support.backend_cases import same_bits
from tests.support.scalar_formats import round_array

Array = NDArray[np.float32]


def _if_model() -> onnx.ModelProto:
    """One branch computes with an outer tensor, the other hands it out directly."""
    then = graph([node("Mul", "a a", "t")], [], [value("t", shape=[1])])
    other = graph([], [], [value("a", shape=[1])])
    return model(
        [
            node("Add", "x w", "a"),
            node("If", "c", "b", then_branch=then, else_branch=other),
            node("Add", "b w", "y"),
        ],
        [value("x", shape=[1]), value("c", TensorProto.BOOL, [])],
        [value("y", shape=[1])],
        [weight("w", f32(1 / 3))],
    )


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("kept", range(32))
def test_branches_are_decided_node_by_node(condition: bool, kept: int) -> None:
    sites = Sites(load(_if_model()))
    named = {site.name: site for site in sites.free}
    assert set(named) == {"n_a", "n_b", "n_t", "n_y", "node_of_a_inner"}
    assert named["n_t"].nested
    keep = frozenset(named[name].node for bit, name in enumerate(sorted(named)) if kept >> bit & 1)
    assignment = Assignment.all_narrow(sites, keep)

    def compute(name: str, function: Callable[..., Array], *reads: Array) -> Array:
        fmt = Format.FP32 if named[name].node in keep else Format.FP16
        return round_array(function(*(round_array(read, fmt) for read in reads)), fmt)

    x, w = f32(1.7), f32(1 / 3)
    a = compute("n_a", np.add, x, w)
    b = compute("n_t", np.multiply, a, a) if condition else compute("node_of_a_inner", np.positive, a)
    b = compute("n_b", np.positive, b)  # one type leaves both branches
    y = compute("n_y", np.add, b, w)
    feeds = {"x": x, "c": np.array(condition)}
    assert same_bits(Emulator().session(assignment).run(feeds)["y"], y)
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    Session(typed).run(feeds)
    again = Emulator().session(Assignment(Sites(load(typed)), {})).run(feeds)["y"]
    assert same_bits(again, y)


LOOP = ("n_captured", "n_last", "n_next", "n_seen")


@pytest.mark.parametrize("kept", range(16))
def test_a_loop_carries_one_type_and_rounds_inside(kept: int) -> None:
    """The state as it goes round, and what is gathered, are stored in the loop's own format."""
    body = graph(
        [
            node("Mul", "state w", "next"),
            node("Add", "next captured", "seen"),
            node("Identity", "go", "on"),
        ],
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", shape=[1])],
        [value("on", TensorProto.BOOL, []), value("next", shape=[1]), value("seen", shape=[1])],
        [weight("w", f32(1.1))],
    )
    proto = model(
        [node("Neg", "x", "captured"), node("Loop", "n - x", "last all", body=body)],
        [value("x", shape=[1]), value("n", TensorProto.INT64, [])],
        [value("last", shape=[1]), value("all", shape=None)],
    )
    sites = Sites(load(proto))
    named = {site.name: site.node for site in sites.free}
    assert sorted(named) == sorted(LOOP)
    wide = {name for bit, name in enumerate(LOOP) if kept >> bit & 1}
    assignment = Assignment.all_narrow(sites, frozenset(named[name] for name in wide))

    def rounded(name: str, array: Array) -> Array:
        return round_array(array, Format.FP32 if name in wide else Format.FP16)

    x = f32(1.2345678)
    state, rows, captured = rounded("n_last", x), [], rounded("n_captured", -rounded("n_captured", x))
    for _ in range(5):
        made = rounded("n_next", rounded("n_next", state) * rounded("n_next", f32(1.1)))
        both = rounded("n_seen", made) + rounded("n_seen", captured)
        rows.append(rounded("n_last", rounded("n_seen", both)))
        state = rounded("n_last", made)
    got = Emulator().session(assignment).run({"x": x, "n": np.array(5)})
    assert same_bits(got["last"], state)
    assert same_bits(got["all"], np.stack(rows))
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    Session(typed).run({"x": x, "n": np.array(5)})
    again = Emulator().session(Assignment(Sites(load(typed)), {})).run({"x": x, "n": np.array(5)})
    assert same_bits(again["all"], got["all"])


def test_a_scan_rounds_inside() -> None:
    body = graph(
        [node("Add", "total item", "sum"), node("Identity", "sum", "out")],
        [value("total", shape=[1]), value("item", shape=[1])],
        [value("sum", shape=[1]), value("out", shape=[1])],
    )
    proto = model(
        [node("Scan", "zero x", "last all", body=body, num_scan_inputs=1)],
        [value("x", shape=[4, 1])],
        [value("last", shape=[1]), value("all", shape=[4, 1])],
        [weight("zero", f32(0))],
    )
    x = f32(2048, 1, 1, 1)[:, None]
    got = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": x})
    assert got["all"].ravel().tolist() == [2048, 2048, 2048, 2048]  # 2049 is a tie; each one is lost
    exact = Emulator().session(Assignment(Sites(load(proto)), {})).run({"x": x})
    assert exact["last"] == 2051


def test_bodies_in_bodies() -> None:
    inner = graph([node("Mul", "s w", "deep")], [], [value("deep", shape=[1])])
    passed = graph([node("Identity", "s", "flat")], [], [value("flat", shape=[1])])
    body = graph(
        [node("If", "go", "r", then_branch=inner, else_branch=passed), node("Identity", "go", "on")],
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s", shape=[1])],
        [value("on", TensorProto.BOOL, []), value("r", shape=[1])],
    )
    proto = model(
        [node("Loop", "n - x", "y", body=body)],
        [value("x", shape=[1]), value("n", TensorProto.INT64, [])],
        [value("y", shape=[1])],
        [weight("w", f32(1.1))],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    expected = f32(1.2345678)
    for _ in range(3):
        expected = round_array(round_array(expected, Format.FP16) * np.float32(np.float16(1.1)), Format.FP16)
    feeds = {"x": f32(1.2345678), "n": np.array(3)}
    assert same_bits(Emulator().session(assignment).run(feeds)["y"], expected)
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    assert same_bits(Emulator().session(Assignment(Sites(load(typed)), {})).run(feeds)["y"], expected)
