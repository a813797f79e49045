"""A decoder of any size: python -m benchmarks.zoo.decoder FOLDER --billions 0.24 [--stored bf16] [--planted ...].

Grouped-query attention with a key/value cache, rotary embeddings and RMS norms (in steps, or as the operators of
opset 23), a gated MLP, and one embedding that the output layer reads too. `--planted` names what goes wrong in FP16:
`massive` (a residual stream of 1e5 at the first token), `tiny` (channels below FP16's range that a later layer brings
back), `mask` (a filler of -3.4e38).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from benchmarks.zoo.graph import Graph
from benchmarks.zoo.weight_file import BLOCK, QUANTISED, STORED, Array, WeightFile

__all__ = ["PLANTED", "Sizes", "feedback", "feeds", "main", "parser", "save_feeds", "stream", "write_decoder"]

PLANTED = ("massive", "tiny", "mask")
_ASPECT = 72  # width of the model per layer
_BEGIN = 0  # the token that starts every sequence
_TINY = 2.0**-26
_MASSIVE = 1.2e5


@dataclass(frozen=True)
class Sizes:
    """The shape of a decoder."""

    layers: int
    width: int
    heads: int
    shared: int  # heads of keys and values
    inner: int
    vocabulary: int

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        attention = self.width * (2 * self.width + 2 * self.shared * self.head)
        return self.vocabulary * self.width + self.layers * (attention + 3 * self.width * self.inner)

    @classmethod
    def of(cls, billions: float, vocabulary: int = 32_000) -> Sizes:
        """The narrowest of about so many parameters whose width is in proportion to its layers."""
        for width in range(128, 1 << 15, 128):
            heads = width // (128 if width >= 2048 else 64)
            shared = next(count for count in (heads // 4, heads // 3, heads // 2, 1) if count and not heads % count)
            one = cls(1, width, heads, shared, -(-width * 11 // 4 // 64) * 64, vocabulary)
            per_layer = one.parameters - vocabulary * width
            layers = max(1, round((billions * 1e9 - vocabulary * width) / per_layer))
            if layers * _ASPECT <= width:
                break
        return cls(layers, width, heads, shared, one.inner, vocabulary)


class _Decoder(Graph):
    """Nodes and weights of one decoder."""

    def __init__(self, sizes: Sizes, file: WeightFile, operators: bool, planted: Sequence[str]) -> None:
        super().__init__(file)
        self.sizes, self.operators, self.planted = sizes, operators, planted
        self.opset = 23 if operators else 19 if file.stored == "fp8" else 17

    # -- parts ------------------------------------------------------------------------------------------------------

    def norm(self, x: str, where: str) -> str:
        self.weights.append(self.file.given(f"{where}.weight", np.ones(self.sizes.width, np.float32)))
        weight = f"{where}.weight"
        if self.operators:
            return self.node("RMSNormalization", x, weight, axis=-1, epsilon=1e-6)
        squares = self.node("Pow", x, self.number(2.0))
        axes: dict[str, Any] = {} if self.opset > 17 else {"axes": [-1]}
        given = [] if axes else [self.integers(-1)]
        mean = self.node("Add", self.node("ReduceMean", squares, *given, **axes, keepdims=1), self.number(1e-6))
        return self.node("Mul", weight, self.node("Mul", x, self.node("Reciprocal", self.node("Sqrt", mean))))

    def product(self, x: str, name: str, rows: int, columns: int, plant: Any = None) -> str:
        """With a weight, which is quantised where the file's are."""
        if self.file.stored not in ("int4", *QUANTISED) or (plant is not None and self.planted):
            return self.node("MatMul", x, self.matrix(name, rows, columns, plant))
        if self.file.stored in QUANTISED:
            table = self.file.quantised(name, rows, columns, rows**-0.5)
            self.weights += table
            return self.node("MatMul", x, self.node("DequantizeLinear", *(each.name for each in table), axis=1))
        words, scales = self.file.packed(name, rows, columns, rows**-0.5)
        self.weights += [words, scales]
        sizes: dict[str, Any] = {"K": rows, "N": columns, "bits": 4, "block_size": BLOCK}
        return self.node("MatMulNBits", x, words.name, scales.name, domain="com.microsoft", **sizes)

    def heads(self, made: str, count: int) -> str:
        apart = self.node("Reshape", made, self.integers(0, 0, count, self.sizes.head))
        return self.node("Transpose", apart, perm=[0, 2, 1, 3])

    def turned(self, x: str) -> str:
        """With the rotary embedding."""
        if self.operators:
            return self.node("RotaryEmbedding", x, "cosines", "sines", "position_ids")
        half, end = self.sizes.head // 2, 1 << 40
        low = self.node("Slice", x, self.integers(0), self.integers(half), self.integers(3))
        high = self.node("Slice", x, self.integers(half), self.integers(end), self.integers(3))
        other = self.node("Concat", self.node("Neg", high), low, axis=-1)
        return self.node("Add", self.node("Mul", x, "cos"), self.node("Mul", other, "sin"))

    def repeated(self, x: str) -> str:
        """Each head of keys or values once for every head that reads it."""
        sizes = self.sizes
        wide = self.node("Expand", self.node("Unsqueeze", x, self.integers(2)),
                         self.integers(1, 1, sizes.heads // sizes.shared, 1, 1))  # fmt: skip
        return self.node("Reshape", wide, self.integers(0, sizes.heads, -1, sizes.head))

    def of_layer(self, x: str, layer: int) -> str:
        sizes, at = self.sizes, f"layers.{layer}.attention"
        narrow = sizes.shared * sizes.head
        tiny = "tiny" in self.planted and layer == sizes.layers // 2

        def quiet(rows: Array, first: int) -> None:
            rows[:, :2] *= np.float32(_TINY if tiny else 1.0)

        def loud(rows: Array, first: int) -> None:
            for group in range(sizes.heads // sizes.shared if tiny else 0):
                for row in (group * sizes.head, group * sizes.head + 1):
                    if first <= row < first + len(rows):
                        rows[row - first] *= np.float32(1 / _TINY)

        q = self.heads(self.product(x, f"{at}.q", sizes.width, sizes.width), sizes.heads)
        k = self.heads(self.product(x, f"{at}.k", sizes.width, narrow), sizes.shared)
        v = self.heads(self.product(x, f"{at}.v", sizes.width, narrow, quiet), sizes.shared)
        k = self.node("Concat", f"past_key_values.{layer}.key", self.turned(k), name=f"present.{layer}.key", axis=2)
        v = self.node("Concat", f"past_key_values.{layer}.value", v, name=f"present.{layer}.value", axis=2)
        keys = self.node("Transpose", self.repeated(k), perm=[0, 1, 3, 2])
        scores = self.node("Mul", self.node("MatMul", self.turned(q), keys), self.number(sizes.head**-0.5))
        shares = self.node("Softmax", self.node("Add", scores, "mask"), axis=-1)
        together = self.node("Transpose", self.node("MatMul", shares, self.repeated(v)), perm=[0, 2, 1, 3])
        flat = self.node("Reshape", together, self.integers(0, 0, sizes.width))
        return self.product(flat, f"{at}.o", sizes.width, sizes.width, loud)

    def mlp(self, x: str, layer: int) -> str:
        sizes, at = self.sizes, f"layers.{layer}.mlp"
        massive = "massive" in self.planted and layer == min(1, sizes.layers - 1)

        def opens(rows: Array, first: int) -> None:  # by the channel that only the first token has
            if massive and first == 0:
                rows[0, 0] = 1.0

        def writes(rows: Array, first: int) -> None:
            if massive and first == 0:
                rows[0, 1] = _MASSIVE / sizes.width

        gate = self.product(x, f"{at}.gate", sizes.width, sizes.inner, opens)
        up = self.product(x, f"{at}.up", sizes.width, sizes.inner, opens)
        gated = self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), up)
        return self.product(gated, f"{at}.down", sizes.inner, sizes.width, writes)

    def positions(self) -> None:
        """The mask, and the cosines and sines of the positions."""
        sizes, kind = self.sizes, self.file.type
        keys = self.node("Unsqueeze", self.node("Sub", self.node("CumSum", "attention_mask", self.integers(1)),
                                                self.integers(1)), self.integers(1))  # fmt: skip
        seen = self.node("LessOrEqual", keys, self.node("Unsqueeze", "position_ids", self.integers(2)))
        filler = -3.3e38 if "mask" in self.planted and self.file.dtype != np.float16 else -6e4
        biased = self.node("Where", seen, self.number(0.0), self.number(filler))
        self.node("Unsqueeze", biased, self.integers(1), name="mask")
        frequencies = (10_000.0 ** (-np.arange(0, sizes.head, 2) / sizes.head)).astype(np.float32)
        if self.operators:
            angles = np.arange(4096)[:, None] * frequencies
            self.weights.append(self.file.given("cosines", np.cos(angles)))
            self.weights.append(self.file.given("sines", np.sin(angles)))
            return
        self.weights.append(onnx.numpy_helper.from_array(frequencies, "frequencies"))
        places = self.node("Cast", self.node("Unsqueeze", "position_ids", self.integers(1, 3)),
                           to=onnx.TensorProto.FLOAT)  # fmt: skip
        angle = self.node("Mul", places, "frequencies")
        twice = self.node("Concat", angle, angle, axis=-1)
        for op, name in (("Cos", "cos"), ("Sin", "sin")):
            self.node("Cast", self.node(op, twice), name=name, to=kind)

    def run(self) -> None:
        sizes = self.sizes
        massive = "massive" in self.planted

        def begin(rows: Array, first: int) -> None:
            rows[:, 0] = 0.0
            if massive and first == 0:
                rows[_BEGIN] = 0.0
                rows[_BEGIN, 0] = 1000.0

        self.weights.append(self.file.random("embedding", (sizes.vocabulary, sizes.width), 0.5, begin))
        self.positions()
        x = self.node("Gather", "embedding", "input_ids", axis=0)
        for layer in range(sizes.layers):
            x = self.node("Add", x, self.of_layer(self.norm(x, f"layers.{layer}.before_attention"), layer))
            x = self.node("Add", x, self.mlp(self.norm(x, f"layers.{layer}.before_mlp"), layer))
        turned = self.node("Transpose", "embedding", perm=[1, 0])
        self.node("MatMul", self.norm(x, "norm"), turned, name="logits")


def write_decoder(
    folder: Path,
    sizes: Sizes,
    *,
    stored: str = "fp32",
    operators: bool = False,
    planted: Sequence[str] = (),
    seed: int = 0,
) -> Path:
    """`model.onnx` and `model.onnx.data` in the folder; at most a few megabytes of weights are held."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    with WeightFile(folder / "model.onnx.data", stored, seed) as file:
        graph = _Decoder(sizes, file, operators, planted)
        graph.run()
        kind = file.type
    integer = onnx.TensorProto.INT64
    cache = [(f"{layer}.{part}", layer, part) for layer in range(sizes.layers) for part in ("key", "value")]
    inputs = [
        helper.make_tensor_value_info("input_ids", integer, ["batch", "tokens"]),
        helper.make_tensor_value_info("attention_mask", integer, ["batch", "all"]),
        helper.make_tensor_value_info("position_ids", integer, ["batch", "tokens"]),
        *(
            helper.make_tensor_value_info(f"past_key_values.{n}", kind, ["batch", sizes.shared, "past", sizes.head])
            for n, _, _ in cache
        ),
    ]
    outputs = [
        helper.make_tensor_value_info("logits", kind, ["batch", "tokens", sizes.vocabulary]),
        *(
            helper.make_tensor_value_info(f"present.{n}", kind, ["batch", sizes.shared, "all", sizes.head])
            for n, _, _ in cache
        ),
    ]
    return graph.save(path, inputs, outputs, graph.opset)


def feeds(
    sizes: Sizes, *, stored: str = "fp32", count: int = 4, tokens: int = 32, past: int = 0, seed: int = 1
) -> list[dict[str, Array]]:
    """`tokens` at once behind a cache of `past`: a prefill, or a step of decoding."""
    rng, dtype, found = np.random.default_rng(seed), STORED[stored][1], []
    for _ in range(count):
        ids = rng.integers(1, sizes.vocabulary, (1, tokens))
        if not past:
            ids[:, 0] = _BEGIN
        feed: dict[str, Array] = {
            "input_ids": ids,
            "attention_mask": np.ones((1, past + tokens), np.int64),
            "position_ids": np.arange(past, past + tokens)[None],
        }
        for layer in range(sizes.layers):
            for part in ("key", "value"):
                shape = (1, sizes.shared, past, sizes.head)
                feed[f"past_key_values.{layer}.{part}"] = rng.standard_normal(shape, np.float32).astype(dtype)
        found.append(feed)
    return found


def stream(sizes: Sizes, steps: int, *, stored: str = "fp32", count: int = 2, seed: int = 1) -> list[dict[str, Array]]:
    """`count` texts, a token at a time, each with an empty cache: whoever runs them hands the cache on."""
    found = []
    for text in range(count):
        (whole,) = feeds(sizes, stored=stored, count=1, tokens=steps, seed=seed + text)
        for step in range(steps):
            part = {name: whole[name][:, step : step + 1] for name in ("input_ids", "position_ids")}
            found.append({**whole, **part, "attention_mask": np.ones((1, step + 1), np.int64)})
    return found


def feedback(sizes: Sizes) -> list[str]:
    """Which output is which input of the next step, as halfwise takes it."""
    parts = [f"{layer}.{part}" for layer in range(sizes.layers) for part in ("key", "value")]
    return [f"present.{part}=past_key_values.{part}" for part in parts]


def save_feeds(
    folder: Path, sizes: Sizes, *, stored: str = "fp32", tokens: int = 32, past: int = 0, steps: int = 0
) -> Path:
    """The same as files that halfwise reads; a stream of so many `steps`, where there are any."""
    folder.mkdir(exist_ok=True)
    found = stream(sizes, steps, stored=stored) if steps else feeds(sizes, stored=stored, tokens=tokens, past=past)
    for index, feed in enumerate(found):
        as_given: dict[str, Any] = {n: a if a.dtype.isbuiltin == 1 else a.astype(np.float32) for n, a in feed.items()}
        np.savez(folder / f"{index:04}.npz", **as_given)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    sizes = Sizes.of(options.billions, options.vocabulary)
    path = write_decoder(
        options.folder, sizes, stored=options.stored, operators=options.operators, planted=options.planted
    )
    lengths = {"tokens": options.tokens, "past": options.past, "steps": options.stream}
    save_feeds(options.folder / "inputs", sizes, stored=options.stored, **lengths)
    if options.stream:
        print(f"--rollout {options.stream} " + " ".join(f"--feedback {each}" for each in feedback(sizes)))
    data = path.with_name("model.onnx.data").stat().st_size
    print(f"{path}: {sizes.parameters / 1e9:.2f} billion parameters, {data / 1e9:.2f} GB, {sizes}")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.zoo.decoder", description="Write a decoder of any size.")
    made.add_argument("folder", type=Path, help="where the model and its inputs go")
    made.add_argument("--billions", type=float, default=0.24, help="parameters")
    made.add_argument("--vocabulary", type=int, default=32_000)
    made.add_argument("--stored", choices=STORED, default="fp32", help="the file's types")
    made.add_argument("--operators", action="store_true", help="RMS norms and rotary embeddings as operators")
    made.add_argument("--planted", nargs="*", choices=PLANTED, default=(), help="what goes wrong in FP16")
    made.add_argument("--tokens", type=int, default=32)
    made.add_argument("--stream", type=int, default=0, help="tokens of each text, given one by one")
    made.add_argument("--past", type=int, default=0, help="length of the cache that the inputs come with")
    return made


if __name__ == "__main__":
    sys.exit(main())
