"""How well the inputs given may fare by luck, where they chose the FP32 nodes.

Of many sets of nodes some do better on a few inputs by chance, and a search that measures sets takes one of these:
other inputs miss by more. Plain FP16 was chosen by nobody. Its error, less what the estimate of rounding says that the
nodes take from it, leans to neither side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean

from halfwise.search.judge import Measured
from halfwise.search.search import Solution

__all__ = ["estimated", "luck"]

TELLING = 1.25  # times what was measured: below it, an estimate is not exact enough to tell luck
FARTHEST = 3.0  # the same, beyond which no luck goes: the estimate is off


def estimated(solution: Solution, plain: Measured) -> float:
    """The ratio of a usual input; 0 where the estimate does not say. `plain`: all nodes in FP16, on all inputs."""
    keep, noise, ratios = solution.keep, solution.noise, plain.smooth or plain.ratios
    if not keep or noise is None or not 0.0 < min(ratios) <= max(ratios) < math.inf:
        return 0.0
    left, whole = noise.left(keep), noise.left(frozenset())
    return math.sqrt(left / whole) * geometric_mean(ratios) if 0.0 < left < whole < math.inf else 0.0


def luck(estimate: float, ratios: Sequence[float]) -> float:
    """How many times more than these ratios others are to be expected; 1 where the estimate does not tell."""
    if not estimate or min(ratios) <= 0.0:
        return 1.0
    times = estimate / geometric_mean(ratios)
    return times if TELLING < times <= FARTHEST else 1.0
