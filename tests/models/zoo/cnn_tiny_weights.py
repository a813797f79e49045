"""A CNN some of whose weights are 1e-8 to 1e-6, behind activations of about 2e4: fine in FP32, subnormal in FP16."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tests.models.zoo.blocks import Array, linear, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import Feed, ZooModel

Kind = Literal["tensors", "channels"]
_CHANNELS = 16
_STAGES = 3
_TINY_CHANNELS = (2, 7, 11)
_LOUD = 4e3  # typical activation before a tiny convolution; the largest come to about 2e4
_PLAIN_GAIN = 20.0  # how loud the other channels stay, so that their weights are FP16 normals


def cnn_tiny_weights(kind: Kind) -> ZooModel:
    """Thirteen convolutions; each of three stages amplifies to some 1e4, shrinks by tiny weights, and recovers.

    `tensors`: all weights of the shrinking convolution are tiny. `channels`: those of three of its output channels are,
    and the next convolution weighs just these channels much. No activation overflows; the three shrinking convolutions
    in FP32 suffice.
    """
    rng = np.random.default_rng({"tensors": 8, "channels": 9}[kind])
    writer = GraphWriter(f"cnn_tiny_{kind}")
    x = _conv(writer, writer.input("image", [1, 3, 32, 32]), "/stem", _kernel(rng, 3, _CHANNELS, 1.0))
    for stage in range(_STAGES):
        scope = f"/stages.{stage}"
        x = _conv(writer, x, f"{scope}/mix", _kernel(rng, _CHANNELS, _CHANNELS, 1.0))
        x = _conv(writer, x, f"{scope}/amplify", _kernel(rng, _CHANNELS, _CHANNELS, _LOUD))
        shrink, recover = _shrinking_pair(rng, kind)
        x = _conv(writer, x, f"{scope}/shrink", shrink)
        x = _conv(writer, x, f"{scope}/recover", recover)
    pooled = writer.op("AveragePool", [x], "/pool", kernel_shape=[8, 8], strides=[8, 8])
    flat = writer.op("Flatten", [pooled], "/pool", axis=1)
    cells = 16 * _CHANNELS
    logits = linear(writer, flat, "/head", trained_matrix(rng, cells, 10, 3.0), rng.normal(0.0, 0.1, 10))
    writer.output(logits, "logits", [1, 10])
    known_good = tuple(f"/stages.{stage}/shrink/Conv" for stage in range(_STAGES))
    return ZooModel(f"cnn_tiny_{kind}", writer.model(), _images(rng), 0.01, known_good)


def _kernel(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> Array:
    """Keeps the scale of a signal through the ReLU that follows."""
    matrix = trained_matrix(rng, inputs * 9, outputs, gain * float(np.sqrt(2.0)))
    kernel: Array = matrix.T.reshape(outputs, inputs, 3, 3)
    return kernel


def _tiny_kernel(rng: np.random.Generator, outputs: int) -> Array:
    shape = (outputs, _CHANNELS, 3, 3)
    magnitudes = np.exp(rng.uniform(np.log(1e-8), np.log(4e-7), shape))
    kernel: Array = (magnitudes * rng.choice([-1.0, 1.0], shape)).astype(np.float32)
    return kernel


def _shrinking_pair(rng: np.random.Generator, kind: Kind) -> tuple[Array, Array]:
    """Two kernels: the first shrinks what comes in at `_LOUD` by tiny weights, the second brings it back to about 1."""
    tiny = list(range(_CHANNELS)) if kind == "tensors" else list(_TINY_CHANNELS)
    shrink = _kernel(rng, _CHANNELS, _CHANNELS, _PLAIN_GAIN / _LOUD)
    shrink[tiny] = _tiny_kernel(rng, len(tiny))
    recover = _kernel(rng, _CHANNELS, _CHANNELS, 1.0 / _PLAIN_GAIN)
    shrunk_by = np.sqrt(np.mean(np.sum(shrink[tiny].astype(np.float64) ** 2, axis=(1, 2, 3))) / 2.0)
    recover[:, tiny] *= np.float32(_PLAIN_GAIN / (_LOUD * shrunk_by))
    return shrink, recover


def _conv(writer: GraphWriter, x: str, scope: str, kernel: Array) -> str:
    weight = writer.weight(f"{scope.strip('/').replace('/', '.')}.weight", kernel)
    return writer.op("Relu", [writer.op("Conv", [x, weight], scope, pads=[1, 1, 1, 1])], scope)


def _images(rng: np.random.Generator) -> list[Feed]:
    """Smooth scenes with a little noise, at different contrasts."""
    rows, columns = np.mgrid[0:32, 0:32] / 32.0
    feeds: list[Feed] = []
    for contrast in np.geomspace(0.5, 1.5, 10):
        waves = [
            np.sin(
                2.0 * np.pi * (rng.uniform(0.5, 3.0) * rows + rng.uniform(0.5, 3.0) * columns) + rng.uniform(0.0, 6.0)
            )
            for _ in range(3)
        ]
        scene = np.stack(waves) + 0.2 * rng.standard_normal((3, 32, 32))
        feeds.append({"image": (contrast * scene[None]).astype(np.float32)})
    return feeds
