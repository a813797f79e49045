"""Embeddings: their directions, and who is near to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.measures.measure import Array, Measure, Outputs, only_output, scores_of

__all__ = ["Embedding"]


@dataclass(frozen=True)
class Embedding(Measure):
    """Errors: `cosine`, 1 - the cosine of the worst row; `recall`, 1 - the share of each row's `k` nearest other rows
    of the same output that stay among them, where there are more than `k` others.

    A row is the last axis of `output`.
    """

    name: ClassVar[str] = "embedding"
    output: str = ""
    k: int = 5

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        name = only_output(self, reference, self.output)
        a, b = (_directions(scores_of(self, side, name)) for side in (reference, other))
        if a.shape != b.shape:
            return {"cosine": float("inf")}
        found = {"cosine": float(np.max(1.0 - np.sum(a * b, axis=-1), initial=0.0))}
        if len(a) > self.k + 1:
            near_a, near_b = self._nearest(a), self._nearest(b)
            shared = np.mean([len(np.intersect1d(x, y)) / self.k for x, y in zip(near_a, near_b, strict=True)])
            found["recall"] = 1.0 - float(shared)
        return found

    def _nearest(self, rows: Array) -> Array:
        likeness = rows @ rows.T
        np.fill_diagonal(likeness, -np.inf)
        nearest: Array = np.argsort(-likeness, axis=-1, kind="stable")[:, : self.k]
        return nearest


def _directions(array: Array) -> Array:
    rows = array.astype(np.float64).reshape(-1, array.shape[-1])
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))
