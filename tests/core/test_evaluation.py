"""Errors of outputs beside the reference ones: what a metric does to its arguments is no matter of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.evaluation import evaluate
from halfwise.core.tolerance import Tolerance

Outputs = Mapping[str, Any]


def _clears(reference: Outputs, other: Outputs) -> float:
    """The error of a tensor and of a sequence, both of which are written over."""
    sides = ([side["y"], *side["s"]] for side in (reference, other))
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = list(zip(*sides, strict=True))
    found = max(float(np.abs(a - b).max()) for a, b in pairs)
    for pair in pairs:
        for array in pair:
            array[...] = 0
    return found


def test_a_metric_that_writes_into_its_arguments_says_the_same_again() -> None:
    reference = {"y": np.arange(4.0, dtype=np.float32), "s": [np.ones((2, 2), np.float32)]}
    outputs = {"y": reference["y"] + np.float32(0.5), "s": [np.ones((2, 2), np.float32)]}
    tolerance = Tolerance.parse(["metric<=0.1"], ["y", "s"], ["y", "s"], user_metric=True)
    found = [evaluate([reference], [outputs], tolerance, _clears).user_metric for _ in range(2)]
    assert found == [0.5, 0.5]
