"""How likely a group of nodes holds no culprit: several ways of reading a ranking, weighed by what the builds said.

Each reading spreads an expected number of culprits over the ranking: evenly (the ranking is useless), or more or less
steeply towards its top. Nodes are independent within a reading, so that a group is clean with probability
exp(-sum of its rates). Every answer re-weighs the readings; neither the number of culprits nor the worth of the ranking
is known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Belief"]

# Culprits expected, and how likely that is before any build: a handful, most often.
_COUNTS = {0.5: 1.0, 1.0: 2.0, 2.0: 4.0, 4.0: 6.0, 8.0: 6.0, 16.0: 4.0, 32.0: 2.0, 64.0: 1.0, 256.0: 0.2}
_REACHES = (16.0, 48.0)  # nodes at the top of the ranking among which nearly all of them fall
_LEAK = 0.002  # the share of the expected culprits that even a steep reading leaves anywhere
_EDGE = 6.0  # how sharply a reach ends
_TRUST = 2.0  # how much likelier, before any build, each steep reading is than an even one

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Belief:
    """Over nodes 0 to count - 1, in the order of the ranking: the most suspicious first."""

    log_weights: Floats  # of each reading
    rates: Floats  # of each reading and node

    @classmethod
    def before(cls, count: int) -> Belief:
        """What is believed before any build."""
        ranks = np.arange(count, dtype=np.float64)
        even = np.full(count, 1.0 / count)
        shapes = [(1.0, even)]
        for reach in _REACHES:
            steep = np.exp(-((ranks / reach) ** _EDGE))
            shapes.append((_TRUST, (1 - _LEAK) * steep / steep.sum() + _LEAK * even))
        readings = [
            (trust * likely, shape * expected)
            for trust, shape in shapes
            for expected, likely in _COUNTS.items()
            if expected <= count
        ]
        return cls(np.log(np.array([weight for weight, _ in readings])), np.array([rates for _, rates in readings]))

    def clearing(self, nodes: list[int]) -> Belief:
        """None of these is a culprit."""
        return replace(self, log_weights=self.log_weights - self.rates[:, nodes].sum(axis=1))

    def convicting(self, node: int) -> Belief:
        return replace(self, log_weights=self.log_weights + np.log(-np.expm1(-self.rates[:, node])))

    def clean(self, group: list[int], tainted: bool) -> Floats:
        """For every beginning of `group`: how likely it holds no culprit. `tainted`: the whole is known to hold one."""
        rates = np.cumsum(self.rates[:, group], axis=1)
        log_weights = self.log_weights
        clean = np.exp(-rates)
        if tainted:
            some = -np.expm1(-rates[:, -1:])
            log_weights = log_weights + np.log(some[:, 0])
            clean = (clean - clean[:, -1:]) / some
        weights = np.exp(log_weights - log_weights.max())
        return np.asarray(weights @ clean / weights.sum())
