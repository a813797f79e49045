"""The error along a trajectory as a picture: over allowed error, after every step, of plain FP16 and of the plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.report.numbers import number
from halfwise.verbs.fix.result import FixResult

__all__ = ["RolloutPicture", "rollout_picture"]

_TICKS = 5  # steps that are numbered


@dataclass(frozen=True)
class RolloutPicture:
    """Positions are shares of the plot, y from its top; a path has gaps where the error is not finite."""

    plain: str
    fixed: str
    allowed: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    text: str


def rollout_picture(result: FixResult) -> RolloutPicture | None:
    """None where no steps in a row were judged."""
    found = result.measured.rollout
    if found is None:
        return None
    seen = [ratio for ratio in (*found.fp16, *found.fixed) if 0 < ratio < math.inf]
    low = min(math.floor(math.log10(min(seen, default=0.1))), -1)
    high = max(math.ceil(math.log10(max(seen, default=10.0))), 1)

    def y(ratio: float) -> float:
        return min(max((high - math.log10(ratio)) / (high - low), 0.0), 1.0) if ratio > 0 else 1.0

    def path(ratios: Sequence[float]) -> str:
        parts, pen = [], "M"
        for index, ratio in enumerate(ratios):
            if math.isfinite(ratio):
                parts.append(f"{pen}{index / max(len(ratios) - 1, 1):.4f} {y(ratio):.4f}")
            pen = "L" if math.isfinite(ratio) else "M"
        return " ".join(parts)

    last = found.steps - 1
    shown = sorted({round(last * tick / (_TICKS - 1)) for tick in range(_TICKS)})
    growth = f"{found.growth - 1.0:+.2%} a step"
    return RolloutPicture(
        path(found.fp16),
        path(found.fixed),
        y(1.0),
        tuple((step / max(last, 1), str(step + 1)) for step in shown),
        tuple((y(10.0**e), "allowed" if e == 0 else f"{number(10.0**e)}×") for e in range(low, high + 1)),
        f"The plan's error goes from {number(found.fixed[0])} to {number(found.fixed[-1])} times the allowed error in "
        f"{found.steps} steps, {growth}. Plain FP16 ends at {number(found.fp16[-1])}.",
    )
