"""What repairs may take away at best: all the noise near them. What lies elsewhere stays, and is known."""

from __future__ import annotations

import math

from halfwise.core.float_sum import float_sum
from halfwise.precision.sites import Sites
from halfwise.search.attempt import Attempt, RepairSet
from halfwise.search.nearby import around
from halfwise.search.noise import Noise
from halfwise.search.noise_model import NoiseModel, cost_of

__all__ = ["cost_left", "least_left", "noise_left"]

REACH = 2  # nodes from a repair within which noise may be its


def least_left(base: Attempt, repairs: RepairSet) -> float:
    """The least part of the all-FP16 error of `base` that stays with these repairs; infinite where an overflow does.

    Zero where they touch all that overflows: what is left behind an overflow is no question of parts.
    """
    noise = base.solution.noise
    if noise is None:
        return 0.0
    away = _away(base, noise, repairs)
    if noise.fatal:
        return math.inf if any(piece.fatal for piece in away) else 0.0
    all_of_it = float_sum(piece.energy for piece in noise.pieces)
    return math.sqrt(float_sum(piece.energy for piece in away) / all_of_it) if all_of_it > 0 else 0.0


def cost_left(base: Attempt, repairs: RepairSet) -> float:
    """What the FP32 nodes of `base` away from these repairs cost: those stay, too."""
    names = {name for _, repair in repairs for name in repair.nodes}
    return cost_of(frozenset(n for n in base.solution.keep if n.name not in names), base.solution.noise)


def noise_left(base: Attempt, repairs: RepairSet, sites: Sites) -> NoiseModel | None:
    """The noise of `base` away from these repairs, in the model of `sites`, which has them: the function is the same,
    so it is there, too. None where `base` knows of none."""
    noise, by_name = base.solution.noise, sites.model.node_by_name
    if noise is None:
        return None
    cost = {by_name[name]: each for node, each in noise.cost.items() if (name := node.name or "") in by_name}
    pieces = []
    for piece in _away(base, noise, repairs):
        names = {node.name or "" for node in piece.needs}
        if names <= by_name.keys():
            pieces.append(Noise(frozenset(by_name[name] for name in names), piece.energy, piece.fatal))
    return NoiseModel(tuple(pieces), cost, frozenset(node for piece in pieces if piece.fatal for node in piece.needs))


def _away(base: Attempt, noise: NoiseModel, repairs: RepairSet) -> list[Noise]:
    names = {name for _, repair in repairs[len(base.repairs) :] for name in repair.nodes}
    near = around((node for node in base.search.sites.model.nodes if node.name in names), REACH)
    return [piece for piece in noise.pieces if piece.needs.isdisjoint(near)]
