"""What to expect of inputs that nobody gave: the ratio that nineteen in twenty of them stay below.

Ratios of inputs of one kind scatter around their geometric mean, so their logarithms are taken as normal. With few
inputs the scatter itself is known badly, and the bound that a search aims at is Student's for one more draw, with the
scatter that is usual among a model's inputs (a factor of about 1.25) counted as if it had been seen in three of them.

Where inputs scatter more than that, what they can promise is a tolerance limit: above 95% of all inputs for 19 in 20
sets of inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

__all__ = ["bound_alone", "bound_for_unseen", "inputs_wanted", "spread"]

SHARE = 0.95  # of unseen inputs that are to stay below
SURE = 0.95  # of sets of inputs for which a promise is to hold
USUAL = 0.22  # standard deviation of a ratio's logarithm among the inputs of one model
WEIGHT = 3  # inputs that this prior knowledge counts for
LEAST = 1 / 30  # of the worst ratio: what is smaller does not say how far others may scatter upwards
ENOUGH = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # numbers of inputs that are told
LEAST_ALONE = 4  # ratios that say something by themselves
MOST_ALONE = 10.0  # the same, where the ratios speak for themselves
MOST = 3.0  # times the worst ratio seen: beyond it the guess says nothing


def bound_for_unseen(ratios: Sequence[float], inputs: int = 0, most: float = MOST) -> float:
    """The ratio to expect of an unseen input; never less than the worst seen.

    `inputs`: how many there are in all, where only some of them were run so far: the others will be looked at too.
    `most`: times the worst ratio seen, where the guess ends.
    """
    worst = max(ratios, default=0.0)
    if worst == 0 or not math.isfinite(worst):
        return worst
    logs = np.log(np.maximum(np.asarray(ratios, dtype=np.float64), worst * LEAST))
    count = max(inputs, len(ratios))
    scatter = math.sqrt((WEIGHT * USUAL**2 + len(ratios) * float(np.var(logs))) / (WEIGHT + len(ratios) - 1))
    quantile = _student(SHARE, WEIGHT + count - 1)
    bound = float(np.mean(logs)) + quantile * scatter * math.sqrt(1 + 1 / count)
    return max(worst, min(math.exp(bound), most * worst))


def bound_alone(ratios: Sequence[float], inputs: int = 0) -> float:
    """The same where nothing is taken as usual: what ratios say by themselves, if they scatter more than usual."""
    usual = bound_for_unseen(ratios, inputs)
    if len(ratios) < LEAST_ALONE or not 0.0 < usual < math.inf:
        return usual
    worst = max(ratios)
    logs = np.log(np.maximum(np.asarray(ratios, dtype=np.float64), worst * LEAST))
    count, scatter = max(inputs, len(ratios)), float(np.std(logs, ddof=1))
    if scatter <= 2 * USUAL:
        return usual
    bound = float(np.mean(logs)) + _factor(count, count - 1) * scatter
    return max(usual, min(math.exp(bound), MOST_ALONE * worst))


def spread(extremes: Sequence[float]) -> float:
    """How many times more than the largest of these another input's may be; 1 where all are the same."""
    finite = [each for each in extremes if 0.0 < each < math.inf]
    if not finite or (len(finite) > 1 and min(finite) == max(finite)):
        return 1.0
    return bound_for_unseen(finite) / max(finite)


def inputs_wanted(ratios: Sequence[float], margin: float = 0.0) -> int:
    """How many inputs that scatter like these would tell that another one keeps the tolerance; 0 where none would."""
    for count in ENOUGH:
        if count > len(ratios) and bound_alone(ratios, count) * (1.0 + margin) <= 1.0:
            return count
    return 0


def _student(share: float, freedom: int) -> float:
    """Student's quantile, by its expansion around the normal one; within 1% from three degrees of freedom on."""
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _factor(count: int, freedom: int) -> float:
    """Of one-sided tolerance limits, by Natrella's approximation; within 3% from four draws on."""
    share, sure = NormalDist().inv_cdf(SHARE), NormalDist().inv_cdf(SURE)
    a = 1 - sure**2 / (2 * freedom)
    b = share**2 - sure**2 / count
    return (share + math.sqrt(max(share**2 - a * b, 0.0))) / a
