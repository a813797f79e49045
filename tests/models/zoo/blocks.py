"""Building blocks that several networks of the zoo share: trained-like weights, linear layers, norms, attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import OUTLIER_WIDTH, OUTLIERS

Array = npt.NDArray[np.float32]


def trained_matrix(rng: np.random.Generator, rows: int, columns: int, gain: float = 1.0) -> Array:
    """A weight matrix whose rows and columns differ in scale, as training leaves them; unit inputs give `gain`."""
    matrix = rng.standard_normal((rows, columns))
    matrix *= rng.lognormal(0.0, 0.3, (rows, 1)) * rng.lognormal(0.0, 0.2, (1, columns))
    matrix *= gain / np.sqrt(np.mean(np.sum(matrix**2, axis=0)))
    return matrix.astype(np.float32)


def linear(writer: GraphWriter, x: str, scope: str, weight: npt.ArrayLike, bias: npt.ArrayLike) -> str:
    """MatMul and Add."""
    key = scope.strip("/").replace("/", ".")
    product = writer.op("MatMul", [x, writer.weight(f"{key}.weight", weight)], scope)
    return writer.op("Add", [writer.weight(f"{key}.bias", bias), product], scope)


def decomposed_layer_norm(writer: GraphWriter, x: str, scope: str, gamma: npt.ArrayLike, beta: npt.ArrayLike) -> str:
    """LayerNorm over the last axis in the nine nodes that exporters before opset 17 write."""
    key = scope.strip("/").replace("/", ".")
    mean = writer.op("ReduceMean", [x], scope, axes=[-1])
    centred = writer.op("Sub", [x, mean], scope)
    squared = writer.op("Pow", [centred, writer.weight(f"{key}.two", 2.0)], scope)
    variance = writer.op("ReduceMean", [squared], scope, axes=[-1])
    guarded = writer.op("Add", [variance, writer.weight(f"{key}.eps", 1e-5)], scope)
    deviation = writer.op("Sqrt", [guarded], scope)
    normal = writer.op("Div", [centred, deviation], scope)
    scaled = writer.op("Mul", [normal, writer.weight(f"{key}.weight", gamma)], scope)
    return writer.op("Add", [scaled, writer.weight(f"{key}.bias", beta)], scope)


def decomposed_rms_norm(writer: GraphWriter, x: str, scope: str, gamma: npt.ArrayLike) -> str:
    """RMSNorm over the last axis in seven nodes, with 1 / sqrt as its exporters write it."""
    key = scope.strip("/").replace("/", ".")
    square = writer.op("Pow", [x, writer.weight(f"{key}.two", 2.0)], scope)
    mean = writer.op("ReduceMean", [square], scope, axes=[-1])
    deviation = writer.op("Sqrt", [writer.op("Add", [mean, writer.weight(f"{key}.eps", 1e-6)], scope)], scope)
    inverse = writer.op("Div", [writer.weight(f"{key}.one", 1.0), deviation], scope)
    normal = writer.op("Mul", [x, inverse], scope)
    return writer.op("Mul", [writer.weight(f"{key}.weight", gamma), normal], scope)


def erf_gelu(writer: GraphWriter, x: str, scope: str) -> str:
    """x * (1 + erf(x / sqrt(2))) / 2 in five nodes."""
    key = scope.strip("/").replace("/", ".")
    scaled = writer.op("Div", [x, writer.weight(f"{key}.sqrt_two", np.sqrt(2.0))], scope)
    error = writer.op("Erf", [scaled], scope)
    shifted = writer.op("Add", [error, writer.weight(f"{key}.one", 1.0)], scope)
    product = writer.op("Mul", [x, shifted], scope)
    return writer.op("Mul", [product, writer.weight(f"{key}.half", 0.5)], scope)


def tanh_gelu(writer: GraphWriter, x: str, scope: str) -> str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) in eight nodes."""
    key = scope.strip("/").replace("/", ".")
    cube = writer.op("Pow", [x, writer.weight(f"{key}.three", 3.0)], scope)
    scaled_cube = writer.op("Mul", [cube, writer.weight(f"{key}.cubic", 0.044715)], scope)
    argument = writer.op("Add", [x, scaled_cube], scope)
    scaled = writer.op("Mul", [argument, writer.weight(f"{key}.slope", np.sqrt(2.0 / np.pi))], scope)
    bent = writer.op("Tanh", [scaled], scope)
    shifted = writer.op("Add", [bent, writer.weight(f"{key}.one", 1.0)], scope)
    half = writer.op("Mul", [x, writer.weight(f"{key}.half", 0.5)], scope)
    return writer.op("Mul", [half, shifted], scope)


@dataclass(frozen=True)
class ResidualStream:
    """The scales of a residual stream in which a few channels are outliers, as in real transformers."""

    width: int
    typical: float
    outliers: dict[int, float]

    @property
    def deviation(self) -> float:
        """What a LayerNorm measures once the outliers are there."""
        return float(np.sqrt(self.typical**2 + sum(value**2 for value in self.outliers.values()) / self.width))

    def gamma(self, rng: np.random.Generator, deviation: float) -> Array:
        """A norm's weight: undoes the squeeze that outliers put on the other channels, and mutes the outliers."""
        gamma: Array = (rng.lognormal(0.0, 0.2, self.width) * deviation / self.typical).astype(np.float32)
        for channel in self.outliers:
            gamma[channel] = 0.05
        return gamma

    def bias(self, rng: np.random.Generator, with_outliers: bool) -> Array:
        bias = rng.normal(0.0, 0.05 * self.typical, self.width)
        if with_outliers:
            for channel, value in self.outliers.items():
                bias[channel] = value
        return bias.astype(np.float32)


def outlier_gamma(rng: np.random.Generator) -> Array:
    """A norm's weight for `outlier_tokens`: lifts the other channels to about 1 and mutes the outliers."""
    gamma = 10.0 * rng.lognormal(0.0, 0.2, OUTLIER_WIDTH)
    gamma[list(OUTLIERS)] = 0.05
    return gamma.astype(np.float32)
