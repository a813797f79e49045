"""How far apart compared numbers lie, against sums written out, and against how often the choice turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.search import choice_margin
from halfwise.search.choice_margin import margin
from halfwise.search.near_choices import TRIALS, wavering
from halfwise.search.run_counter import RunCounter
from tests.models.build import model, node, value, weight

Array = NDArray[Any]


def chosen(op: str, **attributes: Any) -> Any:
    """The node, as it is loaded."""
    given = "a b" if op in ("Less", "Greater", "Equal") else "a"
    ends = [value("a", shape=(2, 4)), value("b", shape=(2, 4))]
    kind = onnx.TensorProto.BOOL if "b" in given else onnx.TensorProto.INT64
    return load(model([node(op, given, "y", **attributes)], ends, [value("y", kind, None)])).nodes[0]


def test_the_distance_of_a_comparison_over_both_errors() -> None:
    a, b = np.array([[1.0, 2.0, 3.0, -7e38]]), np.array([[1.5, 5.0, 3.0, 0.0]])
    right = {"a": a, "b": b}
    found = {"a": np.array([[1.01, 2.5, 3.0, -65504.0]]), "b": np.array([[1.46, 4.9, 3.0, 0.0]])}
    for op in ("Less", "Greater", "Equal"):
        assert margin(chosen(op), right, found) == pytest.approx(min(0.5 / 0.05, 3.0 / 0.6))
    assert margin(chosen("Less"), right, right) == np.inf  # nothing moved


@pytest.mark.parametrize(("op", "sign"), [("ArgMax", 1.0), ("ArgMin", -1.0)])
def test_the_distance_of_the_best_and_the_next(op: str, sign: float) -> None:
    a = sign * np.array([[0.1, 0.9, 0.5, 0.3], [0.2, 0.3, 4.0, 0.1]])
    found = a + np.array([[9.0, 0.02, 0.03, 9.0], [9.0, 0.1, 0.2, 9.0]])
    assert margin(chosen(op, axis=1), {"a": a}, {"a": found}) == pytest.approx(min(0.4 / 0.05, 3.7 / 0.3))


def test_of_another_choice_nothing_is_known() -> None:
    assert margin(chosen("NonZero"), {"a": np.ones((2, 4))}, {"a": np.ones((2, 4))}) == 0.0


def above(limit: float) -> onnx.ModelProto:
    """Products that are compared with a limit."""
    nodes = [node("MatMul", "x w", "h"), node("Less", "h limit", "low"), node("Where", "low zero h", "y")]
    weights = [weight("w", np.random.default_rng(3).standard_normal((16, 999)).astype(np.float32)),
               weight("limit", np.float32(limit)), weight("zero", np.float32(0.0))]  # fmt: skip
    return model(nodes, [value("x", shape=(1, 16))], [value("y", shape=(1, 999))], weights)


@pytest.mark.parametrize(("limit", "turns"), [(-3e4, False), (1.0, True)])
def test_a_limit_far_from_all_numbers_is_none_to_look_at(limit: float, turns: bool) -> None:
    """Scores beside the level of a mask: their rounding is a millionth of the way to it."""
    sites = Sites(load(above(limit)))
    feed = Feed(0, {"x": np.random.default_rng(0).standard_normal((1, 16)).astype(np.float32)})
    found = wavering(Decision(sites, {}, Format.FP32), Emulator(), feed, RunCounter())
    assert (found is not None) == turns


def test_as_many_errors_apart_as_inputs_are_tried_says_as_much_as_they_do() -> None:
    """Of sets of numbers that come no nearer than that to their limit, one in twenty at most is like one that turns."""
    rng, turned = np.random.default_rng(11), list[float]()
    for _ in range(400):
        size, error = int(rng.integers(4, 400)), 10.0 ** rng.uniform(-5, -2)
        numbers = rng.standard_normal((41, size))
        errors = error * rng.uniform(-1, 1, (41, size))
        first = {"a": numbers[:1]}, {"a": numbers[:1] + errors[:1]}
        right, found = ({**side, "b": np.zeros((1, size))} for side in first)
        if margin(chosen("Less"), right, found) >= TRIALS:
            others = (numbers[1:] < 0) != (numbers[1:] + errors[1:] < 0)
            turned.append(float(np.mean(others.any(axis=1))))
    assert len(turned) > 50 and np.mean(np.array(turned) > 0.05) <= 0.05


def test_a_map_of_classes_is_looked_at_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_margin, "_PIECE", 24)
    rng = np.random.default_rng(2)
    a, off = rng.standard_normal((2, 3, 5, 7)), 0.1 * rng.random((2, 3, 5, 7))
    ranked = np.sort(a, axis=1)
    places = np.argsort(a, axis=1)
    errors = [np.take_along_axis(off, places[:, [n]], 1)[:, 0] for n in (-1, -2)]
    wanted = ((ranked[:, -1] - ranked[:, -2]) / sum(errors)).min()
    assert margin(chosen("ArgMax", axis=1), {"a": a}, {"a": a + off}) == pytest.approx(wanted)
    limit = {"b": np.zeros((7,))}
    less = (np.abs(a) / off).min()
    assert margin(chosen("Less"), {"a": a, **limit}, {"a": a - off, **limit}) == pytest.approx(less)
