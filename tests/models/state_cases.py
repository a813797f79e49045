"""What onnxruntime-genai writes beside attention: tables of packed words, and convolutions with a state."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.models.contrib_cases import B, Case, D, S

__all__ = ["state_cases"]

WORDS, WIDE = 12, 64


def _f(*shape: int, scale: float = 1.0) -> NDArray[Any]:
    return (np.random.default_rng([9, *shape]).standard_normal(shape) * scale).astype(np.float32)


def _bytes(*shape: int) -> NDArray[Any]:
    return np.random.default_rng([5, *shape]).integers(0, 256, shape).astype(np.uint8)


def state_cases() -> list[Case]:
    ids = np.random.default_rng(3).integers(0, WORDS, (B, S))
    scales, state = np.abs(_f(WORDS, WIDE // 16, scale=0.1)), ("y", "state")
    own: dict[str, Any] = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    int4 = np.random.default_rng(4).integers(-8, 8, (WORDS, WIDE)).astype(ml_dtypes.int4)
    x, past, kernel = _f(B, D, S), _f(B, D, 2), _f(D, 1, 3)
    words, causal = "GatherBlockQuantized", "CausalConvWithState"
    return [
        Case("words of 4 bits", words, (_bytes(WORDS, WIDE // 2), ids, scales), {**own, "bits": 4}, weights=(0, 2)),
        Case(
            "words of 4 bits with zeros",
            words,
            (_bytes(WORDS, WIDE // 2), ids, scales, _bytes(WORDS, WIDE // 32)),
            {**own, "bits": 4},
            weights=(0, 2, 3),
        ),
        Case("words of 8 bits", words, (_bytes(WORDS, WIDE), ids, scales), {**own, "bits": 8}, weights=(0, 2)),
        Case("words of INT4", words, (int4, ids, scales), {**own, "bits": 4}, weights=(0, 2)),
        Case("causal", causal, (x, kernel, None, past), {"ndim": 1}, state, weights=(1,)),
        Case("causal silu", causal, (x, kernel, _f(D), past), {"activation": "silu"}, state, weights=(1, 2)),
        Case("causal alone", causal, (x, kernel, _f(D)), {"activation": "swish"}, state, weights=(1, 2)),
        Case("causal apart", causal, (x, kernel, None, _f(B, D, 4)), {"dilation": 2}, state, weights=(1,)),
        Case("causal step", causal, (_f(B, D, 1), kernel, None, past), {"ndim": 1}, state, weights=(1,)),
    ]
