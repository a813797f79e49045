"""What simulated kernels share: FP64 throughout, and `h` where a kernel stores FP16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.emulation.probes import Form

__all__ = ["Array", "given", "h", "sigmoid", "terms_of"]


Array = NDArray[np.float64]


def h(x: Any) -> Array:
    return np.asarray(x).astype(np.float16).astype(np.float64)


def given(form: Form) -> list[Any]:
    return [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a for a in form.arrays()]


def terms_of(hypothesis: str) -> int:
    return int(hypothesis.rsplit("-", 1)[1])


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
