"""The nodes of the branch that an If takes are steps of a walk, and what they round is measured like any other node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.effects import Sensitivity
from halfwise.search.noise import noise_pieces
from halfwise.search.sensitivity import measure_sensitivity
from tests.models.build import graph, model, node, value, weight
from tests.support.rescaled import normal

_X, _CHOICE = value("x", shape=("n", 8)), value("choice", TensorProto.BOOL, [])
_WEIGHTS = [weight("w", normal(1, 8, 8)), weight("v", normal(2, 8, 8))]


def layers(prefix: str, last: str) -> list[onnx.NodeProto]:
    return [
        node("MatMul", "x w", f"{prefix}a"), node("Tanh", f"{prefix}a", f"{prefix}b"),
        node("MatMul", f"{prefix}b v", f"{prefix}c"), node("Add", f"{prefix}c x", last),
    ]  # fmt: skip


def plain() -> onnx.ModelProto:
    return model(
        [*layers("p", "pd"), node("Softmax", "pd", "y")], [_X, _CHOICE], [value("y", shape=("n", 8))], _WEIGHTS
    )


def nested(depth: int) -> onnx.ModelProto:
    """The same in the first branch, so many Ifs deep; the other one hands out what the graph around it made."""
    inner, made = layers("p", "pd"), "pd"
    for level in range(depth):
        then = graph(inner, [], [value(made, shape=None)], name=f"then{level}")
        other = graph([node("Neg", "x", f"n{level}")], [], [value(f"n{level}", shape=None)], name=f"else{level}")
        made = f"out{level}"
        inner = [node("If", "choice", made, then_branch=then, else_branch=other)]
    return model([*inner, node("Softmax", made, "y")], [_X, _CHOICE], [value("y", shape=("n", 8))], _WEIGHTS)


def feed(choice: bool) -> dict[str, NDArray[Any]]:
    return {"x": normal(7, 5, 8), "choice": np.array(choice)}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("choice", [True, False])
def test_steps_make_what_the_whole_makes_and_leave_nothing_behind(depth: int, choice: bool) -> None:
    loaded = load(nested(depth))
    fp32 = Assignment(Sites(loaded), {})
    (expected,) = Emulator().session(fp32).run(feed(choice)).values()
    stepper = Stepper(Emulator())
    store = Store(stepper.emulator, fp32, feed(choice))
    names = [step.node.name for step in stepper.walk(store, branches=True)]
    assert np.array_equal(store.read(loaded.graph.outputs[0], None), expected)
    assert [v.name for each in loaded.graph.all_nodes() for v in each.outputs if v in store] == ["y"]
    taken = ["n_pa", "n_pb", "n_pc", "n_pd"] if choice else [f"n_n{depth - 1}"]
    assert names == [*taken, *(f"n_out{level}" for level in range(0 if choice else depth - 1, depth)), "n_y"]


@pytest.mark.parametrize("depth", [1, 2])
def test_what_a_branch_rounds_is_what_it_rounds_outside_of_one(depth: int) -> None:
    found = []
    for proto in (plain(), nested(depth)):
        sites, measured, stepper = Sites(load(proto)), Sensitivity(), Stepper(Emulator())
        measure_sensitivity(stepper, sites, feed(True), measured, probes=256)
        energies: dict[frozenset[str], float] = {}
        for piece in noise_pieces(sites, measured):
            key = frozenset(each.name or "" for each in piece.needs if each.op_type != "If")
            energies[key] = energies.get(key, 0.0) + piece.energy
        found.append((energies, stepper.executed))
    (one, runs), (other, more) = found
    assert one.keys() == other.keys() and more < 2 * runs
    for key, energy in one.items():
        assert other[key] == pytest.approx(energy, rel=0.3)
