"""Small networks that are no networks of images or text, of old and new opsets, for other targets than the default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.models.build import model, node, value, weight
from tests.support.every_verb import assert_delivered, assert_taken_by_every_verb

Feeds = list[dict[str, NDArray[Any]]]


def drawn(shape: tuple[int, ...], size: float = 1.0, middle: float = 0.0) -> Feeds:
    return [
        {"x": (middle + size * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)}
        for seed in range(4)
    ]


def support_vectors() -> tuple[onnx.ModelProto, Feeds]:
    """A scaler and a kernel machine over readings of 1e5, as a pipeline of classical learning is exported."""
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((20, 8)).astype(np.float32)
    held = {
        "mean": np.full(8, 1e5),
        "deviation": np.full(8, 1e4),
        "vectors": vectors,
        "two": 2.0,
        "squares": np.square(vectors).sum(1)[None],
        "gamma": -0.1,
        "factors": rng.standard_normal((20, 1)),
        "bias": [0.5],
    }
    nodes = [
        node("Sub", "x mean", "centred"),
        node("Div", "centred deviation", "scaled"),
        node("Gemm", "scaled vectors", "products", transB=1),
        node("Mul", "products two", "twice"),
        node("ReduceSumSquare", "scaled", "norms", axes=[1], keepdims=1),
        node("Sub", "norms twice", "apart"),
        node("Add", "apart squares", "distances"),
        node("Mul", "distances gamma", "exponents"),
        node("Exp", "exponents", "kernel"),
        node("Gemm", "kernel factors bias", "decision"),
        node("Sigmoid", "decision", "y"),
    ]
    weights = [weight(name, np.asarray(array, np.float32)) for name, array in held.items()]
    made = model(nodes, [value("x", shape=(16, 8))], [value("y", shape=(16, 1))], weights, opset=11, ir_version=6)
    return made, drawn((16, 8), 1e4, 1e5)


def mixture() -> tuple[onnx.ModelProto, Feeds]:
    """Responsibilities of a mixture of Gaussians, of opset 9."""
    rng = np.random.default_rng(2)
    held = [
        weight("means", rng.standard_normal((1, 5, 6)).astype(np.float32)),
        weight("precisions", np.abs(rng.standard_normal((1, 5, 6))).astype(np.float32)),
        weight("half", np.float32(-0.5)),
    ]
    nodes = [
        node("Unsqueeze", "x", "each", axes=[1]),
        node("Sub", "each means", "d"),
        node("Mul", "d d", "squares"),
        node("Mul", "squares precisions", "weighed"),
        node("ReduceSum", "weighed", "sums", axes=[2], keepdims=0),
        node("Mul", "sums half", "logs"),
        node("ReduceLogSumExp", "logs", "total", axes=[1], keepdims=1),
        node("Sub", "logs total", "shares"),
        node("Exp", "shares", "y"),
    ]
    ends = [value("x", shape=("rows", 6))], [value("y", shape=("rows", 5))]
    return model(nodes, *ends, held, opset=9, ir_version=4), drawn((16, 6))


def grouped_attention() -> tuple[onnx.ModelProto, Feeds]:
    """Operators that opset 24 has, over a residual stream of 3e4."""
    rng = np.random.default_rng(3)
    held = [weight("s", np.ones(32, np.float32)), weight("w", 0.3 * rng.standard_normal((32, 32)).astype(np.float32))]
    nodes = [
        node("RMSNormalization", "x s", "a", axis=-1),
        node("MatMul", "a w", "q"),
        node("Attention", "q q q", "t", q_num_heads=4, kv_num_heads=4, is_causal=1),
        node("Swish", "t", "u"),
        node("Mul", "u a", "y"),
    ]
    ends = [value("x", shape=(1, 8, 32))], [value("y", shape=(1, 8, 32))]
    return model(nodes, *ends, held, opset=24, ir_version=11), drawn((1, 8, 32), 1e4)


@pytest.mark.parametrize(
    ("make", "target", "most", "cut"),
    [
        (support_vectors, "ort-cuda", 1, "distances"),
        (support_vectors, "trt-8.6", 1, "distances"),
        (mixture, "onnx", 0, "sums"),
        (mixture, "trt-10.9", 0, "sums"),
        (grouped_attention, "ort-cuda", 1, "a"),
    ],
)
def test_a_network_of_another_domain_is_delivered_and_taken_by_every_verb(
    make: Callable[[], tuple[onnx.ModelProto, Feeds]], target: str, most: int, cut: str, tmp_path: Path
) -> None:
    given, feeds = make()
    assert_delivered(given, feeds, target, tmp_path, most)
    assert_taken_by_every_verb(given, feeds, tmp_path, cut)
