"""Sums in FP16 accumulators: against sums taken term by term in another order of loops, and on models that run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT, TENSORRT_FP16_SUMS, Profile
from halfwise.emulation.profiles.narrow_sums import MOST_PARTS, TERMS
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight

Array = NDArray[np.float32]


def h(array: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float64).astype(np.float16).astype(np.float32)


def drawn(seed: int, *shape: int) -> Array:
    return h(np.random.default_rng(seed).standard_normal(shape))


def run(proto: onnx.ModelProto, x: Array, profile: Profile = TENSORRT_FP16_SUMS) -> Array:
    return Emulator(profile).session(Assignment.all_narrow(Sites(load(proto)))).run({"x": x})["y"]


def added(terms: Iterable[float], size: int) -> float:
    """One result: its terms in their order, `size` at a time, the first few fewer; each partial sum stored."""
    left = list(terms)
    head = len(left) % size or size
    total = float(h(sum(left[:head])))
    for start in range(head, len(left), size):
        total = float(h(total + sum(left[start : start + size])))
    return total


def of_op(op: str, x: Array, weights: Sequence[Array], opset: int = 17, **attributes: Any) -> onnx.ModelProto:
    names = ["w", "b"][: len(weights)]
    return model(
        [node(op, " ".join(["x", *names]), "y", **attributes)],
        [value("x", shape=x.shape)],
        [value("y", shape=None)],
        [weight(name, array) for name, array in zip(names, weights, strict=True)],
        opset,
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 70), st.integers(1, 4), st.sampled_from((9, 13, 17)), st.integers(0, 99))
def test_a_product_adds_sixteen_terms_at_a_time(rows: int, length: int, columns: int, opset: int, seed: int) -> None:
    x, w = drawn(seed, rows, length), drawn(seed + 1, length, columns)
    wanted = [[added(map(float, x[i] * w[:, j]), TERMS) for j in range(columns)] for i in range(rows)]
    got = run(of_op("MatMul", x, [w], opset), x)
    assert np.allclose(got, wanted, rtol=2e-3, atol=1e-6) and np.mean(got == np.array(wanted, np.float32)) >= 0.75


@pytest.mark.parametrize(
    "shapes", [((2, 3, 40), (40, 5)), ((2, 1, 4, 40), (3, 40, 5)), ((40,), (40, 5)), ((3, 40), (40,))]
)
def test_a_product_of_any_rank(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, w = drawn(1, *shapes[0]), drawn(2, *shapes[1])
    first = h(np.matmul(x[..., :8].astype(float), w[..., :8, :].astype(float) if w.ndim > 1 else w[:8].astype(float)))
    for start in (8, 24):
        part = slice(start, start + 16)
        right = w[..., part, :] if w.ndim > 1 else w[part]
        first = h(first + np.matmul(x[..., part].astype(float), right.astype(float)))
    assert np.mean(run(of_op("MatMul", x, [w]), x) == first) > 0.95


@pytest.mark.parametrize(("turned_a", "turned_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_gemm_scales_and_takes_its_bias_at_the_end(turned_a: int, turned_b: int) -> None:
    x, w, b = drawn(1, 4, 50), drawn(2, 50, 6), drawn(3, 6)
    proto = of_op(
        "Gemm", x.T if turned_a else x, [w.T if turned_b else w, b],
        transA=turned_a, transB=turned_b, alpha=0.5, beta=2.0,
    )  # fmt: skip
    sums = np.array([[added(map(float, x[i] * w[:, j]), TERMS) for j in range(6)] for i in range(4)])
    got = run(proto, np.ascontiguousarray(x.T) if turned_a else x)
    assert np.mean(got == h(0.5 * sums + 2.0 * b)) > 0.9


def convolved(x: Array, w: Array, group: int, channels: int, pad: int) -> Array:
    """Every result by itself: some channels at a time, each with its whole window."""
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    made, each, rows, columns = w.shape
    size = padded.shape[2] - rows + 1, padded.shape[3] - columns + 1
    result = np.zeros((len(x), made, *size), np.float32)
    for place in np.ndindex(*result.shape):
        sample, out, top, left = place
        first = out // (made // group) * each
        window = padded[sample, first : first + each, top : top + rows, left : left + columns] * w[out]
        result[place] = added(window.sum((1, 2)), channels)
    return result


@pytest.mark.parametrize(("group", "kernel", "channels"), [(1, 1, 16), (1, 3, 1), (2, 1, 16), (1, 2, 4), (2, 2, 4)])
def test_a_convolution_adds_a_few_channels_at_a_time(group: int, kernel: int, channels: int) -> None:
    x, w = drawn(1, 1, 36 * group, 4, 4), drawn(2, 2 * group, 36, kernel, kernel)
    b = drawn(3, 2 * group)
    proto = of_op("Conv", x, [w, b], group=group, pads=[kernel // 2] * 4)
    wanted = h(convolved(x, w, group, channels, kernel // 2) + b[:, None, None])
    assert np.mean(run(proto, x) == wanted) > 0.95


def test_a_transposed_convolution_adds_channels_too() -> None:
    """With a window of one place it is a convolution whose weights are turned."""
    x, w = drawn(1, 1, 72, 3, 3), drawn(2, 72, 2, 1, 1)
    turned = np.concatenate([w[:36].transpose(1, 0, 2, 3), w[36:].transpose(1, 0, 2, 3)])
    assert np.mean(run(of_op("ConvTranspose", x, [w], group=2), x) == convolved(x, turned, 2, 16, 0)) > 0.95


def test_a_depthwise_convolution_has_one_part() -> None:
    x, w = drawn(1, 1, 8, 6, 6), drawn(2, 8, 1, 3, 3)
    proto = of_op("Conv", x, [w], group=8)
    assert np.array_equal(run(proto, x), run(proto, x, STRICT))


def test_a_long_sum_is_taken_in_a_bounded_number_of_parts() -> None:
    """Ones add up exactly, until what is added is less than half a step of the sum: then nothing is added any more."""
    length = TERMS * MOST_PARTS
    x = np.ones((1, length), np.float32)
    assert run(of_op("MatMul", x, [np.ones((length, 1), np.float32)]), x).item() == length
    longer = np.ones((1, 20 * length), np.float32)
    got = run(of_op("MatMul", longer, [np.ones((20 * length, 1), np.float32)]), longer).item()
    assert got == 20 * length == 40960
    small = np.full((4096, 1), 2.0**-11, np.float32)  # 16 of them are a step of 2^-7 at most where the sum is 16
    assert run(of_op("MatMul", np.ones((1, 4096), np.float32), [small]), np.ones((1, 4096), np.float32)).item() == 2.0


def test_terms_that_are_small_beside_the_sum_are_lost() -> None:
    """What FP32 accumulators keep: 4096 and 1,600 times 1, of which each sixteen add 16, and a half step is 2."""
    x = np.ones((1, 1616), np.float32)
    w = np.concatenate([np.full((16, 1), 1024.0), np.full((1600, 1), 0.25)]).astype(np.float32)
    proto = of_op("MatMul", x, [w])
    assert run(proto, x, STRICT).item() == 16384 + 400
    assert run(proto, x).item() == 16384  # each part adds 4, where FP16 steps by 16


def test_a_partial_sum_that_overflows_stays_so() -> None:
    """The whole sum is 0; FP32 accumulators never know."""
    x = np.ones((1, 4096), np.float32)
    w = np.concatenate([np.full((2048, 1), 60.0), np.full((2048, 1), -60.0)]).astype(np.float32)
    proto = of_op("MatMul", x, [w])
    assert run(proto, x, STRICT).item() == 0
    assert np.isinf(run(proto, x).item())


@pytest.mark.parametrize("length", [1, 16, 17, 100, 5000])
def test_a_sum_of_open_length_is_split_when_the_model_runs(length: int) -> None:
    x, z = drawn(1, 2, length), drawn(2, length, 3)
    results = []
    for size in (length, "K"):
        inputs = [value("x", shape=("N", size)), value("z", shape=(size, "M"))]
        proto = model([node("MatMul", "x z", "y")], inputs, [value("y", shape=None)])
        session = Emulator(TENSORRT_FP16_SUMS).session(Assignment.all_narrow(Sites(load(proto))))
        results.append(session.run({"x": x, "z": z})["y"])
    assert np.array_equal(*results)


def test_a_sum_of_open_length_is_as_in_strict_in_old_opsets() -> None:
    proto = model(
        [node("MatMul", "x z", "y")], [value("x", shape=("N", "K")), value("z", shape=("K", "M"))],
        [value("y", shape=None)], opset=11,
    )  # fmt: skip
    x, z = drawn(1, 2, 64), drawn(2, 64, 3)
    sites = Sites(load(proto))
    results = [
        Emulator(profile).session(Assignment.all_narrow(sites)).run({"x": x, "z": z})["y"]
        for profile in (STRICT, TENSORRT_FP16_SUMS)
    ]
    assert np.array_equal(*results)


def test_bf16_is_summed_in_fp32() -> None:
    x, w = drawn(1, 2, 640), drawn(2, 640, 3)
    sites = Sites(load(of_op("MatMul", x, [w])), Format.BF16)
    both = [
        Emulator(each).session(Assignment.all_narrow(sites)).run({"x": x})["y"] for each in (STRICT, TENSORRT_FP16_SUMS)
    ]
    assert np.array_equal(*both)


def test_a_product_in_fp32_is_left_alone() -> None:
    x, w = drawn(1, 2, 64), drawn(2, 64, 3)
    session = Emulator(TENSORRT_FP16_SUMS).session(Assignment(Sites(load(of_op("MatMul", x, [w]))), {}))
    assert np.allclose(session.run({"x": x})["y"], x @ w, rtol=1e-5, atol=1e-5)
