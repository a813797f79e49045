"""ONNX Runtime's mixture of experts, and attention that only its kernels compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.models.contrib_cases import B, Case, D, H, N, S

__all__ = ["expert_cases", "kernels_alone"]


def _f(*shape: int, scale: float = 1.0) -> NDArray[Any]:
    return (np.random.default_rng([7, *shape]).standard_normal(shape) * scale).astype(np.float32)


def expert_cases() -> list[Case]:
    experts, inner = 4, 24
    first, second = _f(experts, inner, D, scale=0.3), _f(experts, D, inner, scale=0.3)
    shares, biases = _f(B * S, experts), (_f(experts, inner), _f(experts, D))
    best = {"k": 2, "normalize_routing_weights": 1, "activation_type": "silu"}
    paired = {"k": 2, "normalize_routing_weights": 1, "activation_type": "swiglu", "swiglu_fusion": 1}
    limited = {**paired, "swiglu_limit": 0.5, "activation_alpha": 1.702, "activation_beta": 1.0}
    gated = (_f(B, S, D), shares, _f(experts, 2 * inner, D, scale=0.3), _f(experts, 2 * inner), second, biases[1])
    flat = (_f(B * S, D), shares, first.transpose(0, 2, 1).copy(), None, second.transpose(0, 2, 1).copy())
    return [
        Case("experts", "MoE", (_f(B, S, D), shares, first, biases[0], second, biases[1]), best, weights=(2, 3, 4, 5)),
        Case("experts flat", "MoE", flat, {"k": 3, "activation_type": "gelu"}, weights=(2, 4)),
        Case("experts gated", "MoE", gated, paired, weights=(2, 3, 4, 5)),
        Case("experts limited", "MoE", gated, limited, weights=(2, 3, 4, 5)),
    ]


def kernels_alone() -> list[Case]:
    """Operators that have no steps: their kernel computes them."""
    packed, zero = np.arange(D * 3 * D, dtype=np.uint8).reshape(D, 3 * D), np.array(128, np.uint8)
    scale = np.array(0.01, np.float32)
    whole = (packed[:S, :D][None], packed, _f(3 * D), scale, scale, None, zero, zero)
    cache = _f(B, N, 9, H)
    step = (_f(B, 1, D), _f(B, 1, D), _f(B, 1, D), None, None, cache, cache * 0.5, np.array([3], np.int32))
    heads = {"num_heads": N, "past_present_share_buffer": 1}
    return [
        Case("quantised attention", "QAttention", whole, {"num_heads": N}, weights=(1, 2, 3, 4, 6, 7)),
        Case("decoder masked", "DecoderMaskedMultiHeadAttention", step, heads, ("y", "present_key", "present_value")),
    ]
