"""Large weights on the way back and in repairs: in parts, with the numbers of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.repair import scale_blocks
from halfwise.search import large_weights, sensitivity
from halfwise.search.effects import Sensitivity
from halfwise.search.sensitivity import measure_sensitivity
from tests.models.build import model, node, value, weight


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _measured(proto: Any, feed: dict[str, Any]) -> tuple[Sites, Sensitivity]:
    sites, found = Sites(load(proto)), Sensitivity()
    measure_sensitivity(Stepper(Emulator()), sites, feed, found)
    return sites, found


@pytest.mark.parametrize("axis", [0, 1])
def test_a_table_leaves_the_error_of_the_rows_that_are_taken(axis: int) -> None:
    """By hand: the output is the rows themselves, a repeated row counts with each place that it is in."""
    table, taken = _normal(6, 6), np.array([4, -5, 4])
    proto = model(
        [node("Gather", "table i", "y", axis=axis)],
        [value("i", 7, [3])],
        [value("y", shape=[3, 6] if axis == 0 else [6, 3])],
        [weight("table", table)],
    )
    sites, found = _measured(proto, {"i": taken})
    error = table.astype(np.float16).astype(np.float64) - table
    rows = np.take(table, taken, axis)
    squares = np.take(error**2, taken, axis).sum() / np.sum(rows.astype(np.float64) ** 2)
    (site,) = sites.all
    assert found.weights[site.node] == pytest.approx(squares, rel=0.8)  # signs of a repeated row may meet or cancel
    alone, once = _measured(proto, {"i": np.array([0, 2, 5])})
    rows = np.take(table, [0, 2, 5], axis)
    squares = np.take(error**2, [0, 2, 5], axis).sum() / np.sum(rows.astype(np.float64) ** 2)
    assert once.weights[alone.all[0].node] == pytest.approx(squares, rel=1e-3)


def test_a_large_weight_that_is_turned_first_counts_as_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a gradient of its own size: the error is that of the same product with the weight as stored."""
    turned, x = _normal(24, 16), _normal(5, 16)
    info = [value("x", shape=[5, 16])], [value("y", shape=[5, 24])]
    behind = model([node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")], *info, [weight("w", turned)])
    plain = model([node("MatMul", "x w", "y")], *info, [weight("w", np.ascontiguousarray(turned.T))])
    monkeypatch.setattr(large_weights, "LARGE", 10)
    sites, found = _measured(behind, {"x": x})
    others, expected = _measured(plain, {"x": x})
    product, constant = sites.all[-1].node, sites.all[0].node.outputs[0]
    assert found.reads[product][constant] == pytest.approx(expected.weights[others.all[0].node], rel=1e-3)


@pytest.mark.parametrize("shape, keep", [((40, 30), (1,)), ((40, 30), (0,)), ((40, 30), ()), ((5, 60, 3), (0, 2))])
def test_blocks_in_parts_are_those_of_the_whole(
    shape: tuple[int, ...], keep: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = _normal(*shape)
    whole = scale_blocks.blocks(array, keep)
    monkeypatch.setattr(scale_blocks, "_BLOCK", 100)
    for one, other in zip(scale_blocks.blocks(array, keep), whole, strict=True):
        assert one.shape == other.shape and np.allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 5), (1000, 300), (70_000,), (2, 3, 40_000)])
def test_equal_weights_are_told_in_any_layout(shape: tuple[int, ...]) -> None:
    one = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    turned = np.ascontiguousarray(one.T).T
    assert large_weights.same_values(one, one.copy()) and large_weights.same_values(one, turned)
    other = turned.copy()
    other[(-1,) * other.ndim] += 1
    assert not large_weights.same_values(one, other)


@pytest.mark.parametrize("op, gradients", [("MatMul", 5 * 24), ("Add", 16 * 24)])
def test_the_widest_tensor_is_one_that_has_a_gradient(monkeypatch: pytest.MonkeyPatch, op: str, gradients: int) -> None:
    """A weight that is turned has none where it is multiplied by, and need not make probes go back turn by turn."""
    proto = model(
        [node("Transpose", "w", "t", perm=[1, 0]), node(op, "x t", "y")],
        [value("x", shape=[5 if op == "MatMul" else 16, 16 if op == "MatMul" else 24])],
        [value("y", shape=[5 if op == "MatMul" else 16, 24])],
        [weight("w", _normal(24, 16))],
    )
    monkeypatch.setattr(large_weights, "LARGE", 10)
    seen = list[int]()
    turns = sensitivity._turns
    monkeypatch.setattr(sensitivity, "_turns", lambda *given: seen.append(given[1]) or turns(*given))
    x = next(iter(load(proto).graph.inputs)).shape
    _measured(proto, {"x": _normal(*map(int, x))})
    assert seen == [4 * gradients]
