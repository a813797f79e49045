"""How far a repaired model's FP32 answer is from that of the model before."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from halfwise.core.metrics import Metrics

__all__ = ["departure"]


def departure(outputs: Mapping[str, Metrics], floats: Collection[str]) -> float:
    """How far the worst output is from its reference: relative to its norm, or the share of places that differ."""
    return max(
        (math.inf if m.nonfinite else m.rel_l2 if name in floats else 1.0 - m.exact for name, m in outputs.items()),
        default=0.0,
    )
