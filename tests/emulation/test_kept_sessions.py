"""The last sessions of an emulator are used again, few of them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import helper

from halfwise.emulation import kept_sessions
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, value


def sites_of(op: str = "Relu", weights: int = 4, **attributes: object) -> Sites:
    weight = onnx.numpy_helper.from_array(np.ones(weights, np.float32), "w")
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node(op, ["a"], ["b"], **attributes),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    shape = (weights,)
    return Sites(load(model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], [weight])))


def test_the_same_decision_has_the_same_session() -> None:
    sites, emulator = sites_of(), Emulator()
    narrow = emulator.session(Assignment.all_narrow(sites))
    assert emulator.session(Assignment.all_narrow(sites)) is narrow
    wide = emulator.session(Assignment(sites, {}))
    assert wide is not narrow
    assert emulator.session(Assignment(Sites(sites.model), {})) is wide
    assert Emulator().session(Assignment(sites, {})) is not wide


def test_the_one_used_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_sessions, "_MOST", 2)
    sites, emulator = sites_of(), Emulator()
    first, second = (Assignment.all_narrow(sites, frozenset({sites.free[i].node})) for i in (0, 1))
    of_first, of_second = emulator.session(first), emulator.session(second)
    assert emulator.session(first) is of_first
    emulator.session(Assignment(sites, {}))
    assert emulator.session(first) is of_first
    assert emulator.session(second) is not of_second


def test_of_a_large_model_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_sessions, "_MOST_BYTES", 4 * 99)
    monkeypatch.setattr(kept_sessions, "_WEIGHT_BYTES", 100)
    sites, emulator = sites_of(weights=100), Emulator()
    assert emulator.session(Assignment(sites, {})) is not emulator.session(Assignment(sites, {}))


def test_of_a_model_of_many_nodes_the_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its weights: the nodes take memory, too."""
    monkeypatch.setattr(kept_sessions, "_MOST_BYTES", 4 * 100 + 2 * kept_sessions._NODE_BYTES)
    sites, emulator = sites_of(weights=100), Emulator()
    wide = emulator.session(Assignment(sites, {}))
    assert emulator.session(Assignment(sites, {})) is wide
    narrow = emulator.session(Assignment.all_narrow(sites))
    assert emulator.session(Assignment(sites, {})) is not wide
    assert emulator.session(Assignment.all_narrow(sites)) is not narrow


@pytest.mark.parametrize("many", [False, True])
def test_beside_a_walk_none_of_many_nodes_is_kept(monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    if many:
        monkeypatch.setattr(kept_sessions, "_MOST_BYTES", 4 * 99)
    sites, emulator = sites_of(weights=100), Emulator()
    wide = Assignment(sites, {})
    session = emulator.session(wide)
    for _ in Stepper(emulator).walk(Store(emulator, wide, {"x": np.ones(100, np.float32)})):
        pass
    assert (emulator.session(wide) is session) is not many


@pytest.mark.parametrize("attributes", [{}, {"seed": 3.0}])
def test_random_nodes_draw_the_same_numbers_each_time_and_in_every_format(attributes: dict[str, float]) -> None:
    sites, emulator = sites_of("RandomNormalLike", **attributes), Emulator()
    given = {"x": np.ones(4, np.float32)}
    wide, again, narrow = (
        emulator.session(assignment).run(given)["y"]
        for assignment in (Assignment(sites, {}), Assignment(sites, {}), Assignment.all_narrow(sites))
    )
    np.testing.assert_array_equal(wide, again)
    np.testing.assert_allclose(wide, narrow, rtol=1e-2)
