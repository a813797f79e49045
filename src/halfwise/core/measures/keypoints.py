"""Keypoints: how many are lost, and how many are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.errors import InputError
from halfwise.core.measures.measure import Array, Measure, Outputs, named_output

__all__ = ["Keypoints"]


@dataclass(frozen=True)
class Keypoints(Measure):
    """Errors: `lost`, `new`: shares of the points with no partner within `radius`, each partner once, nearest first.

    The output `points` holds x and y in its last axis; without a name it is the first that does. With `scores`, only
    points of at least `threshold` count. `ordered`: the points are joints, and only the same place is a partner.
    """

    name: ClassVar[str] = "keypoints"
    radius: float = 3.0
    threshold: float = 0.0
    points: str = ""
    scores: str = ""
    ordered: bool = False

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        matched = wanted = given = 0
        for a, b in zip(self._points(reference), self._points(other), strict=True):
            matched += self._matched(a, b)
            wanted += len(a)
            given += len(b)
        return {"lost": 1.0 - matched / max(wanted, 1) if wanted else 0.0,
                "new": 1.0 - matched / max(given, 1) if given else 0.0}  # fmt: skip

    def _matched(self, a: Array, b: Array) -> int:
        if self.ordered:
            both = min(len(a), len(b))
            return int((np.linalg.norm(a[:both] - b[:both], axis=1) <= self.radius).sum())
        distances = np.linalg.norm(a[:, None] - b[None], axis=-1)
        rows, columns = np.nonzero(distances <= self.radius)
        left_a, left_b, count = np.ones(len(a), bool), np.ones(len(b), bool), 0
        for at in np.argsort(distances[rows, columns], kind="stable"):
            i, j = rows[at], columns[at]
            if left_a[i] and left_b[j]:
                left_a[i] = left_b[j] = False
                count += 1
        return count

    def _points(self, outputs: Outputs) -> list[Array]:
        name = self.points or next((n for n, array in outputs.items() if np.shape(array)[-1:] in ((2,), (3,))), "")
        if not name:
            raise InputError(f"--metric {self.spec}: no output has x and y in its last axis; name it: points=OUTPUT")
        points = named_output(self, outputs, name).astype(np.float64)
        points = points.reshape(-1, *points.shape[-2:])[..., :2] if points.ndim > 1 else points.reshape(1, -1, 2)
        if not self.scores:
            return list(points)
        scores = named_output(self, outputs, self.scores).reshape(points.shape[:2])
        return [each[score >= self.threshold] for each, score in zip(points, scores, strict=True)]
