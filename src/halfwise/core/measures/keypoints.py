"""Keypoints: how many are lost, and how many are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.errors import InputError
from halfwise.core.measures.measure import Array, Measure, Outputs, named_output

__all__ = ["Keypoints"]

NEAR = 0.8  # of the threshold: a point that fell below it by less is a partner still


@dataclass(frozen=True)
class Keypoints(Measure):
    """Errors: `lost`, `new`: shares of the points with no partner within `radius`, each partner once, nearest first.

    The output `points` holds x and y in its last axis; without a name it is the first that does. Of the points only
    those with a score of at least `threshold` count: of the output `scores`, or the third number of each point.
    `ordered`: the points are joints, and only the same place is a partner.
    """

    name: ClassVar[str] = "keypoints"
    finer: ClassVar[str] = "radius=0.01"  # where places are shares of the picture
    radius: float = 3.0
    threshold: float = 0.0
    points: str = ""
    scores: str = ""
    ordered: bool = False

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        lost = new = wanted = given = 0
        for (a, score_a), (b, score_b) in zip(self._points(reference), self._points(other), strict=True):
            sure_a, sure_b = (score >= self.threshold for score in (score_a, score_b))
            wanted += int(sure_a.sum())
            given += int(sure_b.sum())
            lost += self._alone(a, sure_a, b, score_b >= NEAR * self.threshold)
            new += self._alone(b, sure_b, a, score_a >= NEAR * self.threshold)
        return {"lost": lost / max(wanted, 1), "new": new / max(given, 1)}

    def finds_any(self, reference: Outputs) -> bool:
        return any((scores >= self.threshold).any() for _, scores in self._points(reference))

    def _alone(self, points: Array, sure: Array, others: Array, partners: Array) -> int:
        """How many of the sure points have no partner."""
        if not self.ordered:
            return int(sure.sum()) - self._matched(points[sure], others[partners])
        both = min(len(points), len(others))
        near = np.linalg.norm(points[:both] - others[:both], axis=1) <= self.radius
        return int(sure.sum()) - int((sure[:both] & partners[:both] & near).sum())

    def _matched(self, a: Array, b: Array) -> int:
        distances = np.linalg.norm(a[:, None] - b[None], axis=-1)
        rows, columns = np.nonzero(distances <= self.radius)
        left_a, left_b, count = np.ones(len(a), bool), np.ones(len(b), bool), 0
        for at in np.argsort(distances[rows, columns], kind="stable"):
            i, j = rows[at], columns[at]
            if left_a[i] and left_b[j]:
                left_a[i] = left_b[j] = False
                count += 1
        return count

    def _points(self, outputs: Outputs) -> list[tuple[Array, Array]]:
        """Of every picture of a batch the places, and a score each."""
        name = self.points or next((n for n, array in outputs.items() if np.shape(array)[-1:] in ((2,), (3,))), "")
        if not name:
            raise InputError(f"--metric {self.spec}: no output has x and y in its last axis; name it: points=OUTPUT")
        whole = named_output(self, outputs, name).astype(np.float64)
        whole = whole.reshape(-1, *whole.shape[-2:]) if whole.ndim > 1 else whole.reshape(1, -1, 2)
        scores = np.full(whole.shape[:2], np.inf)
        if self.scores:
            scores = named_output(self, outputs, self.scores).reshape(whole.shape[:2])
        elif self.threshold and whole.shape[-1] > 2:  # without a threshold it may be a depth
            scores = whole[..., 2]
        return list(zip(whole[..., :2], scores, strict=True))
