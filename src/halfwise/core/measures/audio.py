"""Sound: what is not the reference, up to a common loudness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.measures.measure import Measure, Outputs, named_output, only_output

__all__ = ["Audio"]

QUIET = 1e-4  # of full scale: a reference below it is silence, and the residual is relative to this


@dataclass(frozen=True)
class Audio(Measure):
    """Error: `residual`, 10^(-SI-SDR/20): 0.01 is 40 dB. The worst channel counts.

    SI-SDR is the scale-invariant ratio of signal to distortion along `axis` of `output`. Silence counts as
    a signal of `quiet`.
    """

    name: ClassVar[str] = "audio"
    output: str = ""
    axis: int = -1
    quiet: float = QUIET

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        name = only_output(self, reference, self.output)
        a, b = (
            np.moveaxis(named_output(self, side, name).astype(np.float64), self.axis, -1) for side in (reference, other)
        )
        if a.shape != b.shape:
            return {"residual": float("inf")}
        a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
        energy = np.sum(a * a, axis=-1)
        scale = np.divide(np.sum(a * b, axis=-1), energy, out=np.ones_like(energy), where=energy > 0)
        signal = scale[:, None] * a
        least = self.quiet * np.sqrt(a.shape[-1])
        size = np.maximum(np.linalg.norm(signal, axis=-1), least)
        return {"residual": float(np.max(np.linalg.norm(b - signal, axis=-1) / size, initial=0.0))}
