"""Whole networks of the fidelity suite, written from their configuration with random, trained-like weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tests.models.zoo.blocks import decomposed_layer_norm, decomposed_rms_norm, erf_gelu
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import Feed, ZooModel

__all__ = [
    "NETWORKS",
    "Weights",
    "bert_base",
    "decoder_24",
    "deeplab_like",
    "detr_like",
    "pictures",
    "residual_network",
    "vit_b16",
]

Array = NDArray[np.float32]
_INPUTS = 8


class Weights:
    """Weights whose rows and columns differ in scale, drawn fast."""

    def __init__(self, writer: GraphWriter, seed: int, batch: int = 1) -> None:
        self.writer = writer
        self.batch = batch
        self.rng = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Array:
        drawn = self.rng.standard_normal((rows, columns), dtype=np.float32)
        drawn *= np.exp(0.3 * self.rng.standard_normal((rows, 1), dtype=np.float32))
        drawn *= np.exp(0.2 * self.rng.standard_normal((1, columns), dtype=np.float32))
        drawn *= np.float32(gain / np.sqrt(rows * 1.1))
        return drawn

    def vector(self, size: int, mean: float = 0.0, scale: float = 0.1) -> Array:
        return (mean + scale * self.rng.standard_normal(size, dtype=np.float32)).astype(np.float32)

    def linear(self, x: str, scope: str, rows: int, columns: int, gain: float = 1.0, *, bias: bool = True) -> str:
        key = scope.strip("/").replace("/", ".")
        y = self.writer.op("MatMul", [x, self.writer.weight(f"{key}.weight", self.matrix(rows, columns, gain))], scope)
        if not bias:
            return y
        return self.writer.op("Add", [y, self.writer.weight(f"{key}.bias", self.vector(columns))], scope)

    def conv(self, x: str, scope: str, ins: int, outs: int, kernel: int, *, stride: int = 1, group: int = 1,
             dilation: int = 1, gain: float = 1.0, bias: float = 0.1) -> str:  # fmt: skip
        key = scope.strip("/").replace("/", ".")
        fan = ins // group * kernel * kernel
        kernels = self.rng.standard_normal((outs, ins // group, kernel, kernel), dtype=np.float32)
        kernels *= np.exp(0.3 * self.rng.standard_normal((outs, 1, 1, 1), dtype=np.float32))
        kernels *= np.float32(gain / np.sqrt(fan * 1.1))
        pad = dilation * (kernel // 2)
        names = [
            x,
            self.writer.weight(f"{key}.weight", kernels),
            self.writer.weight(f"{key}.bias", self.vector(outs, 0.0, bias)),
        ]
        return self.writer.op("Conv", names, scope, kernel_shape=[kernel, kernel], strides=[stride, stride],
                              pads=[pad] * 4, group=group, dilations=[dilation, dilation])  # fmt: skip

    def heads(self, x: str, scope: str, tokens: int, heads: int, size: int, order: list[int]) -> str:
        shape = self.writer.weight(
            f"{scope}.shape".strip("/").replace("/", "."), [self.batch, tokens, heads, size], np.int64
        )
        return self.writer.op("Transpose", [self.writer.op("Reshape", [x, shape], scope)], scope, perm=order)

    def attention(self, query: str, key: str, value: str, scope: str, width: int, heads: int, tokens: tuple[int, int],
                  gain: float = 1.0, mask: str | None = None, turn: Callable[[str, str], str] | None = None,
                  *, bias: bool = True) -> str:  # fmt: skip
        """Projections, scores, softmax and the way back, in single operators as exporters write them."""
        size, writer = width // heads, self.writer
        parts = {}
        for name, x, count in (("q", query, tokens[0]), ("k", key, tokens[1]), ("v", value, tokens[1])):
            projected = self.linear(x, f"{scope}/{name}_proj", width, width, bias=bias)
            parts[name] = self.heads(projected, f"{scope}/{name}", count, heads, size, [0, 2, 1, 3])
            if turn is not None and name != "v":
                parts[name] = turn(parts[name], f"{scope}/{name}")
        keys = writer.op("Transpose", [parts["k"]], scope, perm=[0, 1, 3, 2])
        scores = writer.op("MatMul", [parts["q"], keys], scope)
        root = writer.weight(f"{scope}.root".strip("/").replace("/", "."), np.float32(np.sqrt(size)))
        scores = writer.op("Div", [scores, root], scope)
        if mask is not None:
            scores = writer.op("Add", [scores, mask], scope)
        mixed = writer.op("MatMul", [writer.op("Softmax", [scores], scope, axis=-1), parts["v"]], scope)
        merge = writer.weight(f"{scope}.merge".strip("/").replace("/", "."), [self.batch, tokens[0], width], np.int64)
        mixed = writer.op("Reshape", [writer.op("Transpose", [mixed], scope, perm=[0, 2, 1, 3]), merge], scope)
        return self.linear(mixed, f"{scope}/out_proj", width, width, gain, bias=bias)

    def layer_norm(self, x: str, scope: str, width: int) -> str:
        key = scope.strip("/").replace("/", ".")
        names = [
            x,
            self.writer.weight(f"{key}.weight", self.vector(width, 1.0, 0.2)),
            self.writer.weight(f"{key}.bias", self.vector(width)),
        ]
        return self.writer.op("LayerNormalization", names, scope, axis=-1, epsilon=1e-5)


def pictures(seed: int, side: int) -> list[Feed]:
    """Pictures in a normalised range: smooth fields, edges and a little noise."""
    rng = np.random.default_rng(seed)
    feeds: list[Feed] = []
    grid = np.linspace(0, 1, side, dtype=np.float32)
    for _ in range(_INPUTS):
        picture = np.zeros((3, side, side), np.float32)
        for _ in range(6):
            fx, fy, phase = rng.uniform(0.5, 8), rng.uniform(0.5, 8), rng.uniform(0, 6.28)
            wave = np.sin(6.2832 * (fx * grid[:, None] + fy * grid[None, :]) + phase)
            picture += rng.uniform(0.1, 0.6, (3, 1, 1)).astype(np.float32) * wave
        top, left = rng.integers(0, side // 2, 2)
        picture[:, top : top + side // 3, left : left + side // 3] += rng.normal(0, 1, (3, 1, 1))
        picture += 0.05 * rng.standard_normal(picture.shape)
        feeds.append({"image": np.clip(picture, -2.1, 2.6)[None].astype(np.float32)})
    return feeds


def deeplab_like(batch: int = 1) -> ZooModel:
    """A MobileNetV2 at 513x513 with an ASPP that pools 33x33 positions and bilinear resizes, as DeepLabV3 has."""
    writer = GraphWriter("deeplab_like")
    w = Weights(writer, 513, batch)
    zero, six = writer.weight("clip.min", 0.0), writer.weight("clip.max", 6.0)

    def relu6(x: str, scope: str) -> str:
        return writer.op("Clip", [x, zero, six], scope)

    x = relu6(w.conv(writer.input("image", [batch, 3, 513, 513]), "/stem/conv", 3, 32, 3, stride=2, gain=1.4), "/stem")
    ins, index = 32, 0
    plan = ((1, 16, 1, 1, 1), (6, 24, 2, 2, 1), (6, 32, 3, 2, 1), (6, 64, 4, 2, 1), (6, 96, 3, 1, 1), (6, 160, 3, 1, 2),
            (6, 320, 1, 1, 2))  # fmt: skip
    for widen, outs, repeats, first, dilation in plan:
        for repeat in range(repeats):
            scope, stride = f"/blocks.{index}", first if repeat == 0 else 1
            hidden, y = ins * widen, x
            if widen != 1:
                y = relu6(w.conv(y, f"{scope}/expand", ins, hidden, 1, gain=1.4), f"{scope}/expand")
            y = w.conv(y, f"{scope}/depth", hidden, hidden, 3, stride=stride, group=hidden, dilation=dilation, gain=1.6)
            y = w.conv(relu6(y, f"{scope}/depth"), f"{scope}/project", hidden, outs, 1, gain=1.2)
            x = writer.op("Add", [x, y], scope) if stride == 1 and ins == outs else y
            ins, index = outs, index + 1
    pooled = writer.op("AveragePool", [x], "/aspp/pool", kernel_shape=[33, 33])
    pooled = writer.op("Relu", [w.conv(pooled, "/aspp/pool/conv", 320, 256, 1, gain=3.0)], "/aspp/pool")
    sizes = writer.weight("aspp.sizes", [batch, 256, 33, 33], np.int64)
    linear = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
    pooled = writer.op("Resize", [pooled, "", "", sizes], "/aspp/pool", **linear)
    local = writer.op("Relu", [w.conv(x, "/aspp/conv", 320, 256, 1, gain=1.4)], "/aspp")
    joined = writer.op("Concat", [pooled, local], "/aspp", axis=1)
    joined = writer.op("Relu", [w.conv(joined, "/aspp/project", 512, 256, 1, gain=1.4)], "/aspp/project")
    logits = w.conv(joined, "/classifier", 256, 21, 1, gain=3.0)
    sizes = writer.weight("classifier.sizes", [batch, 21, 257, 257], np.int64)
    writer.output(writer.op("Resize", [logits, "", "", sizes], "/up", **linear), "logits", [batch, 21, 257, 257])
    return ZooModel("deeplab_like", writer.model(), pictures(5130, 513), 0.01, fails=False)


def vit_b16(batch: int = 1) -> ZooModel:
    """ViT-B/16 at 224x224 with decomposed norms; two channels of the residual stream hold outliers of about 300."""
    writer = GraphWriter("vit_b16")
    w, width, tokens = Weights(writer, 16, batch), 768, 197
    x = writer.input("image", [batch, 3, 224, 224])
    patches = writer.op(
        "Conv",
        [x, writer.weight("patch.weight", w.matrix(768, width).T.reshape(width, 3, 16, 16)),
         writer.weight("patch.bias", w.vector(width))],
        "/patch", kernel_shape=[16, 16], strides=[16, 16],
    )  # fmt: skip
    flat = writer.op("Reshape", [patches, writer.weight("patch.shape", [batch, width, 196], np.int64)], "/patch")
    rows = writer.op("Transpose", [flat], "/patch", perm=[0, 2, 1])
    first = writer.weight("class_token", np.repeat(w.vector(width, 0.0, 0.5)[None, None], batch, axis=0))
    x = writer.op("Concat", [first, rows], "/embed", axis=1)
    position = w.matrix(tokens, width, 3.0)
    position[:, 100] += 310.0
    position[:, 500] -= 270.0
    x = writer.op("Add", [x, writer.weight("position", position[None])], "/embed")
    for layer in range(12):
        scope = f"/layers.{layer}"
        h = decomposed_layer_norm(writer, x, f"{scope}/norm1", w.vector(width, 6.0, 1.0), w.vector(width))
        h = w.attention(h, h, h, f"{scope}/attention", width, 12, (tokens, tokens), 0.6)
        x = writer.op("Add", [x, h], scope)
        h = decomposed_layer_norm(writer, x, f"{scope}/norm2", w.vector(width, 6.0, 1.0), w.vector(width))
        h = erf_gelu(writer, w.linear(h, f"{scope}/mlp/fc1", width, 3072), f"{scope}/mlp")
        x = writer.op("Add", [x, w.linear(h, f"{scope}/mlp/fc2", 3072, width, 0.8)], scope)
    x = decomposed_layer_norm(writer, x, "/norm", w.vector(width, 6.0, 1.0), w.vector(width))
    x = writer.op("Gather", [x, writer.weight("head.first", 0, np.int64)], "/head", axis=1)
    names = [x, writer.weight("head.weight", w.matrix(width, 1000)), writer.weight("head.bias", w.vector(1000))]
    writer.output(writer.op("Gemm", names, "/head"), "logits", [batch, 1000])
    return ZooModel("vit_b16", writer.model(), pictures(2240, 224), 0.01, fails=False)


def bert_base(batch: int = 1) -> ZooModel:
    """BERT-base on 128 tokens: embeddings, norms as operators, a mask of FP32's smallest number, hidden states out."""
    writer = GraphWriter("bert_base")
    w, width, tokens = Weights(writer, 12, batch), 768, 128
    ids = writer.input("input_ids", [batch, tokens], TensorProto.INT64)
    mask = writer.input("attention_mask", [batch, tokens], TensorProto.INT64)
    words = writer.op("Gather", [writer.weight("words", w.matrix(8192, width, 4.0)), ids], "/embed", axis=0)
    x = writer.op("Add", [words, writer.weight("positions", w.matrix(tokens, width, 1.0)[None])], "/embed")
    x = w.layer_norm(x, "/embed/norm", width)
    wide = writer.op("Unsqueeze", [mask, writer.weight("mask.axes", [1, 2], np.int64)], "/mask")
    wide = writer.op("Cast", [wide], "/mask", to=TensorProto.FLOAT)
    lowest = writer.weight("mask.lowest", np.finfo(np.float32).min)
    away = writer.op("Sub", [writer.weight("mask.one", 1.0), wide], "/mask")
    away = writer.op("Mul", [away, lowest], "/mask")
    for layer in range(12):
        scope = f"/layers.{layer}"
        h = w.attention(x, x, x, f"{scope}/attention", width, 12, (tokens, tokens), 0.7, away)
        x = w.layer_norm(writer.op("Add", [x, h], scope), f"{scope}/norm1", width)
        h = erf_gelu(writer, w.linear(x, f"{scope}/mlp/fc1", width, 3072), f"{scope}/mlp")
        h = w.linear(h, f"{scope}/mlp/fc2", 3072, width)
        x = w.layer_norm(writer.op("Add", [x, h], scope), f"{scope}/norm2", width)
    first = writer.op("Gather", [x, writer.weight("pool.first", 0, np.int64)], "/pool", axis=1)
    pooled = writer.op("Tanh", [w.linear(first, "/pool", width, width)], "/pool")
    writer.output(x, "hidden", [batch, tokens, width])
    writer.output(pooled, "pooled", [batch, width])
    rng = np.random.default_rng(128)
    feeds: list[Feed] = []
    for length in np.linspace(40, tokens, _INPUTS).astype(int):
        drawn = rng.integers(0, 8192, (1, tokens))
        feeds.append({"input_ids": drawn, "attention_mask": (np.arange(tokens) < length).astype(np.int64)[None]})
    return ZooModel("bert_base", writer.model(), feeds, 0.01, fails=False)


