"""Pictures: how much of their structure is the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from halfwise.core.errors import InputError
from halfwise.core.measures.measure import Array, Measure, Outputs, named_output, only_output

__all__ = ["Image", "structure"]

RADIUS, SIGMA = 5, 1.5  # of the window: eleven places, as its authors take it


@dataclass(frozen=True)
class Image(Measure):
    """Errors: `structure`, 1 - SSIM, the mean over the planes; `noise`, 10^(-PSNR/20): 0.01 is 40 dB.

    Height and width are the last two axes of `output`, or the two before the last with `channels_last`. `peak` is the
    range of the values; without it, that of the reference.
    """

    name: ClassVar[str] = "image"
    output: str = ""
    peak: float = 0.0
    channels_last: bool = False

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        name = only_output(self, reference, self.output)
        a, b = (self._planes(named_output(self, side, name), name) for side in (reference, other))
        if a.shape != b.shape:
            return {"structure": float("inf")}
        if not np.isfinite(b).all():
            return {"structure": float("inf")}
        peak = self.peak or float(a.max() - a.min()) or 1.0
        likeness = [structure(x, y, peak) for x, y in zip(a, b, strict=True)]
        noise = float(np.sqrt(np.mean(np.square(a - b)))) / peak
        return {"structure": 1.0 - float(np.mean(likeness)), "noise": noise}

    def _planes(self, array: Array, name: str) -> Array:
        values = array.astype(np.float64)
        if self.channels_last and values.ndim > 2:
            values = np.moveaxis(values, -1, -3)
        if values.ndim < 2 or min(values.shape[-2:]) <= 2 * RADIUS:
            told = f"output {name!r} of shape {'x'.join(map(str, array.shape))} is no picture of more than"
            other = replace(self, channels_last=not self.channels_last).spec
            raise InputError(
                f"--metric {self.spec}: {told} {2 * RADIUS} by {2 * RADIUS} places; where its channels are "
                f"{'second' if self.channels_last else 'last'}, ask for {other}"
            )
        return values.reshape(-1, *values.shape[-2:])


def structure(a: Array, b: Array, peak: float) -> float:
    """SSIM of two planes, with a Gaussian window."""
    small, smaller = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    mean_a, mean_b = _blurred(a), _blurred(b)
    var_a, var_b = _blurred(a * a) - mean_a**2, _blurred(b * b) - mean_b**2
    both = _blurred(a * b) - mean_a * mean_b
    likeness = (2 * mean_a * mean_b + small) * (2 * both + smaller)
    return float(np.mean(likeness / ((mean_a**2 + mean_b**2 + small) * (var_a + var_b + smaller))))


def _blurred(plane: Array) -> Array:
    """Weighed means of the windows that lie inside the plane."""
    window = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / SIGMA) ** 2)
    window /= window.sum()
    for axis in (0, 1):
        plane = np.lib.stride_tricks.sliding_window_view(plane, 2 * RADIUS + 1, axis=axis) @ window
    return plane
