"""Small shapes: normalisations written out by hand, whose squares overflow, underflow or cancel."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.blocks import (
    Array,
    decomposed_layer_norm,
    decomposed_rms_norm,
    linear,
    outlier_gamma,
    trained_matrix,
)
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import OUTLIER_WIDTH, feeds, outlier_tokens
from tests.models.zoo.zoo_model import ZooModel

_TOKENS = 16
_WIDTH = OUTLIER_WIDTH
_CHANNELS = 8
_SIDE = 24


def layer_norm_overflow() -> ZooModel:
    """(x - mean)^2 exceeds 65504 in three outlier channels; the normed output silently becomes zero."""
    rng = np.random.default_rng(1)
    writer = GraphWriter("layer_norm_overflow")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    normal = decomposed_layer_norm(writer, x, "/norm", outlier_gamma(rng), rng.normal(0.0, 0.1, _WIDTH))
    _project(writer, rng, normal)
    known_good = ("/norm/Pow", "/norm/ReduceMean_1")
    return ZooModel("layer_norm_overflow", writer.model(), feeds(rng, "x", outlier_tokens), 0.01, known_good)


def rms_norm_overflow() -> ZooModel:
    """x^2 exceeds 65504, as in LayerNorm but without the mean and with 1 / sqrt."""
    rng = np.random.default_rng(2)
    writer = GraphWriter("rms_norm_overflow")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    _project(writer, rng, decomposed_rms_norm(writer, x, "/norm", outlier_gamma(rng)))
    known_good = ("/norm/Pow", "/norm/ReduceMean")
    return ZooModel("rms_norm_overflow", writer.model(), feeds(rng, "x", outlier_tokens), 0.01, known_good)


def instance_norm_overflow() -> ZooModel:
    """Per channel over the map, with Mul for the square and Reciprocal for the division; two channels are loud."""
    rng = np.random.default_rng(3)
    writer = GraphWriter("instance_norm_overflow")
    x = writer.input("x", [1, _CHANNELS, _SIDE, _SIDE])
    mean = writer.op("ReduceMean", [x], "/norm", axes=[2, 3])
    centred = writer.op("Sub", [x, mean], "/norm")
    variance = writer.op("ReduceMean", [writer.op("Mul", [centred, centred], "/norm")], "/norm", axes=[2, 3])
    deviation = writer.op("Sqrt", [writer.op("Add", [variance, writer.weight("norm.eps", 1e-5)], "/norm")], "/norm")
    normal = writer.op("Mul", [centred, writer.op("Reciprocal", [deviation], "/norm")], "/norm")
    _affine(writer, rng, normal)
    known_good = ("/norm/Mul", "/norm/ReduceMean_1", "/norm/Add", "/norm/Sqrt")
    return ZooModel("instance_norm_overflow", writer.model(), feeds(rng, "x", _loud_maps), 0.01, known_good)


def group_norm_overflow() -> ZooModel:
    """Reshaped into groups of two channels; one group is loud."""
    rng = np.random.default_rng(4)
    writer = GraphWriter("group_norm_overflow")
    x = writer.input("x", [1, _CHANNELS, _SIDE, _SIDE])
    groups = _CHANNELS // 2
    flat = writer.op("Reshape", [x, writer.weight("norm.groups", [0, groups, -1], np.int64)], "/norm")
    centred = writer.op("Sub", [flat, writer.op("ReduceMean", [flat], "/norm", axes=[2])], "/norm")
    square = writer.op("Pow", [centred, writer.weight("norm.two", 2.0)], "/norm")
    variance = writer.op("ReduceMean", [square], "/norm", axes=[2])
    deviation = writer.op("Sqrt", [writer.op("Add", [variance, writer.weight("norm.eps", 1e-5)], "/norm")], "/norm")
    normal = writer.op("Div", [centred, deviation], "/norm")
    maps = writer.op("Reshape", [normal, writer.op("Shape", [x], "/norm")], "/norm")
    _affine(writer, rng, maps)
    known_good = ("/norm/Pow", "/norm/ReduceMean_1", "/norm/Add", "/norm/Sqrt")
    return ZooModel("group_norm_overflow", writer.model(), feeds(rng, "x", _loud_maps), 0.01, known_good)


def l2_norm_of_padding() -> ZooModel:
    """max(|x|, 1e-12) guards zero vectors in FP32; 1e-12 is 0 in FP16, and 0 / 0 is NaN."""
    rng = np.random.default_rng(5)
    writer = GraphWriter("l2_norm_of_padding")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    length = writer.op("ReduceL2", [x], "/normalize", axes=[-1], keepdims=1)
    guarded = writer.op("Clip", [length, writer.weight("normalize.eps", 1e-12)], "/normalize")
    unit = writer.op(
        "Div", [x, writer.op("Expand", [guarded, writer.op("Shape", [x], "/normalize")], "/normalize")], "/normalize"
    )
    _project(writer, rng, unit)

    def padded(rng: np.random.Generator, scale: float) -> Array:
        tokens = scale * rng.standard_normal((1, _TOKENS, _WIDTH))
        tokens[:, _TOKENS - int(rng.integers(1, 6)) :] = 0.0
        return tokens.astype(np.float32)

    known_good = ("/normalize/Clip", "/normalize/Expand", "/normalize/Div")
    return ZooModel("l2_norm_of_padding", writer.model(), feeds(rng, "x", padded), 0.01, known_good)


def l2_norm_of_small_vectors() -> ZooModel:
    """x^2 of components near 1e-4 is below the smallest subnormal; the length becomes 0 and the quotient infinite."""
    rng = np.random.default_rng(6)
    writer = GraphWriter("l2_norm_of_small_vectors")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    square = writer.op("Mul", [x, x], "/normalize")
    total = writer.op("ReduceSum", [square, writer.weight("normalize.axes", [-1], np.int64)], "/normalize")
    guarded = writer.op("Add", [total, writer.weight("normalize.eps", 1e-12)], "/normalize")
    _project(writer, rng, writer.op("Div", [x, writer.op("Sqrt", [guarded], "/normalize")], "/normalize"))

    def small(rng: np.random.Generator, scale: float) -> Array:
        return (1.2e-4 * scale * rng.standard_normal((1, _TOKENS, _WIDTH))).astype(np.float32)

    known_good = tuple(f"/normalize/{op}" for op in ("Mul", "ReduceSum", "Add", "Sqrt"))
    return ZooModel("l2_norm_of_small_vectors", writer.model(), feeds(rng, "x", small), 0.01, known_good)


def variance_by_moments() -> ZooModel:
    """E[x^2] - E[x]^2 of values near 100 with a spread of 2: the difference of two rounded large numbers."""
    rng = np.random.default_rng(7)
    writer = GraphWriter("variance_by_moments")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    mean = writer.op("ReduceMean", [x], "/norm", axes=[-1])
    mean_square = writer.op("ReduceMean", [writer.op("Mul", [x, x], "/norm")], "/norm", axes=[-1])
    variance = writer.op("Sub", [mean_square, writer.op("Mul", [mean, mean], "/norm")], "/norm")
    guarded = writer.op("Add", [variance, writer.weight("norm.eps", 1e-3)], "/norm")
    centred = writer.op("Sub", [x, mean], "/norm")
    _project(writer, rng, writer.op("Div", [centred, writer.op("Sqrt", [guarded], "/norm")], "/norm"))

    def offset(rng: np.random.Generator, scale: float) -> Array:
        return (100.0 + 2.0 * scale * rng.standard_normal((1, _TOKENS, _WIDTH))).astype(np.float32)

    known_good = ("/norm/ReduceMean", "/norm/Mul", "/norm/ReduceMean_1", "/norm/Mul_1", "/norm/Sub", "/norm/Sub_1")
    return ZooModel("variance_by_moments", writer.model(), feeds(rng, "x", offset), 0.01, known_good)


def _project(writer: GraphWriter, rng: np.random.Generator, x: str) -> None:
    y = linear(writer, x, "/proj", trained_matrix(rng, _WIDTH, 32), rng.normal(0.0, 0.02, 32))
    writer.output(y, "y", [1, _TOKENS, 32])


def _affine(writer: GraphWriter, rng: np.random.Generator, x: str) -> None:
    gamma = writer.weight("norm.weight", rng.lognormal(0.0, 0.2, (_CHANNELS, 1, 1)))
    beta = writer.weight("norm.bias", rng.normal(0.0, 0.1, (_CHANNELS, 1, 1)))
    y = writer.op("Add", [writer.op("Mul", [x, gamma], "/norm/affine"), beta], "/norm/affine")
    writer.output(y, "y", [1, _CHANNELS, _SIDE, _SIDE])


def _loud_maps(rng: np.random.Generator, scale: float) -> Array:
    loudness = np.array([1.0, 3.0, 400.0, 700.0, 0.5, 8.0, 2.0, 20.0]).reshape(1, _CHANNELS, 1, 1)
    maps = np.abs(rng.standard_normal((1, _CHANNELS, _SIDE, _SIDE))) + 0.5 * rng.standard_normal((1, _CHANNELS, 1, 1))
    return (scale * loudness * maps).astype(np.float32)
