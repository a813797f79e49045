"""A probe: a model of one node or of few, with inputs drawn from its name."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.formats import Format
from halfwise.emulation.profiles.hypotheses import CONVERSION

__all__ = ["Array", "Draw", "Form", "every_number", "exact", "floats", "integers", "normal", "pairs", "uniform"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Draw:
    """How one input is made. `constant`: an initializer of the model rather than an input."""

    kind: str  # normal, uniform, every (all numbers of FP16), bits (random numbers of FP16), exact, floats, integers
    shape: tuple[int, ...] = ()
    low: float = 0.0
    high: float = 1.0
    values: tuple[int, ...] = ()
    constant: bool = False
    bits: int = 0  # of an exact draw

    def make(self, rng: np.random.Generator) -> Array:
        if self.kind == "integers":
            return np.array(self.values, dtype=np.int64).reshape(self.shape or (len(self.values),))
        if self.kind == "every":
            return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        if self.kind == "bits":
            drawn = rng.integers(0, 1 << 16, size=self.shape, dtype=np.uint16).view(np.float16)
            return drawn.astype(np.float32)
        if self.kind == "exact":
            whole = rng.integers(-(1 << self.bits) // 4, 1 << self.bits, size=self.shape)
            return (whole * 2.0**-self.bits).astype(np.float32)
        if self.kind == "floats":
            return _around_fp16(rng)
        if self.kind == "uniform":
            real = self.low + (self.high - self.low) * rng.random(self.shape)
        else:
            real = self.low + self.high * rng.standard_normal(self.shape)
        return np.asarray(real).astype(np.float16).astype(np.float32)


def normal(*shape: int, mean: float = 0.0, scale: float = 1.0, constant: bool = False) -> Draw:
    return Draw("normal", shape, mean, scale, constant=constant)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, constant: bool = False) -> Draw:
    return Draw("uniform", shape, low, high, constant=constant)


def exact(*shape: int, terms: int, constant: bool = False) -> Draw:
    """Multiples of a power of two, so small that FP32 adds `terms` products of two without any rounding.

    The order of an FP32 sum is then of no consequence, and every rounding to FP16 shows.
    """
    return Draw("exact", shape, constant=constant, bits=min(8, (23 - max(terms - 1, 1).bit_length()) // 2))


def floats() -> Draw:
    """FP32 numbers of every size that matters to FP16: ties, denormals, and what lies beyond its range."""
    return Draw("floats")


def _around_fp16(rng: np.random.Generator) -> Array:
    numbers = np.arange(1 << 15, dtype=np.uint16).view(np.float16).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    between = (numbers[:-1] + numbers[1:]) / 2  # ties
    beyond = 65504.0 + np.array([0.0, 15.0, 16.0, 17.0, 1e3, 1e4, 1e6, 1e30])
    size = numbers[:-1] + (numbers[1:] - numbers[:-1]) * rng.random(len(numbers) - 1)
    magnitudes = np.concatenate([numbers, between, size, beyond]).astype(np.float32)
    return np.concatenate([magnitudes, -magnitudes])


def every_number() -> Draw:
    return Draw("every", (1 << 16,))


def pairs(count: int = 1 << 16) -> Draw:
    return Draw("bits", (count,))


def integers(*values: int, shape: tuple[int, ...] = ()) -> Draw:
    return Draw("integers", shape, values=values, constant=True)


@dataclass(frozen=True)
class Form:
    """One operator at one size. `length` is how many terms a result sums up, 0 where it sums nothing."""

    name: str
    op: str
    inputs: tuple[Draw | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    outputs: int = 1
    opset: int = 20
    nodes: tuple[tuple[str, str, str], ...] = ()  # of a form that fuses: operator, what it reads, what it makes
    kind: str = ""  # of the fusion that may happen, as `Fusion.kind` names it
    io: Format = Format.FP16  # of its inputs and outputs: FP32 where the conversion itself is looked at

    @property
    def fused(self) -> bool:
        return bool(self.nodes)

    @property
    def rule(self) -> str:
        """What it teaches: how an operator computes, whether nodes become one kernel, or how FP32 becomes FP16."""
        return f"fusion:{self.kind or self.name}" if self.fused else CONVERSION if self.io is Format.FP32 else self.op

    def model(self) -> onnx.ModelProto:
        """The model in FP32; the values of its weights are numbers of FP16."""
        arrays = self.arrays()
        names = ["" if draw is None else f"x{i}" for i, draw in enumerate(self.inputs)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        if self.nodes:
            nodes = [
                helper.make_node(op, reads.split(), makes.split(), f"n{i}", **self.attributes.get(op, {}))
                for i, (op, reads, makes) in enumerate(self.nodes)
            ]
        else:
            nodes = [helper.make_node(self.op, names, outputs, "node", **self.attributes)]
        inputs, weights = [], []
        for name, draw, array in zip(names, self.inputs, arrays, strict=True):
            if draw is None or array is None:
                continue
            if draw.constant:
                weights.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        kinds = [TensorProto.INT64 if self.op in ("ArgMax", "ArgMin") or (self.op == "TopK" and i) else
                 TensorProto.FLOAT for i in range(self.outputs)]  # fmt: skip
        infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)]
        graph = helper.make_graph(nodes, "form", inputs, infos, weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(proto)

    def feed(self) -> dict[str, Array]:
        """The inputs in FP32; their values are numbers of FP16."""
        return {
            f"x{i}": array
            for i, (draw, array) in enumerate(zip(self.inputs, self.arrays(), strict=True))
            if draw is not None and array is not None and not draw.constant
        }

    def arrays(self) -> list[Array | None]:
        """Inputs and weights in their order."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [None if draw is None else draw.make(rng) for draw in self.inputs]
