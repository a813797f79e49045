"""Networks of a usual size that miss 1% in FP16, each for a reason of its own; written for timing what fixes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from benchmarks.gpu.networks import Weights, decoder_24, pictures, residual_network, vit_b16
from tests.models.zoo.blocks import decomposed_layer_norm, erf_gelu
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import Feed, ZooModel

__all__ = ["MISSING", "detr_boxes", "encoder_base", "segmenter"]

_UNIT = 0.05  # the size of the values between the blocks of the segmenter
Array = NDArray[np.float32]
_INPUTS = 8
_IMAGE, _PERIOD, _WAVES = 4000.0, 50.0, 64  # pixels of the picture, of a turn of the fastest sine; sines a coordinate


def encoder_base(batch: int = 1) -> ZooModel:
    """12 layers, 768 wide, 512 tokens; norms in single operators on a stream with outliers, whose squares overflow."""
    writer = GraphWriter("encoder_base")
    w, width, tokens = Weights(writer, 512, batch), 768, 512
    ids = writer.input("input_ids", [batch, tokens], TensorProto.INT64)
    table = w.matrix(4096, width, 130.0)
    table[:, 60] += 310.0
    table[:, 381] -= 280.0
    words = writer.op("Gather", [writer.weight("words", table), ids], "/embed", axis=0)
    x = writer.op("Add", [words, writer.weight("positions", w.matrix(tokens, width, 5.0)[None])], "/embed")

    def norm(x: str, scope: str) -> str:
        gamma = w.vector(width, 7.5, 1.2)
        gamma[[60, 381]] = 0.1
        return decomposed_layer_norm(writer, x, scope, gamma, w.vector(width))

    for layer in range(12):
        scope = f"/layers.{layer}"
        h = norm(x, f"{scope}/norm1")
        h = w.attention(h, h, h, f"{scope}/attention", width, 12, (tokens, tokens), 0.3)
        x = writer.op("Add", [x, h], scope)
        h = norm(x, f"{scope}/norm2")
        h = erf_gelu(writer, w.linear(h, f"{scope}/mlp/fc1", width, 3072), f"{scope}/mlp")
        x = writer.op("Add", [x, w.linear(h, f"{scope}/mlp/fc2", 3072, width, 0.4)], scope)
    writer.output(norm(x, "/norm"), "hidden", [batch, tokens, width])
    rng = np.random.default_rng(5120)
    feeds: list[Feed] = [{"input_ids": rng.integers(0, 4096, (1, tokens))} for _ in range(_INPUTS)]
    return ZooModel("encoder_base", writer.model(), feeds, 0.01)


def detr_boxes(batch: int = 1) -> ZooModel:
    """A detector whose six decoder layers refine boxes in pixels and embed them by sines, as DAB-DETR and DINO do."""
    writer = GraphWriter("detr_boxes")
    w, width, tokens, queries = Weights(writer, 66, batch), 256, 100, 100

    def relu(x: str, scope: str) -> str:
        return writer.op("Relu", [x], scope)

    def feed_forward(x: str, scope: str) -> str:
        h = relu(w.linear(x, f"{scope}/fc1", width, 1024), f"{scope}/act")
        return w.layer_norm(writer.op("Add", [x, w.linear(h, f"{scope}/fc2", 1024, width)], scope), f"{scope}/n", width)

    x, ins = residual_network(writer, w, batch)
    x = w.conv(x, "/project", ins, width, 1, gain=0.5)
    x = writer.op("Reshape", [x, writer.weight("flat", [batch, width, tokens], np.int64)], "/project")
    memory = writer.op("Transpose", [x], "/project", perm=[0, 2, 1])
    place = writer.weight("place", w.matrix(tokens, width, 8.0)[None])
    for layer in range(6):
        scope = f"/encoder.{layer}"
        query = writer.op("Add", [memory, place], scope)
        h = w.attention(query, query, memory, f"{scope}/attention", width, 8, (tokens, tokens))
        memory = w.layer_norm(writer.op("Add", [memory, h], scope), f"{scope}/norm", width)
        memory = feed_forward(memory, f"{scope}/mlp")

    size = writer.weight("image_size", [_IMAGE] * 4)
    anchors = w.rng.uniform(0.05, 0.95, (1, queries, 4)).astype(np.float32)
    boxes = writer.op("Sigmoid", [writer.weight("anchors", np.log(anchors / (1 - anchors)))], "/decoder")
    pixels = writer.op("Mul", [boxes, size], "/decoder")
    target = writer.weight("start", np.repeat(w.matrix(queries, width, 2.0)[None], batch, axis=0))
    keys = writer.op("Add", [memory, place], "/decoder")
    for layer in range(6):
        scope = f"/decoder.{layer}"
        waves = _sines(writer, pixels, f"{scope}/position", queries)
        asked = relu(w.linear(waves, f"{scope}/position/fc1", 4 * _WAVES, width, 1.4), f"{scope}/position/act")
        asked = w.linear(asked, f"{scope}/position/fc2", width, width, 2.0)
        query = writer.op("Add", [target, asked], scope)
        h = w.attention(query, query, target, f"{scope}/self", width, 8, (queries, queries))
        target = w.layer_norm(writer.op("Add", [target, h], scope), f"{scope}/norm1", width)
        query = writer.op("Add", [target, asked], f"{scope}/cross")
        h = w.attention(query, keys, memory, f"{scope}/cross", width, 8, (queries, tokens))
        target = w.layer_norm(writer.op("Add", [target, h], scope), f"{scope}/norm2", width)
        target = feed_forward(target, f"{scope}/mlp")
        h = relu(w.linear(target, f"{scope}/box/0", width, width, 1.4), f"{scope}/box")
        boxes = _refined(writer, boxes, w.linear(h, f"{scope}/box/1", width, 4, 0.3), f"{scope}/refine")
        pixels = writer.op("Mul", [boxes, size], f"{scope}/refine")
    writer.output(w.linear(target, "/classes", width, 92, 2.0), "logits", [batch, queries, 92])
    writer.output(pixels, "boxes", [batch, queries, 4])
    return ZooModel("detr_boxes", writer.model(), pictures(3200, 320), 0.01)


def _sines(writer: GraphWriter, pixels: str, scope: str, queries: int) -> str:
    """Sine and cosine of the four coordinates of every box, at falling frequencies."""
    key = scope.strip("/").replace("/", ".")
    scaled = writer.op("Mul", [pixels, writer.weight(f"{key}.turn", 2.0 * np.pi / _PERIOD)], scope)
    column = writer.op("Unsqueeze", [scaled, writer.weight(f"{key}.last", [-1], np.int64)], scope)
    periods = 10000.0 ** (np.arange(_WAVES // 2) / (_WAVES // 2))
    phase = writer.op("Div", [column, writer.weight(f"{key}.dim_t", periods)], scope)
    waves = writer.op("Concat", [writer.op("Sin", [phase], scope), writer.op("Cos", [phase], scope)], scope, axis=-1)
    shape = writer.weight(f"{key}.flat", [-1, queries, 4 * _WAVES], np.int64)
    return writer.op("Reshape", [waves, shape], scope)


def _refined(writer: GraphWriter, boxes: str, delta: str, scope: str) -> str:
    """sigmoid(log(x / (1 - x)) + delta)"""
    key = scope.strip("/").replace("/", ".")
    bounds = [writer.weight(f"{key}.low", 1e-5), writer.weight(f"{key}.high", 1.0 - 1e-5)]
    inside = writer.op("Clip", [boxes, *bounds], scope)
    rest = writer.op("Sub", [writer.weight(f"{key}.one", 1.0), inside], scope)
    logit = writer.op("Log", [writer.op("Div", [inside, rest], scope)], scope)
    return writer.op("Sigmoid", [writer.op("Add", [logit, delta], scope)], scope)


def segmenter(batch: int = 1) -> ZooModel:
    """An encoder and decoder of convolutions at 512x512; in four of them tiny weights undo what the one before grew."""
    writer = GraphWriter("segmenter")
    w = Weights(writer, 5, batch)

    def relu(x: str, scope: str) -> str:
        return writer.op("Relu", [x], scope)

    def block(x: str, scope: str, ins: int, outs: int, *, stride: int = 1, unit: float = _UNIT,
              grown: float = _UNIT) -> str:  # fmt: skip
        """Reads values of about `unit`, works on some of `grown`, and leaves some of `_UNIT`."""
        x = w.conv(x, f"{scope}/conv1", ins, outs, 3, stride=stride, gain=1.4 * grown / unit, bias=0.1 * grown)
        x = w.conv(relu(x, scope), f"{scope}/conv2", outs, outs, 3, gain=1.4 * _UNIT / grown, bias=0.1 * _UNIT)
        return relu(x, f"{scope}/out")

    x, kept, ins = writer.input("image", [batch, 3, 512, 512]), [], 3
    for level, outs in enumerate((32, 64, 128, 256, 512)):
        unit, grown = (_UNIT, 3000.0) if level else (1.0, 1.0)
        x = block(x, f"/down.{level}", ins, outs, stride=2, unit=unit, grown=grown)
        kept.append((x, outs))
        ins = outs
    for level in (3, 2, 1, 0):
        skip, outs = kept[level]
        sizes = writer.weight(f"up.{level}.sizes", [batch, ins, 256 >> level, 256 >> level], np.int64)
        x = writer.op("Resize", [x, "", "", sizes], f"/up.{level}", mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
        x = block(writer.op("Concat", [x, skip], f"/up.{level}", axis=1), f"/up.{level}", ins + outs, outs)
        ins = outs
    writer.output(w.conv(x, "/classes", ins, 19, 1, gain=2.0 / _UNIT), "logits", [batch, 19, 256, 256])
    return ZooModel("segmenter", writer.model(), pictures(5120, 512), 0.01)


MISSING: dict[str, Callable[..., ZooModel]] = {
    build.__name__: build for build in (vit_b16, encoder_base, decoder_24, detr_boxes, segmenter)
}
