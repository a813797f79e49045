"""Small shapes: values too large, too small or too close together for FP16; and one MLP for which it is fine."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.blocks import Array, erf_gelu, linear, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import feeds
from tests.models.zoo.zoo_model import ZooModel

_POINTS = 200


def inverse_sigmoid() -> ZooModel:
    """log(x / (1 - x)) with x near 1: FP16 knows 1 - x only to multiples of 0.0005."""
    rng = np.random.default_rng(31)
    writer = GraphWriter("inverse_sigmoid")
    x = writer.input("x", [1, _POINTS, 4])
    inside = writer.op("Clip", [x, writer.weight("low", 1e-5), writer.weight("high", 1.0 - 1e-5)], "/inverse")
    rest = writer.op("Sub", [writer.weight("one", 1.0), inside], "/inverse")
    logit = writer.op("Log", [writer.op("Div", [inside, rest], "/inverse")], "/inverse")
    y = linear(writer, logit, "/fc", trained_matrix(rng, 4, 16), rng.normal(0.0, 0.1, 16))
    writer.output(y, "y", [1, _POINTS, 16])

    def near_one(rng: np.random.Generator, scale: float) -> Array:
        return (1.0 / (1.0 + np.exp(-scale * rng.normal(6.0, 2.0, (1, _POINTS, 4))))).astype(np.float32)

    known_good = ("/inverse/Clip", "/inverse/Sub", "/inverse/Div", "/inverse/Log")
    return ZooModel("inverse_sigmoid", writer.model(), feeds(rng, "x", near_one), 0.01, known_good)


def large_coordinates() -> ZooModel:
    """Pixel offsets to the nearest grid point, with coordinates up to 4000: FP16 counts pixels by twos there."""
    rng = np.random.default_rng(32)
    writer = GraphWriter("large_coordinates")
    points = writer.input("points", [1, _POINTS, 2])
    stride = writer.weight("grid.stride", 16.0)
    cell = writer.op("Floor", [writer.op("Div", [points, stride], "/grid")], "/grid")
    corner = writer.op("Mul", [cell, stride], "/grid")
    offset = writer.op("Div", [writer.op("Sub", [points, corner], "/grid"), stride], "/grid")
    writer.output(
        linear(writer, offset, "/fc", trained_matrix(rng, 2, 16), rng.normal(0.0, 0.1, 16)), "y", [1, _POINTS, 16]
    )

    def far(rng: np.random.Generator, scale: float) -> Array:
        cells = rng.integers(int(100 * scale), int(170 * scale), (1, _POINTS, 2))
        return (16.0 * cells + rng.uniform(0.5, 15.5, (1, _POINTS, 2))).astype(np.float32)

    known_good = ("/grid/Div", "/grid/Floor", "/grid/Sub")
    return ZooModel("large_coordinates", writer.model(), feeds(rng, "points", far), 0.01, known_good)


def large_phase() -> ZooModel:
    """Sine and cosine of phases of hundreds of radians, where FP16 resolves a quarter of a radian."""
    rng = np.random.default_rng(33)
    writer = GraphWriter("large_phase")
    time = writer.input("time", [_POINTS, 1])
    rates = writer.weight("rates", 10000.0 ** (-np.arange(16) / 16.0))
    phase = writer.op("Mul", [time, rates], "/embed")
    waves = [writer.op(op, [phase], "/embed") for op in ("Sin", "Cos")]
    y = linear(writer, writer.op("Concat", waves, "/embed", axis=-1), "/fc", trained_matrix(rng, 32, 32), np.zeros(32))
    writer.output(y, "y", [_POINTS, 32])

    def steps(rng: np.random.Generator, scale: float) -> Array:
        return (scale * rng.uniform(100.0, 700.0, (_POINTS, 1))).astype(np.float32)

    known_good = ("/embed/Mul", "/embed/Sin", "/embed/Cos")
    return ZooModel("large_phase", writer.model(), feeds(rng, "time", steps), 0.01, known_good)


def subnormal_weights() -> ZooModel:
    """Weights of 1e-8 to 1e-6 times activations of 2e4: FP16 keeps few bits of the weights, or none."""
    rng = np.random.default_rng(34)
    writer = GraphWriter("subnormal_weights")
    loud = linear(
        writer, writer.input("x", [8, 64]), "/fc1", trained_matrix(rng, 64, 64, 6e3), rng.normal(0.0, 1e3, 64)
    )
    tiny = np.exp(rng.uniform(np.log(1e-8), np.log(1e-6), (64, 64))) * rng.choice([-1.0, 1.0], (64, 64))
    quiet = writer.op("MatMul", [writer.op("Relu", [loud], "/act"), writer.weight("fc2.weight", tiny)], "/fc2")
    y = linear(writer, quiet, "/fc3", trained_matrix(rng, 64, 16, 100.0), rng.normal(0.0, 0.1, 16))
    writer.output(y, "y", [8, 16])
    return ZooModel("subnormal_weights", writer.model(), feeds(rng, "x", _rows), 0.01, ("/fc2/MatMul",))


def log_of_energy() -> ZooModel:
    """A log spectrogram: log(power + 1e-10), where silence is -23 in FP32 and minus infinity in FP16."""
    rng = np.random.default_rng(35)
    writer = GraphWriter("log_of_energy")
    spectrum = writer.input("spectrum", [1, 40, 64])
    power = writer.op("Mul", [spectrum, spectrum], "/mel")
    log = writer.op("Log", [writer.op("Add", [power, writer.weight("mel.eps", 1e-10)], "/mel")], "/mel")
    y = linear(writer, log, "/fc", trained_matrix(rng, 64, 32, 0.2), rng.normal(0.0, 0.1, 32))
    writer.output(y, "y", [1, 40, 32])

    def speech(rng: np.random.Generator, scale: float) -> Array:
        loudness = 10.0 ** rng.uniform(-6.0, 0.5, (1, 1, 64))
        loudness[..., :3] = 0.0
        return (scale * loudness * rng.standard_normal((1, 40, 64))).astype(np.float32)

    return ZooModel(
        "log_of_energy", writer.model(), feeds(rng, "spectrum", speech), 0.01, ("/mel/Mul", "/mel/Add", "/mel/Log")
    )


def healthy_mlp() -> ZooModel:
    """Nothing is wrong: FP16 throughout keeps the tolerance."""
    rng = np.random.default_rng(36)
    writer = GraphWriter("healthy_mlp")
    x = writer.input("x", [8, 64])
    for layer in range(3):
        x = linear(writer, x, f"/layers.{layer}", trained_matrix(rng, 64, 64, 1.3), rng.normal(0.0, 0.1, 64))
        x = erf_gelu(writer, x, f"/layers.{layer}/act")
    writer.output(linear(writer, x, "/head", trained_matrix(rng, 64, 10), rng.normal(0.0, 0.1, 10)), "y", [8, 10])
    return ZooModel("healthy_mlp", writer.model(), feeds(rng, "x", _rows), 0.01, fails=False)


def _rows(rng: np.random.Generator, scale: float) -> Array:
    return (scale * rng.standard_normal((8, 64))).astype(np.float32)