def residual_network(writer: GraphWriter, w: Weights, batch: int) -> tuple[str, int]:
    """A residual network of 50 layers at 320x320 that leaves 10x10 positions; its result and their channels."""

    def relu(x: str, scope: str) -> str:
        return writer.op("Relu", [x], scope)

    x = relu(w.conv(writer.input("image", [batch, 3, 320, 320]), "/stem", 3, 64, 7, stride=2, gain=1.4), "/stem")
    x = writer.op("MaxPool", [x], "/stem", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ins = 64
    for stage, (hidden, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            scope, stride = f"/layer{stage + 1}.{block}", 2 if stage and not block else 1
            y = relu(w.conv(x, f"{scope}/conv1", ins, hidden, 1, gain=1.4), f"{scope}/a")
            y = relu(w.conv(y, f"{scope}/conv2", hidden, hidden, 3, stride=stride, gain=1.4), f"{scope}/b")
            y = w.conv(y, f"{scope}/conv3", hidden, 4 * hidden, 1, gain=0.6)
            if not block:
                x = w.conv(x, f"{scope}/down", ins, 4 * hidden, 1, stride=stride, gain=1.0)
            x, ins = relu(writer.op("Add", [y, x], scope), scope), 4 * hidden
    return x, ins


def detr_like(batch: int = 1) -> ZooModel:
    """A residual network at 320x320 and a transformer of six and six layers that reads its 100 positions."""
    writer = GraphWriter("detr_like")
    w = Weights(writer, 6, batch)

    def relu(x: str, scope: str) -> str:
        return writer.op("Relu", [x], scope)

    x, ins = residual_network(writer, w, batch)
    width, tokens, queries = 256, 100, 100
    x = w.conv(x, "/project", ins, width, 1, gain=0.5)
    x = writer.op("Reshape", [x, writer.weight("flat", [batch, width, tokens], np.int64)], "/project")
    memory = writer.op("Transpose", [x], "/project", perm=[0, 2, 1])
    place = writer.weight("place", w.matrix(tokens, width, 8.0)[None])

    def feed_forward(x: str, scope: str) -> str:
        h = relu(w.linear(x, f"{scope}/fc1", width, 1024), f"{scope}/act")
        return w.layer_norm(writer.op("Add", [x, w.linear(h, f"{scope}/fc2", 1024, width)], scope), f"{scope}/n", width)

    for layer in range(6):
        scope = f"/encoder.{layer}"
        query = writer.op("Add", [memory, place], scope)
        h = w.attention(query, query, memory, f"{scope}/attention", width, 8, (tokens, tokens))
        memory = w.layer_norm(writer.op("Add", [memory, h], scope), f"{scope}/norm", width)
        memory = feed_forward(memory, f"{scope}/mlp")
    asked = writer.weight("queries", w.matrix(queries, width, 8.0)[None])
    target = writer.weight("start", np.repeat(w.matrix(queries, width, 2.0)[None], batch, axis=0))
    keys = writer.op("Add", [memory, place], "/decoder")
    for layer in range(6):
        scope = f"/decoder.{layer}"
        query = writer.op("Add", [target, asked], scope)
        h = w.attention(query, query, target, f"{scope}/self", width, 8, (queries, queries))
        target = w.layer_norm(writer.op("Add", [target, h], scope), f"{scope}/norm1", width)
        query = writer.op("Add", [target, asked], f"{scope}/cross")
        h = w.attention(query, keys, memory, f"{scope}/cross", width, 8, (queries, tokens))
        target = w.layer_norm(writer.op("Add", [target, h], scope), f"{scope}/norm2", width)
        target = feed_forward(target, f"{scope}/mlp")
    writer.output(w.linear(target, "/classes", width, 92, 2.0), "logits", [batch, queries, 92])
    h = relu(w.linear(target, "/boxes/0", width, width, 1.4), "/boxes/0")
    h = relu(w.linear(h, "/boxes/1", width, width, 1.4), "/boxes/1")
    writer.output(writer.op("Sigmoid", [w.linear(h, "/boxes/2", width, 4)], "/boxes"), "boxes", [batch, queries, 4])
    return ZooModel("detr_like", writer.model(), pictures(3200, 320), 0.01, fails=False)


def decoder_24(batch: int = 1, tokens: int = 1024) -> ZooModel:
    """A decoder of 24 layers on 1,024 tokens: RMS norms in single operators, rotary positions, gated feed-forward.

    As in trained language models a channel of the residual stream holds huge values, whose squares exceed FP16.
    """
    writer = GraphWriter("decoder_24")
    w, width, heads, hidden, words = Weights(writer, 24, batch), 512, 8, 1408, 2048
    size = width // heads
    ids = writer.input("input_ids", [batch, tokens], TensorProto.INT64)
    table = w.matrix(words, width, 45.0)
    table[:, 77] += 400.0
    x = writer.op("Gather", [writer.weight("words", table), ids], "/embed", axis=0)
    phases = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(0, size, 2) / size))
    phases = np.concatenate([phases, phases], axis=1)[None, None]
    cosines, sines = writer.weight("cosines", np.cos(phases)), writer.weight("sines", np.sin(phases))
    causal = np.where(np.tril(np.ones((tokens, tokens), bool)), 0.0, np.finfo(np.float32).min)[None, None]
    mask = writer.weight("causal", causal)
    axis = writer.weight("rotary.axis", [-1], np.int64)
    low, middle = writer.weight("rotary.low", [0], np.int64), writer.weight("rotary.middle", [size // 2], np.int64)
    high = writer.weight("rotary.high", [size], np.int64)

    def turn(x: str, scope: str) -> str:
        first = writer.op("Slice", [x, low, middle, axis], scope)
        second = writer.op("Slice", [x, middle, high, axis], scope)
        turned = writer.op("Concat", [writer.op("Neg", [second], scope), first], scope, axis=-1)
        parts = [writer.op("Mul", [x, cosines], scope), writer.op("Mul", [turned, sines], scope)]
        return writer.op("Add", parts, scope)

    for layer in range(24):
        scope = f"/layers.{layer}"
        h = decomposed_rms_norm(writer, x, f"{scope}/norm1", w.vector(width, 8.0, 1.5))
        h = w.attention(h, h, h, f"{scope}/attention", width, heads, (tokens, tokens), 4.0, mask, turn, bias=False)
        x = writer.op("Add", [x, h], scope)
        h = decomposed_rms_norm(writer, x, f"{scope}/norm2", w.vector(width, 8.0, 1.5))
        gate = w.linear(h, f"{scope}/mlp/gate", width, hidden, bias=False)
        gate = writer.op("Mul", [gate, writer.op("Sigmoid", [gate], f"{scope}/mlp")], f"{scope}/mlp")
        up = w.linear(h, f"{scope}/mlp/up", width, hidden, bias=False)
        h = writer.op("Mul", [gate, up], f"{scope}/mlp/gated")
        x = writer.op("Add", [x, w.linear(h, f"{scope}/mlp/down", hidden, width, 4.0, bias=False)], scope)
    x = decomposed_rms_norm(writer, x, "/norm", w.vector(width, 8.0, 1.5))
    writer.output(w.linear(x, "/head", width, words, bias=False), "logits", [batch, tokens, words])
    rng = np.random.default_rng(1024)
    feeds: list[Feed] = [{"input_ids": rng.integers(0, words, (1, tokens))} for _ in range(_INPUTS)]
    return ZooModel("decoder_24", writer.model(), feeds, 0.01)


NETWORKS: dict[str, Callable[..., ZooModel]] = {
    build.__name__: build for build in (deeplab_like, vit_b16, bert_base, detr_like, decoder_24)
}
