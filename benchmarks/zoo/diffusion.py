"""A diffusion transformer of any size: python -m benchmarks.zoo.diffusion FOLDER --billions 2 [--stored bf16].

Patches of a latent, a time step by sines and cosines, joint text tokens, and layers whose norms are scaled and shifted
by the time step (adaLN), with normalised queries and keys, as open text-to-image models have them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import helper

from benchmarks.zoo.graph import Graph
from benchmarks.zoo.weight_file import STORED, Array, WeightFile

__all__ = ["feeds", "main", "shape_of", "write_diffusion"]

_CHANNELS, _PATCH, _HEAD, _TEXT, _WAVES = 16, 2, 64, 32, 128
_PER_LAYER = 18  # times the width squared: adaLN 6, attention 4, MLP 8


def shape_of(billions: float) -> tuple[int, int]:
    """Layers and width, one layer for each head."""
    layers = max(1, round((billions * 1e9 / (_PER_LAYER * _HEAD**2)) ** (1 / 3)))
    return layers, layers * _HEAD


class _Transformer(Graph):
    def __init__(self, file: WeightFile, layers: int, width: int) -> None:
        super().__init__(file)
        self.layers, self.width = layers, width

    def norm(self, x: str) -> str:
        """A layer norm without weights, in steps."""
        middle = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1], keepdims=1))
        spread = self.node("ReduceMean", self.node("Mul", middle, middle), axes=[-1], keepdims=1)
        return self.node("Div", middle, self.node("Sqrt", self.node("Add", spread, self.number(1e-6))))

    def rms(self, x: str, name: str) -> str:
        squares = self.node("ReduceMean", self.node("Mul", x, x), axes=[-1], keepdims=1)
        root = self.node("Sqrt", self.node("Add", squares, self.number(1e-6)))
        return self.node("Mul", self.node("Div", x, root), self.vector(name, np.ones(_HEAD, np.float32)))

    def moved(self, x: str, shift: str, scale: str) -> str:
        return self.node("Add", self.node("Mul", self.norm(x), self.node("Add", scale, self.number(1.0))), shift)

    def silu(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def gelu(self, x: str) -> str:
        inside = self.node("Erf", self.node("Mul", x, self.number(2**-0.5)))
        return self.node("Mul", self.node("Mul", x, self.number(0.5)), self.node("Add", inside, self.number(1.0)))

    def time(self) -> str:
        waves = np.exp(-np.log(10_000.0) * np.arange(_WAVES) / _WAVES).astype(np.float32)
        angle = self.node("Mul", self.node("Unsqueeze", "timestep", self.integers(1)), self.vector("waves", waves))
        both = self.node("Concat", self.node("Cos", angle), self.node("Sin", angle), axis=-1)
        inner = self.silu(self.linear(both, "time.0", 2 * _WAVES, self.width))
        return self.silu(self.linear(inner, "time.1", self.width, self.width))

    def layer(self, x: str, time: str, at: str) -> str:
        width, heads = self.width, self.width // _HEAD
        parts = [f"{at}.part{number}" for number in range(6)]
        changes = self.node("Unsqueeze", self.linear(time, f"{at}.ada", width, 6 * width, scale=0.3), self.integers(1))
        self.nodes.append(
            helper.make_node("Split", [changes, self.integers(*[width] * 6)], parts, f"/{at}.split", axis=2)
        )
        shift, scale, gate, shift_2, scale_2, gate_2 = parts
        inside = self.moved(x, shift, scale)
        q, k, v = (self.split_heads(self.linear(inside, f"{at}.{each}", width, width), heads, _HEAD) for each in "qkv")
        seen = self.attention(self.rms(q, f"{at}.q_norm"), self.rms(k, f"{at}.k_norm"), v, _HEAD)
        x = self.node("Add", x, self.node("Mul", gate, self.linear(seen, f"{at}.o", width, width)))
        inner = self.gelu(self.linear(self.moved(x, shift_2, scale_2), f"{at}.up", width, 4 * width))
        return self.node("Add", x, self.node("Mul", gate_2, self.linear(inner, f"{at}.down", 4 * width, width)))

    def run(self) -> None:
        width, values = self.width, _CHANNELS * _PATCH**2
        time = self.time()
        image = self.linear("patches", "image", values, width)
        x = self.node("Concat", self.linear("text", "words", 4 * _HEAD, width), image, axis=1)
        for number in range(self.layers):
            x = self.layer(x, time, f"layers.{number}")
        places = self.node("Slice", x, self.integers(_TEXT), self.integers(1 << 40), self.integers(1))
        made = self.linear(self.norm(places), "last", width, values)
        self.node("Identity", made, name="velocity")


def write_diffusion(folder: Path, layers: int, width: int, *, stored: str = "fp32", seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with WeightFile(folder / "model.onnx.data", stored, seed) as file:
        graph = _Transformer(file, layers, width)
        graph.run()
    values = _CHANNELS * _PATCH**2
    inputs = [
        helper.make_tensor_value_info("patches", file.type, ["batch", "places", values]),
        helper.make_tensor_value_info("text", file.type, ["batch", _TEXT, 4 * _HEAD]),
        helper.make_tensor_value_info("timestep", file.type, ["batch"]),
    ]
    outputs = [helper.make_tensor_value_info("velocity", file.type, ["batch", "places", values])]
    return graph.save(folder / "model.onnx", inputs, outputs)


def feeds(*, stored: str = "fp32", count: int = 4, side: int = 8, seed: int = 1) -> list[dict[str, Array]]:
    """Noise at several times of the way, for a square of so many patches."""
    rng, dtype = np.random.default_rng(seed), STORED[stored][1]
    shapes = {"patches": (1, side**2, _CHANNELS * _PATCH**2), "text": (1, _TEXT, 4 * _HEAD)}
    return [
        {name: rng.standard_normal(shape, np.float32).astype(dtype) for name, shape in shapes.items()}
        | {"timestep": np.array([1000.0 * (index + 0.5) / count]).astype(dtype)}
        for index in range(count)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.zoo.diffusion", description=(__doc__ or "").split(":")[0])
    made.add_argument("folder", type=Path, help="where the model and its inputs go")
    made.add_argument("--billions", type=float, default=0.1, help="parameters")
    made.add_argument("--stored", choices=tuple(STORED), default="fp32", help="the file's types")
    options = made.parse_args(arguments)
    layers, width = shape_of(options.billions)
    path = write_diffusion(options.folder, layers, width, stored=options.stored)
    (options.folder / "inputs").mkdir(exist_ok=True)
    for index, feed in enumerate(feeds(stored=options.stored)):
        given = {
            name: array.astype(np.float32) if array.dtype.isbuiltin != 1 else array for name, array in feed.items()
        }
        np.savez(options.folder / "inputs" / f"{index:04}.npz", **given)  # type: ignore[arg-type]
    print(f"{path}: {layers} layers of width {width}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
