"""Small decoders whose residual stream reaches 3e5 in two channels, as those of some trained language models do; their
RMSNorms in the spellings that exporters write."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.models.zoo.graph_writer import GraphWriter

__all__ = ["NORMS", "decoder", "decoder_inputs", "interrupted"]

NORMS = ("operator", "divided", "square by product", "reciprocal", "power", "sum", "cast")
WIDTH, HEADS, TOKENS = 32, 2, 8
EPSILON = 1e-6


def decoder(norm: str, layers: int = 2, massive: float = 3e5, *, behind: bool = False) -> onnx.ModelProto:
    """From embeddings to logits: attention and a gated MLP a layer, a norm in front of each, or `behind` each, too."""
    rng = np.random.default_rng(17)
    writer = GraphWriter("decoder")
    x = writer.input("embeddings", [1, TOKENS, WIDTH])

    def matrix(name: str, rows: int, columns: int, size: float = 1.0) -> str:
        return writer.weight(name, (size * rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32))

    for layer in range(layers):
        at = f"/layers.{layer}"
        normal = _norm(writer, norm, x, f"{at}/norm1")
        parts = []
        for part in "qkv":
            flat = writer.op("MatMul", [normal, matrix(f"{layer}.{part}", WIDTH, WIDTH)], f"{at}/{part}")
            shape = writer.weight(f"{layer}.{part}.shape", [0, 0, HEADS, WIDTH // HEADS], np.int64)
            split = writer.op("Reshape", [flat, shape], f"{at}/{part}")
            order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            parts.append(writer.op("Transpose", [split], f"{at}/{part}", perm=order))
        scores = writer.op("MatMul", parts[:2], at)
        scaled = writer.op("Mul", [scores, writer.weight(f"{layer}.scale", 0.25)], at)
        mixed = writer.op("MatMul", [writer.op("Softmax", [scaled], at, axis=-1), parts[2]], at)
        back = writer.weight(f"{layer}.back", [0, 0, WIDTH], np.int64)
        joined = writer.op("Reshape", [writer.op("Transpose", [mixed], at, perm=[0, 2, 1, 3]), back], at)
        x = writer.op("Add", [x, writer.op("MatMul", [joined, matrix(f"{layer}.o", WIDTH, WIDTH, 5.0)], f"{at}/o")], at)
        normal = _norm(writer, norm, x, f"{at}/norm2")
        gate = writer.op("MatMul", [normal, matrix(f"{layer}.gate", WIDTH, 2 * WIDTH)], f"{at}/gate")
        up = writer.op("MatMul", [normal, matrix(f"{layer}.up", WIDTH, 2 * WIDTH)], f"{at}/up")
        silu = writer.op("Mul", [gate, writer.op("Sigmoid", [gate], at)], at)
        down = 5.0 * rng.standard_normal((2 * WIDTH, WIDTH)) / np.sqrt(2 * WIDTH)
        if layer == 0:
            down[:, 3] *= massive / 6
            down[:, 17] *= massive / 15
        hidden = writer.op("Mul", [silu, up], at)
        made = writer.op("MatMul", [hidden, writer.weight(f"{layer}.down", down.astype(np.float32))], f"{at}/down")
        x = writer.op("Add", [x, _norm(writer, norm, made, f"{at}/norm3") if behind else made], at)
    logits = writer.op("MatMul", [_norm(writer, norm, x, "/norm"), matrix("head", WIDTH, 40)], "/head")
    writer.output(logits, "logits", [1, TOKENS, 40])
    return writer.model(opset=23 if norm == "operator" else 17)


def interrupted(norm: str) -> onnx.ModelProto:
    """A stream that a norm behind each sum interrupts; two of the sums are loud."""
    rng, writer = np.random.default_rng(3), GraphWriter("interrupted")
    x = writer.input("embeddings", [1, TOKENS, WIDTH])
    for layer, size in enumerate((3e4, 1.0, 3e4)):
        weight = writer.weight(f"w{layer}", (size * rng.standard_normal((WIDTH, WIDTH))).astype(np.float32))
        total = writer.op("Add", [x, writer.op("MatMul", [x, weight], f"/{layer}")], f"/{layer}")
        x = _norm(writer, norm, total, f"/{layer}/norm")
    writer.output(x, "y", [1, TOKENS, WIDTH])
    return writer.model(opset=17)


def decoder_inputs(count: int = 4, size: float = 4.0) -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(5)
    return [{"embeddings": (size * rng.standard_normal((1, TOKENS, WIDTH))).astype(np.float32)} for _ in range(count)]


def _norm(writer: GraphWriter, form: str, x: str, at: str) -> str:
    rng = np.random.default_rng(len(at))
    gain = writer.weight(f"{at}.gain", (1 + 0.1 * rng.standard_normal(WIDTH)).astype(np.float32))
    if form == "operator":
        return writer.op("RMSNormalization", [x, gain], at, axis=-1, epsilon=EPSILON)
    if form == "cast":
        x = writer.op("Cast", [x], at, to=onnx.TensorProto.FLOAT)
    by_product = form in ("square by product", "reciprocal")
    square = writer.op("Mul", [x, x], at) if by_product else writer.op("Pow", [x, writer.weight(f"{at}.two", 2.0)], at)
    if form == "sum":
        axes = writer.weight(f"{at}.axes", [-1], np.int64)
        total = writer.op("ReduceSum", [square, axes], at, keepdims=1)
        mean = writer.op("Mul", [total, writer.weight(f"{at}.count", 1.0 / WIDTH)], at)
    else:
        mean = writer.op("ReduceMean", [square], at, axes=[-1], keepdims=1)
    guarded = writer.op("Add", [mean, writer.weight(f"{at}.epsilon", EPSILON)], at)
    if form == "power":
        normal = writer.op("Mul", [x, writer.op("Pow", [guarded, writer.weight(f"{at}.half", -0.5)], at)], at)
    elif form in ("quotient", "gained quotient"):
        one = writer.weight(f"{at}.one", 1.0)
        factor = writer.op("Div", [one, writer.op("Sqrt", [guarded], at)], at)
        if form == "gained quotient":
            return writer.op("Mul", [x, writer.op("Mul", [factor, gain], at)], at)
        normal = writer.op("Mul", [x, factor], at)
    elif form in ("reciprocal", "cast"):
        normal = writer.op("Mul", [x, writer.op("Reciprocal", [writer.op("Sqrt", [guarded], at)], at)], at)
    else:
        normal = writer.op("Div", [x, writer.op("Sqrt", [guarded], at)], at)
    if form == "cast":
        normal = writer.op("Cast", [normal], at, to=onnx.TensorProto.FLOAT)
    return writer.op("Mul", [normal, gain], at)
