"""What repairs may take away at best: all the noise near them. What lies elsewhere stays."""

from __future__ import annotations

import math

from halfwise.search.attempt import Attempt, RepairSet
from halfwise.search.nearby import around

__all__ = ["least_left"]

REACH = 2  # nodes from a repair within which noise may be its


def least_left(base: Attempt, repairs: RepairSet) -> float:
    """The least part of the all-FP16 error of `base` that stays with these repairs; infinite where an overflow does.

    Zero where they touch all that overflows: what is left behind an overflow is no question of parts.
    """
    noise = base.solution.noise
    if noise is None:
        return 0.0
    names = {name for _, repair in repairs[len(base.repairs) :] for name in repair.nodes}
    near = around((node for node in base.search.sites.model.nodes if node.name in names), REACH)
    away = [piece for piece in noise.pieces if piece.needs.isdisjoint(near)]
    if noise.fatal:
        return math.inf if any(piece.fatal for piece in away) else 0.0
    all_of_it = sum(piece.energy for piece in noise.pieces)
    return math.sqrt(sum(piece.energy for piece in away) / all_of_it) if all_of_it > 0 else 0.0
