"""Exchanges of FP32 nodes: what a surrogate tells of sets that were not run, and cheaper answers that still hold."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import halfwise
from benchmarks.optimum.demands import Demands
from benchmarks.optimum.graphs import problem
from benchmarks.optimum.switched import Switched
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search.exchange import Exchange
from halfwise.search.noise import Noise
from halfwise.search.noise_model import NoiseModel
from halfwise.search.run_counter import RunCounter, Untried
from halfwise.search.surrogate import Run, Surrogate


def _nodes(count: int) -> list[ir.Node]:
    return [ir.node("Relu", inputs=[None], name=f"n{index}") for index in range(count)]


def _left(energies: dict[frozenset[ir.Node], float], keep: frozenset[ir.Node]) -> float:
    return sum(energy for needs, energy in energies.items() if not needs <= keep)


def test_a_set_that_was_run_is_told_as_it_was() -> None:
    nodes = _nodes(6)
    noise = NoiseModel(tuple(Noise(frozenset({node}), 1.0, False) for node in nodes), {}, frozenset())
    runs = [Run(frozenset(nodes[:count]), float(7 - count) ** 2, 10**6) for count in range(6)]
    surrogate = Surrogate(noise, nodes, runs[-1].keep, runs)
    told, doubt = surrogate.predict(surrogate.rows([run.keep for run in runs]))
    assert told == pytest.approx([run.squared for run in runs], rel=1e-2)
    assert doubt.max() < 0.01
    assert surrogate.predict(surrogate.rows([frozenset(nodes[3:])]))[1][0] > 0.3


@pytest.mark.parametrize("seed", range(8))
def test_runs_correct_what_the_noise_model_has_wrong(seed: int) -> None:
    """Energies that are wrong by a factor of about three: what is told of unseen sets comes nearer to the truth."""
    rng, nodes = np.random.default_rng(seed), _nodes(10)
    needs = [frozenset({node}) for node in nodes] + [frozenset(pair) for pair in pairwise(nodes)]
    true = {each: float(rng.exponential()) for each in needs}
    noise = NoiseModel(
        tuple(Noise(each, true[each] * float(np.exp(rng.normal())), False) for each in needs), {}, frozenset()
    )
    sets = [frozenset(each) for size in (5, 6, 7) for each in combinations(nodes, size)]
    drawn = [sets[index] for index in rng.permutation(len(sets))]
    seen, unseen = drawn[:40], drawn[40:]
    runs = [Run(keep, _left(true, keep), 8) for keep in seen]
    told = Surrogate(noise, nodes, seen[0], runs)
    scale = np.median([run.squared / noise.left(run.keep) for run in runs])
    off = np.log(told.predict(told.rows(unseen))[0] / [_left(true, keep) for keep in unseen])
    before = np.log([scale * noise.left(keep) / _left(true, keep) for keep in unseen])
    assert np.sqrt(np.mean(off**2)) < 0.75 * np.sqrt(np.mean(before**2))


def test_runs_that_left_next_to_nothing_are_told_apart() -> None:
    """Two sets between which the noise model sees no difference, and errors many orders below the others'."""
    nodes = _nodes(4)
    noise = NoiseModel(tuple(Noise(frozenset({node}), 1.0, False) for node in nodes[:2]), {}, frozenset())
    kept = [frozenset(each) for each in ([nodes[0]], [nodes[0], nodes[2]], [], [nodes[2]], [nodes[3]])]
    runs = [Run(keep, squared, 1) for keep, squared in zip(kept, (1e-12, 1e-12, 1.0, 1.0, 1.0), strict=True)]
    surrogate = Surrogate(noise, nodes, kept[0], runs)
    told, doubt = surrogate.predict(surrogate.rows(kept))
    assert np.isfinite(told).all() and np.isfinite(doubt).all() and told[0] < told[2]


@pytest.mark.parametrize("energies", [(1.0, 1.0), (0.0, 0.0)])
@pytest.mark.filterwarnings("error")
def test_an_error_where_the_noise_model_sees_none_is_told_in_numbers(energies: tuple[float, float]) -> None:
    """Behind a choice between near equals, the error is all or nothing, and no derivative tells of it."""
    nodes = _nodes(3)
    pieces = (Noise(frozenset({node}), energy, False) for node, energy in zip(nodes, energies, strict=False))
    kept = [frozenset(each) for each in (nodes[:2], nodes[:1], nodes, [])]
    runs = [Run(keep, squared, 1) for keep, squared in zip(kept, (1e4, 1e-4, 1e4, 1.0), strict=True)]
    surrogate = Surrogate(NoiseModel(tuple(pieces), {}, frozenset()), nodes, kept[0], runs)
    told, doubt = surrogate.predict(surrogate.rows(kept))
    assert np.isfinite(told).all() and np.isfinite(doubt).all()


@pytest.mark.parametrize(
    ("seed", "tolerance", "known"),
    [
        (1, 0.01, 13),
        (191, 0.00122, 1),
        (233, 0.000565, 4),
        (286, 0.02, 3),
        (186, 0.000363, 6),
        (203, 0.01, 4),
        (205, 0.02, 7),
        (246, 0.01, 6),
    ],
)
def test_the_answer_is_the_cheapest_set_and_holds(seed: int, tolerance: float, known: int, tmp_path: Path) -> None:
    """Graphs whose cheapest set is known; reverting nodes alone ended at dearer ones, but for the first."""
    posed = problem(seed)
    sites = Sites(load(posed.model))
    switched = Switched(posed, sites)
    found = halfwise.fix(
        posed.model, list(posed.feeds), out=tmp_path / "out", tolerance=(f"rel_l2<={tolerance}",), repairs=("none",)
    )
    demands = Demands(posed, sites, switched, tolerance, found.fp32_nodes)
    assert found.met and len(found.fp32_nodes) == known
    assert demands.holds(switched.mask(tuple(found.fp32_nodes)))
    assert max(demands.limits) <= 1.0


def test_where_no_run_is_left_no_exchange_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that was not run, for want of runs, was taken for one that does not hold, and the next was looked for."""
    counter, said, asked = RunCounter(budget=200), list[str](), list[Untried]()
    judge = SimpleNamespace(
        counter=counter, executions=2, also=(), affords=lambda what: asked.append(what), measure=lambda *_: None
    )
    search = SimpleNamespace(judge=judge, notify=said.append)
    nodes = frozenset(_nodes(3))
    looked: list[frozenset[ir.Node]] = []

    def best(_: Exchange, keep: frozenset[ir.Node], *__: object) -> frozenset[ir.Node] | None:
        looked.append(keep)
        return frozenset([*keep][:2]) if len(looked) < 100 else None

    monkeypatch.setattr(Exchange, "_best", best)
    monkeypatch.setattr(Exchange, "_measured", lambda *_: [SimpleNamespace(ratio=0.5)])
    given: dict[str, Any] = {"search": search, "noise": None, "feeds": ["x"], "limits": [1.0]}
    exchange = Exchange(**given, judge=lambda _: judge, holds=lambda *_: True)  # type: ignore[arg-type, return-value]
    assert exchange.run(nodes) == nodes
    assert (said, asked, len(looked)) == ([], [Untried.SETS], 1)
