"""An encoder-decoder of any size: python -m benchmarks.zoo.encoder_decoder FOLDER --billions 0.7 [--stored bf16].

As T5 is built: RMS norms in steps, scores that are not scaled, gated MLPs, and one embedding with three readers, the
encoder, the decoder and the output layer. The decoder sees its own past by a causal mask, and the encoder's states.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.zoo.graph import Graph
from benchmarks.zoo.weight_file import STORED, Array, WeightFile

__all__ = ["feeds", "main", "shape_of", "write_encoder_decoder"]

_HEAD = 64
_PER_LAYER = 28  # times the width squared: encoder 4 + 8, decoder 8 + 8
_ASPECT = 64  # width of the model per layer


def shape_of(billions: float, vocabulary: int) -> tuple[int, int]:
    """Layers, of the encoder and of the decoder, and width."""
    for layers in range(2, 200):
        width = layers * _ASPECT
        if vocabulary * width + layers * _PER_LAYER * width**2 >= billions * 1e9:
            break
    return layers, width


class _EncoderDecoder(Graph):
    def __init__(self, file: WeightFile, layers: int, width: int) -> None:
        super().__init__(file)
        self.layers, self.width = layers, width

    def norm(self, x: str, name: str) -> str:
        squares = self.node("ReduceMean", self.node("Pow", x, self.number(2.0)), axes=[-1], keepdims=1)
        root = self.node("Sqrt", self.node("Add", squares, self.number(1e-6)))
        return self.node("Mul", self.vector(name, np.ones(self.width, np.float32)), self.node("Div", x, root))

    def attends(self, x: str, to: str, mask: str, at: str) -> str:
        """Scores as they are: the weights of the queries hold their scale."""
        width, heads = self.width, self.width // _HEAD
        scales = {"q": _HEAD**-0.5, "k": 1.0, "v": 1.0}
        q, k, v = (
            self.split_heads(
                self.node("MatMul", source, self.matrix(f"{at}.{each}", width, width, scale=scales[each])), heads, _HEAD
            )
            for each, source in (("q", x), ("k", to), ("v", to))
        )
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        shares = self.node("Softmax", self.node("Add", scores, mask) if mask else scores, axis=-1)
        made = self.node("Transpose", self.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        together = self.node("Reshape", made, self.integers(0, 0, width))
        return self.node("MatMul", together, self.matrix(f"{at}.o", width, width))

    def mlp(self, x: str, at: str) -> str:
        inner = self.width * 8 // 3 // 64 * 64
        gate, up = (self.node("MatMul", x, self.matrix(f"{at}.{e}", self.width, inner)) for e in ("gate", "up"))
        warm = self.node("Add", self.node("Tanh", self.node("Mul", gate, self.number(0.8))), self.number(1.0))
        gated = self.node("Mul", self.node("Mul", self.node("Mul", gate, self.number(0.5)), warm), up)
        return self.node("MatMul", gated, self.matrix(f"{at}.down", inner, self.width))

    def filler(self, seen: str) -> str:
        return self.node("Where", seen, self.number(0.0), self.number(-6e4))

    def run(self, vocabulary: int) -> None:
        self.weights.append(self.file.random("embedding", (vocabulary, self.width), 0.5))
        seen = self.node(
            "Cast", self.node("Unsqueeze", "attention_mask", self.integers(1, 2)), to=onnx.TensorProto.BOOL
        )
        visible = self.filler(seen)
        x = self.node("Gather", "embedding", "input_ids", axis=0)
        for number in range(self.layers):
            at = f"encoder.{number}"
            inside = self.norm(x, f"{at}.norm_1")
            x = self.node("Add", x, self.attends(inside, inside, visible, f"{at}.attention"))
            x = self.node("Add", x, self.mlp(self.norm(x, f"{at}.norm_2"), f"{at}.mlp"))
        states = self.norm(x, "encoder.norm")
        ones = self.node(
            "Cast", self.node("GreaterOrEqual", "decoder_input_ids", self.integers(0)), to=onnx.TensorProto.INT64
        )
        place = self.node("CumSum", ones, self.integers(1))
        past = self.filler(
            self.node(
                "GreaterOrEqual",
                self.node("Unsqueeze", place, self.integers(1, 3)),
                self.node("Unsqueeze", place, self.integers(1, 2)),
            )
        )
        x = self.node("Gather", "embedding", "decoder_input_ids", axis=0)
        for number in range(self.layers):
            at = f"decoder.{number}"
            inside = self.norm(x, f"{at}.norm_1")
            x = self.node("Add", x, self.attends(inside, inside, past, f"{at}.attention"))
            x = self.node("Add", x, self.attends(self.norm(x, f"{at}.norm_2"), states, visible, f"{at}.cross"))
            x = self.node("Add", x, self.mlp(self.norm(x, f"{at}.norm_3"), f"{at}.mlp"))
        last = self.node("Mul", self.norm(x, "decoder.norm"), self.number(self.width**-0.5))
        self.node("MatMul", last, self.node("Transpose", "embedding", perm=[1, 0]), name="logits")


def write_encoder_decoder(
    folder: Path, layers: int, width: int, vocabulary: int, *, stored: str = "fp32", seed: int = 0
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with WeightFile(folder / "model.onnx.data", stored, seed) as file:
        graph = _EncoderDecoder(file, layers, width)
        graph.run(vocabulary)
    names = {"input_ids": "source", "attention_mask": "source", "decoder_input_ids": "target"}
    inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, ["batch", d]) for n, d in names.items()]
    outputs = [helper.make_tensor_value_info("logits", file.type, ["batch", "target", vocabulary])]
    return graph.save(folder / "model.onnx", inputs, outputs)


def feeds(
    vocabulary: int, *, count: int = 4, source: int = 24, target: int = 12, seed: int = 1
) -> list[dict[str, Array]]:
    """Texts of one length, the last quarter of each but the first padded."""
    rng, found = np.random.default_rng(seed), []
    for index in range(count):
        mask = np.ones((1, source), np.int64)
        mask[:, source - source // 4 * (index > 0) :] = 0
        ids = rng.integers(1, vocabulary, (1, source))
        found.append(
            {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": rng.integers(1, vocabulary, (1, target))}
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo.encoder_decoder", description=(__doc__ or "").split(":")[0]
    )
    made.add_argument("folder", type=Path, help="where the model and its inputs go")
    made.add_argument("--billions", type=float, default=0.1, help="parameters")
    made.add_argument("--vocabulary", type=int, default=32_000)
    made.add_argument("--stored", choices=tuple(STORED), default="fp32", help="the file's types")
    options = made.parse_args(arguments)
    layers, width = shape_of(options.billions, options.vocabulary)
    path = write_encoder_decoder(options.folder, layers, width, options.vocabulary, stored=options.stored)
    (options.folder / "inputs").mkdir(exist_ok=True)
    for index, feed in enumerate(feeds(options.vocabulary)):
        np.savez(options.folder / "inputs" / f"{index:04}.npz", **feed)  # type: ignore[arg-type]
    print(f"{path}: {layers} layers of width {width} on either side")
    return 0


if __name__ == "__main__":
    sys.exit(main())
