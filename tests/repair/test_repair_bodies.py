"""Rules in the bodies of If, Loop and Scan: those whose proof is local repair there, the others leave them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise import fix
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.repair import RULES, Rule
from halfwise.repair.attention_scale import AttentionScale
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.fold_constants import FOLD_CONSTANTS
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.planned import reapplied
from halfwise.repair.stable_logs import STABLE_LOGS
from halfwise.search import run_counter
from tests.models.build import f32, graph, model, node, value, weight
from tests.support.repairing import effect, ranges_of

SHAPE = (6, 16)
CONSTANTS = {
    "one": f32(1)[0], "two": f32(2)[0], "eps": f32(1e-10)[0], "guard": f32(1e-5)[0], "axes": np.array([-1]),
    "rates": np.linspace(900.0, 1000.0, 16).astype(np.float32), "far": f32(4096)[0], "near": f32(-4090)[0],
    "highest": f32(1e9)[0], "loud": (np.eye(16) * 1e6).astype(np.float32),
    "deep": np.where((np.eye(6, 16) > 0) | (np.arange(6)[:, None] == 2), -1e9, 0.0),
    "huge": f32(1e9)[0], "tiny": (np.eye(16) * 1e-9).astype(np.float32), "mask": np.where(np.eye(6, 16) > 0, -1e9, 0.0),
}  # fmt: skip

# Every one reads x and makes y of the same shape, and is wrong in FP16.
PLACES: dict[str, tuple[Rule, list[onnx.NodeProto]]] = {
    "norm": (NormOperator(), [
        node("ReduceMean", "x", "m", axes=[-1]), node("Sub", "x m", "c"), node("Pow", "c two", "q"),
        node("ReduceMean", "q", "v", axes=[-1]), node("Add", "v guard", "w"), node("Sqrt", "w", "r"),
        node("Div", "c r", "y"),
    ]),
    "guarded log": (EPSILONS, [node("Softmax", "x", "p"), node("Add", "p eps", "g"), node("Log", "g", "y")]),
    "length": (EPSILONS, [
        node("ReduceL2", "x", "l", axes=[-1]), node("Clip", "l eps", "g"), node("Div", "x g", "y"),
    ]),
    "division": (EPSILONS, [node("Abs", "x", "d"), node("Max", "d eps", "g"), node("Div", "x g", "y")]),
    "softmax": (AttentionScale(), [
        node("Exp", "x", "e"), node("ReduceSum", "e axes", "s"), node("Div", "e s", "y"),
    ]),
    "log of softmax": (STABLE_LOGS, [node("Softmax", "x", "p"), node("Log", "p", "y")]),
    "table": (FOLD_CONSTANTS, [node("Sin", "rates", "t"), node("Add", "x t", "y")]),
    "offsets": (FOLD_CONSTANTS, [node("Add", "x far", "u"), node("Add", "u near", "y")]),
}  # fmt: skip
_X = [value("x", shape=("n", 16))]


def constants(nodes: list[onnx.NodeProto]) -> list[onnx.TensorProto]:
    read = {name for each in nodes for name in each.input}
    return [weight(n, np.asarray(a, a.dtype if a.dtype.kind == "i" else np.float32)) for n, a in CONSTANTS.items()
            if n in read]  # fmt: skip


def in_if(nodes: list[onnx.NodeProto], outer: bool) -> onnx.ModelProto:
    """In a branch; `outer`: its constants belong to the graph around it."""
    own = constants(nodes)
    taken = graph(nodes, [], [value("y", shape=("n", 16))], [] if outer else own, "then")
    other = graph([node("Neg", "x", "z")], [], [value("z", shape=("n", 16))], name="else")
    chosen = node("If", "choice", "out", then_branch=taken, else_branch=other)
    inputs = [*_X, value("choice", TensorProto.BOOL, [])]
    return model([chosen], inputs, [value("out", shape=None)], own if outer else [])


def in_loop(nodes: list[onnx.NodeProto], outer: bool) -> onnx.ModelProto:
    """Once around; what is read is the state."""
    own = constants(nodes)
    inputs = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), *_X]
    outputs = [value("still", TensorProto.BOOL, []), value("y", shape=("n", 16))]
    body = graph([node("Identity", "go", "still"), *nodes], inputs, outputs, [] if outer else own, "body")
    loop = node("Loop", "turns yes start", "out", body=body)
    weights = [weight("turns", np.array(1)), weight("yes", np.array(True)), *(own if outer else [])]
    return model([loop], [value("start", shape=("n", 16))], [value("out", shape=None)], weights)


def in_scan(nodes: list[onnx.NodeProto], outer: bool) -> onnx.ModelProto:
    """For each of three slices."""
    own = constants(nodes)
    body = graph(nodes, [value("x", shape=SHAPE)], [value("y", shape=SHAPE)], [] if outer else own, "body")
    scan = node("Scan", "slices", "out", body=body, num_scan_inputs=1)
    inputs = [value("slices", shape=(3, *SHAPE))]
    return model([scan], inputs, [value("out", shape=None)], own if outer else [])


def feeds(place: str, body: str) -> list[dict[str, NDArray[Any]]]:
    rng = np.random.default_rng(7)
    found = []
    for turn in range(3):
        x = rng.standard_normal((3, *SHAPE) if body == "scan" else SHAPE)
        x *= {"norm": 600.0, "softmax": 3.0}.get(place, 2.0)
        if place in ("softmax", "log of softmax", "guarded log"):
            x[..., 3] += 25.0
        if place in ("length", "division"):
            x[..., -2:, :] = 0.0
        x = x.astype(np.float32)
        name = {"if": "x", "loop": "start", "scan": "slices"}[body]
        found.append({name: x, **({"choice": np.array(turn < 2)} if body == "if" else {})})
    return found


BODIES = {"if": in_if, "loop": in_loop, "scan": in_scan}


@pytest.mark.parametrize("outer", [False, True], ids=["own constants", "outer constants"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("place", PLACES)
def test_rules_of_local_proof_repair_inside(place: str, body: str, outer: bool) -> None:
    rule, nodes = PLACES[place]
    proto = BODIES[body](nodes, outer)
    found = effect(rule, proto, feeds(place, body))
    assert len(found.repairs) == 1
    assert found.deviation <= rule.bound
    assert found.before > 1.0
    assert found.after < min(found.before, 5.0)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "nodes",
    [
        [node("MatMul", "x tiny", "h"), node("Mul", "h huge", "y")],  # weights to rescale
        [node("Add", "x huge", "h"), node("Min", "h huge", "y")],  # a bound beyond FP16
        [node("Mul", "x x", "q"), node("ReduceSum", "q axes", "s"), node("Div", "x s", "y")],
    ],
    ids=["weights", "bounds", "sums"],
)
def test_rules_that_look_far_leave_bodies_alone(nodes: list[onnx.NodeProto], body: str) -> None:
    loaded = load(BODIES[body](nodes, False))
    ranges = ranges_of(loaded, feeds("weights", body))
    for rule in RULES:
        if rule.id in ("HW401", "HW403", "HW405", "HW409", "HW410"):
            assert rule.find(loaded, ranges) == (), rule.id


# Each is wrong in FP16, and its rule follows values through the whole body.
FAR: dict[str, tuple[str, list[onnx.NodeProto]]] = {
    "weights": ("HW401", [node("MatMul", "x loud", "h"), node("Relu", "h", "r"), node("MatMul", "r tiny", "y")]),
    "mask": ("HW403", [node("Add", "x deep", "s"), node("Add", "s deep", "t"), node("Softmax", "t", "y")]),
}


@pytest.mark.parametrize("outer", [False, True], ids=["own constants", "outer constants"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("place", FAR)
def test_rules_that_look_far_look_within_each_body(place: str, body: str, outer: bool) -> None:
    """As a merged decoder has all of itself in two branches."""
    rule, nodes = FAR[place]
    given, samples = BODIES[body](nodes, outer), feeds("weights", body)
    found = fix(given, samples)
    assert found.met and not found.fp32_nodes
    assert {each.rule for each in found.plan.repairs} == {rule}
    assert fix(given, samples, repairs="none").fp32_nodes
    loaded = load(given)
    made = reapplied(loaded, found.plan.repairs)
    for feed in samples:
        one, other = (Session(onnx_ir.to_proto(each.ir)).run(feed)["out"] for each in (loaded, made))
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_where_all_stays_in_fp32_repairs_are_tried_beyond_the_runs_for_saving_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_counter, "SAVING_RUNS_SMALL", 1)
    assert not fix(in_if(FAR["weights"][1], False), feeds("weights", "if")).fp32_nodes
