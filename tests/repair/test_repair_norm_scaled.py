"""Norms for which there is no operator are scaled instead."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.norm_graphs import GUARDS, LOOSE, RNG, RULE, WIDTH, Graph, outliers, ways, written
from tests.support.repairing import effect


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(402).bit_generator.state


def scaled_graph(name: str, opset: int = 17) -> Graph:
    parts = dict(GUARDS[name])
    axes, last = parts.pop("axes", [-1]), "w" if parts.pop("open", False) else WIDTH
    graph = Graph(opset)
    graph.output(written(graph, graph.input("x", [2, 5, last]), axes, **parts), "y", [2, 5, last])
    return graph


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("opset", [13, 18])
def test_elsewhere_the_norm_is_scaled(name: str, opset: int) -> None:
    feeds = [{"x": outliers(2, 5, WIDTH, size=size)} for size in (900.0, 20000.0, 300.0)]
    found = effect(RULE, scaled_graph(name, opset).model(opset), feeds)
    assert ways(found) == ["shifted" if name == "no guard" else "by rows"]
    assert found.deviation < LOOSE
    assert found.after < 0.5 < found.before


@pytest.mark.parametrize("name", ["a channel axis", "add outside", "max inside"])
def test_a_constant_scale_where_the_epsilon_survives_it(name: str) -> None:
    feeds = [{"x": np.clip(outliers(2, 5, WIDTH, size=500.0), -600, 600)} for _ in range(3)]
    feeds[1]["x"][0] = 0.0  # nothing but the epsilon to divide by
    found = effect(RULE, scaled_graph(name).model(), feeds)
    assert ways(found) == ["shifted"]
    assert found.deviation < LOOSE
    assert found.after < 0.5 < found.before


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0, 300.0, 1e4])
@pytest.mark.parametrize("name", ["a channel axis", "max inside", "add outside"])
def test_rows_of_any_size_and_rows_of_zeros(name: str, size: float) -> None:
    rows = np.float32(size) * RNG.standard_normal((2, 5, WIDTH)).astype(np.float32)
    rows[0] = 0.0
    rows[1, 0] *= 1e-3
    feeds = [{"x": outliers(2, 5, WIDTH, size=3e4)}, {"x": np.clip(rows, -3e4, 3e4)}]
    found = effect(RULE, scaled_graph(name).model(), feeds, searched=1)
    assert ways(found) == ["by rows"]
    assert found.deviation < LOOSE
    assert found.after < 1.0


def test_a_norm_that_fits_is_not_scaled() -> None:
    found = effect(RULE, scaled_graph("a channel axis").model(), [{"x": outliers(2, 5, WIDTH, size=30.0)}])
    assert found.repairs == ()


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("size", [3e-4, 1e-3, 1e-2])
def test_squares_that_fp16_makes_subnormal_are_scaled_up(name: str, size: float) -> None:
    """Also where an input that was not searched is 16 times as loud."""
    quiet = [np.float32(size) * RNG.standard_normal((2, 5, WIDTH)).astype(np.float32) for _ in range(2)]
    feeds = [{"x": quiet[0]}, {"x": 16 * quiet[1]}]
    found = effect(RULE, scaled_graph(name).model(), feeds, searched=1)
    assert len(ways(found)) == 1
    assert found.deviation < LOOSE
    assert found.after < 0.5 and found.after < 1.1 * found.before


@pytest.mark.parametrize("outside", [False, True])
def test_an_epsilon_that_fp16_still_rounds_away_is_no_guard_of_quiet_rows(outside: bool) -> None:
    graph = Graph()

    def guarded(g: Graph, variance: str) -> str:
        return variance if outside else g.op("Add", [variance, g.number(1e-12)], "")

    def quotient(g: Graph, c: str, variance: str) -> str:
        root = g.op("Sqrt", [variance], "")
        return g.op("Div", [c, g.op("Add", [root, g.number(1e-10)], "") if outside else root], "")

    normal = written(graph, graph.input("x", [2, 5, WIDTH]), [1], guard=guarded, quotient=quotient)
    graph.output(normal, "y", [2, 5, WIDTH])
    rows = np.float32(0.02) * RNG.standard_normal((2, 5, WIDTH)).astype(np.float32)
    rows[1] = 0.0
    found = effect(RULE, graph.model(), [{"x": rows}])
    assert ways(found) == ["by rows"]
    assert found.deviation < LOOSE and found.after < 0.5
