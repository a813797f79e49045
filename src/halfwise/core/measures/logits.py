"""Scores of classes or of the next token: what the distributions that they stand for have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.measures.measure import Array, Measure, Outputs, only_output, scores_of

__all__ = ["Logits"]


@dataclass(frozen=True)
class Logits(Measure):
    """Errors: `kl`, the mean divergence from the reference in nats; `top1`, the share of places whose best class
    changes although its probability leads by at least `margin`; `perplexity`, the factor by which the other is more
    surprised by the reference, less 1.

    The classes are the last axis of `output`. Values that sum to 1 are probabilities; others pass through a softmax.
    """

    name: ClassVar[str] = "logits"
    output: str = ""
    margin: float = 0.02

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        name = only_output(self, reference, self.output)
        a, b = (_log_probabilities(scores_of(self, side, name)) for side in (reference, other))
        if a.shape != b.shape:
            return {"kl": float("inf")}
        p = np.exp(a)
        kl = float(np.mean(np.sum(np.where(p > 0, p * (a - b), 0.0), axis=-1))) if a.size else 0.0
        best = np.sort(p, axis=-1)
        clear = best[..., -1] - best[..., -2] >= self.margin if p.shape[-1] > 1 else np.zeros(p.shape[:-1], bool)
        changed = clear & (a.argmax(-1) != b.argmax(-1))
        kl = max(kl, 0.0)
        with np.errstate(over="ignore"):
            perplexity = float(np.expm1(kl))
        return {"kl": kl, "top1": float(changed.sum()) / max(a[..., 0].size, 1), "perplexity": perplexity}


def _log_probabilities(array: Array) -> Array:
    values = array.astype(np.float64)
    if values.size and values.min() >= 0 and np.allclose(values.sum(-1), 1.0, atol=1e-2):
        return np.asarray(np.log(np.maximum(values, 1e-12)))
    top = values - values.max(-1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(-1, keepdims=True)))
