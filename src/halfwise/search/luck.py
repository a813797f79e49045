"""How well the inputs given may fare by luck, where they chose the FP32 nodes.

Of many sets of nodes some do better on a few inputs by chance, and a search that measures sets takes one of these:
other inputs miss by more. Plain FP16 was chosen by nobody. Its error, less what the estimate of rounding says that the
nodes take from it, leans to neither side.
"""

from __future__ import annotations

import math
from statistics import geometric_mean

from halfwise.search.judge import Measured
from halfwise.search.search import Solution

__all__ = ["luck"]

TELLING = 1.25  # times what was measured: below it, an estimate is not exact enough to tell luck
FARTHEST = 3.0  # the same, beyond which no luck goes: the estimate is off


def luck(solution: Solution, plain: Measured, found: Measured) -> float:
    """How many times the error found others are to expect; 1 where the estimate does not tell. `plain`: with all nodes
    in FP16, on the same inputs."""
    keep, noise = solution.keep, solution.noise
    before, after = (each.smooth or each.ratios for each in (plain, found))
    if not keep or noise is None or not 0.0 < min(*before, *after) <= max(*before, *after) < math.inf:
        return 1.0
    left, whole = noise.left(keep), noise.left(frozenset())
    if not 0.0 < left < whole < math.inf:
        return 1.0
    times = math.sqrt(left / whole) * geometric_mean(before) / geometric_mean(after)
    return times if TELLING < times <= FARTHEST else 1.0
