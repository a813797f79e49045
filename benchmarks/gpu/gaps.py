"""Predicted errors against measured ones, in the committed data: ratios by output, and what a verdict looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity import MODES

__all__ = ["DATA", "SMALL", "ratios", "worst"]

DATA = Path(__file__).resolve().parents[1] / "data"
SMALL = 1e-5  # measured errors below it are FP32's own and say nothing of FP16

Errors = Sequence[Mapping[str, Mapping[str, float]]]


def ratios(version: Mapping[str, Any], mode: str, floor: float = SMALL) -> dict[str, float]:
    """Predicted over measured error by output, over all inputs; of outputs that are finite on both sides."""
    predicted, measured = version["predicted"][MODES[mode]], version["measured"][mode]
    found = {}
    for name in measured[0]:
        if "rel_l2" not in measured[0][name]:
            continue
        pairs = [(p[name]["rel_l2"], m[name]["rel_l2"]) for p, m in zip(predicted, measured, strict=True)]
        finite = [pair for pair in pairs if all(math.isfinite(error) for error in pair)]
        if not finite:
            continue
        left, right = (math.sqrt(float(np.mean(np.square(column)))) for column in zip(*finite, strict=True))
        if right > floor:
            found[name] = left / right
    return found


def worst(errors: Errors) -> float:
    """The largest error over inputs and outputs; infinite where a value is not finite or integers differ."""
    found = 0.0
    for sample in errors:
        for error in sample.values():
            bad = error.get("nonfinite", 0.0) or error.get("equal", 1.0) < 0.999
            found = max(found, math.inf if bad else error.get("rel_l2", 0.0))
    return found
