"""Networks that no rule of a profile was fitted to: how well predictions hold on structures that were not looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from benchmarks.gpu.networks import Weights, pictures
from tests.models.zoo.blocks import erf_gelu
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import Feed, ZooModel

__all__ = ["HELD_OUT"]

Array = NDArray[np.float32]
_INPUTS = 8


def convnext_like() -> ZooModel:
    """A ConvNeXt at 160x160: 7x7 depthwise convolutions, norms over channels last, layers scaled by small factors."""
    writer = GraphWriter("convnext_like")
    w = Weights(writer, 71)
    x, ins = writer.input("image", [1, 3, 160, 160]), 3

    def channel_norm(x: str, scope: str, width: int) -> str:
        last = writer.op("Transpose", [x], scope, perm=[0, 2, 3, 1])
        return writer.op("Transpose", [w.layer_norm(last, scope, width)], scope, perm=[0, 3, 1, 2])

    for stage, (width, blocks) in enumerate(((48, 2), (96, 2), (192, 4), (384, 2))):
        scope, step = f"/down.{stage}", 4 if stage == 0 else 2
        if stage:
            x = channel_norm(x, f"{scope}/norm", ins)
        x = _patches(w, x, f"{scope}/conv", ins, width, step)
        if stage == 0:
            x = channel_norm(x, f"{scope}/norm", width)
        for block in range(blocks):
            scope = f"/stages.{stage}.{block}"
            h = w.conv(x, f"{scope}/depth", width, width, 7, group=width, gain=1.2)
            h = w.layer_norm(writer.op("Transpose", [h], scope, perm=[0, 2, 3, 1]), f"{scope}/norm", width)
            h = erf_gelu(writer, w.linear(h, f"{scope}/fc1", width, 4 * width), f"{scope}/mlp")
            h = w.linear(h, f"{scope}/fc2", 4 * width, width)
            h = writer.op("Mul", [h, writer.weight(f"scale.{stage}.{block}", w.vector(width, 0.3, 0.1))], scope)
            x = writer.op("Add", [x, writer.op("Transpose", [h], scope, perm=[0, 3, 1, 2])], scope)
        ins = width
    x = writer.op("Flatten", [writer.op("GlobalAveragePool", [x], "/pool")], "/pool", axis=1)
    x = w.layer_norm(x, "/norm", ins)
    names = [x, writer.weight("head.weight", w.matrix(ins, 200)), writer.weight("head.bias", w.vector(200))]
    writer.output(writer.op("Gemm", names, "/head"), "logits", [1, 200])
    return ZooModel("convnext_like", writer.model(), pictures(1600, 160), 0.01, fails=False)


def unet_like() -> ZooModel:
    """A U-Net at 96x96 as diffusion models have it: group norms, x sigmoid(x), attention, transposed convolutions."""
    writer = GraphWriter("unet_like")
    w = Weights(writer, 96)

    def normed(x: str, scope: str, width: int) -> str:
        """GroupNorm as PyTorch exports it: an instance norm over groups, scale and shift behind it."""
        key = scope.strip("/").replace("/", ".")
        groups = writer.weight(f"{key}.groups", [0, 8, -1], np.int64)
        ones, zeros = writer.weight(f"{key}.ones", np.ones(8)), writer.weight(f"{key}.zeros", np.zeros(8))
        flat = writer.op("Reshape", [x, groups], scope)
        flat = writer.op("InstanceNormalization", [flat, ones, zeros], scope, epsilon=1e-5)
        back = writer.op("Reshape", [flat, writer.op("Shape", [x], scope)], scope)
        scale = writer.weight(f"{key}.weight", w.vector(width, 1.0, 0.2)[:, None, None])
        shift = writer.weight(f"{key}.bias", w.vector(width)[:, None, None])
        x = writer.op("Add", [writer.op("Mul", [back, scale], scope), shift], scope)
        return writer.op("Mul", [x, writer.op("Sigmoid", [x], scope)], scope)

    def block(x: str, scope: str, ins: int, outs: int) -> str:
        h = w.conv(normed(x, f"{scope}/norm1", ins), f"{scope}/conv1", ins, outs, 3, gain=1.4)
        h = w.conv(normed(h, f"{scope}/norm2", outs), f"{scope}/conv2", outs, outs, 3, gain=1.0)
        skip = x if ins == outs else w.conv(x, f"{scope}/skip", ins, outs, 1)
        return writer.op("Add", [h, skip], scope)

    x = w.conv(writer.input("image", [1, 3, 96, 96]), "/in", 3, 32, 3)
    skips, widths, ins = [], (32, 64, 128), 32
    for level, width in enumerate(widths):
        x = block(x, f"/down.{level}", ins, width)
        skips.append(x)
        x, ins = w.conv(x, f"/down.{level}/step", width, width, 3, stride=2), width
    x = block(x, "/middle.0", ins, ins)
    tokens = writer.op("Reshape", [x, writer.weight("flat", [1, ins, 144], np.int64)], "/middle")
    tokens = writer.op("Transpose", [tokens], "/middle", perm=[0, 2, 1])
    h = w.layer_norm(tokens, "/middle/norm", ins)
    h = writer.op("Add", [tokens, w.attention(h, h, h, "/middle/attention", ins, 4, (144, 144))], "/middle")
    h = writer.op("Transpose", [h], "/middle", perm=[0, 2, 1])
    x = writer.op("Reshape", [h, writer.weight("square", [1, ins, 12, 12], np.int64)], "/middle")
    for level in (2, 1, 0):
        width, scope = widths[level], f"/up.{level}"
        kernel = w.matrix(ins * 4, width, 2.0).reshape(ins, 4, width).transpose(0, 2, 1).reshape(ins, width, 2, 2)
        names = [x, writer.weight(f"up.{level}.weight", kernel), writer.weight(f"up.{level}.bias", w.vector(width))]
        x = writer.op("ConvTranspose", names, scope, kernel_shape=[2, 2], strides=[2, 2])
        x = block(writer.op("Concat", [x, skips[level]], scope, axis=1), scope, 2 * width, width)
        ins = width
    x = w.conv(normed(x, "/out/norm", ins), "/out", ins, 3, 3)
    writer.output(x, "noise", [1, 3, 96, 96])
    return ZooModel("unet_like", writer.model(), pictures(960, 96), 0.01, fails=False)


def speech_encoder() -> ZooModel:
    """An encoder of speech: two convolutions over time, positions, four layers of attention, log-probabilities."""
    writer = GraphWriter("speech_encoder")
    w, width, tokens = Weights(writer, 80), 256, 150
    x, ins = writer.input("features", [1, 80, 300]), 80
    for layer, stride in enumerate((1, 2)):
        scope = f"/conv{layer + 1}"
        kernels = w.matrix(ins * 3, width, 1.6).reshape(ins, 3, width).transpose(2, 0, 1)
        names = [x, writer.weight(f"conv{layer + 1}.weight", kernels)]
        names.append(writer.weight(f"conv{layer + 1}.bias", w.vector(width)))
        x = writer.op("Conv", names, scope, kernel_shape=[3], strides=[stride], pads=[1, 1])
        x, ins = erf_gelu(writer, x, scope), width
    x = writer.op("Transpose", [x], "/embed", perm=[0, 2, 1])
    x = writer.op("Add", [x, writer.weight("positions", w.matrix(tokens, width, 3.0)[None])], "/embed")
    for layer in range(4):
        scope = f"/layers.{layer}"
        h = w.layer_norm(x, f"{scope}/norm1", width)
        x = writer.op("Add", [x, w.attention(h, h, h, f"{scope}/attention", width, 4, (tokens, tokens), 0.8)], scope)
        h = w.layer_norm(x, f"{scope}/norm2", width)
        h = w.linear(erf_gelu(writer, w.linear(h, f"{scope}/fc1", width, 1024), scope), f"{scope}/fc2", 1024, width)
        x = writer.op("Add", [x, h], scope)
    logits = w.linear(w.layer_norm(x, "/norm", width), "/head", width, 64, 2.0)
    writer.output(writer.op("LogSoftmax", [logits], "/head", axis=-1), "log_probabilities", [1, tokens, 64])
    rng = np.random.default_rng(300)
    feeds: list[Feed] = [{"features": _spectrum(rng, 80, 300)} for _ in range(_INPUTS)]
    return ZooModel("speech_encoder", writer.model(), feeds, 0.01, fails=False)


def efficientnet_like() -> ZooModel:
    """An EfficientNet at 128x128: inverted bottlenecks, x sigmoid(x), gates by global pooling, batch norms kept."""
    writer = GraphWriter("efficientnet_like")
    w = Weights(writer, 128)

    def swish(x: str, scope: str) -> str:
        return writer.op("Mul", [x, writer.op("Sigmoid", [x], scope)], scope)

    def bare_conv(x: str, scope: str, ins: int, outs: int, kernel: int, stride: int, group: int, gain: float) -> str:
        """A convolution without a bias and the norm behind it, as a model in training mode is exported."""
        key, fan = scope.strip("/").replace("/", "."), ins // group * kernel * kernel
        kernels = w.matrix(fan, outs, gain).reshape(ins // group, kernel, kernel, outs).transpose(3, 0, 1, 2)
        pads = [kernel // 2] * 4
        x = writer.op("Conv", [x, writer.weight(f"{key}.weight", kernels)], scope, kernel_shape=[kernel, kernel],
                      strides=[stride, stride], pads=pads, group=group)  # fmt: skip
        variance = np.exp(0.5 * w.vector(outs, 0.0, 1.0))
        names = [
            writer.weight(f"{key}.{part}", values)
            for part, values in (("scale", w.vector(outs, 1.0, 0.2)), ("shift", w.vector(outs, 0.0, 0.3)),
                                 ("mean", w.vector(outs, 0.0, 0.3)), ("variance", variance))
        ]  # fmt: skip
        return writer.op("BatchNormalization", [x, *names], scope, epsilon=1e-3)

    x = swish(bare_conv(writer.input("image", [1, 3, 128, 128]), "/stem", 3, 32, 3, 2, 1, 1.5), "/stem")
    ins, index = 32, 0
    plan = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 2, 1, 5),
            (6, 192, 2, 2, 5))  # fmt: skip
    for widen, outs, repeats, first, kernel in plan:
        for repeat in range(repeats):
            scope, stride, hidden, h = f"/blocks.{index}", first if repeat == 0 else 1, ins * widen, x
            if widen != 1:
                h = swish(bare_conv(h, f"{scope}/expand", ins, hidden, 1, 1, 1, 1.5), f"{scope}/expand")
            h = swish(bare_conv(h, f"{scope}/depth", hidden, hidden, kernel, stride, hidden, 1.5), f"{scope}/depth")
            gate = writer.op("GlobalAveragePool", [h], f"{scope}/gate")
            gate = swish(w.conv(gate, f"{scope}/gate/reduce", hidden, max(4, ins // 4), 1, gain=3.0), f"{scope}/gate")
            gate = w.conv(gate, f"{scope}/gate/expand", max(4, ins // 4), hidden, 1, gain=2.0)
            h = writer.op("Mul", [h, writer.op("Sigmoid", [gate], f"{scope}/gate")], scope)
            h = bare_conv(h, f"{scope}/project", hidden, outs, 1, 1, 1, 0.8)
            x = writer.op("Add", [x, h], scope) if stride == 1 and ins == outs else h
            ins, index = outs, index + 1
    x = swish(bare_conv(x, "/head/conv", ins, 640, 1, 1, 1, 1.5), "/head")
    x = writer.op("Flatten", [writer.op("GlobalAveragePool", [x], "/head")], "/head", axis=1)
    names = [x, writer.weight("head.weight", w.matrix(640, 200)), writer.weight("head.bias", w.vector(200))]
    writer.output(writer.op("Gemm", names, "/head"), "logits", [1, 200])
    return ZooModel("efficientnet_like", writer.model(), pictures(1280, 128), 0.01, fails=False)


def segmenter_257() -> ZooModel:
    """A MobileNetV2 at 257x257 with dilations of 2 and 4, pooled over 33x33 positions, resized by aligned corners."""
    writer = GraphWriter("segmenter_257")
    w = Weights(writer, 257)
    zero, six = writer.weight("clip.min", 0.0), writer.weight("clip.max", 6.0)

    def relu6(x: str, scope: str) -> str:
        return writer.op("Clip", [x, zero, six], scope)

    def resized(x: str, scope: str, channels: int, side: int) -> str:
        sizes = writer.weight(f"{scope.strip('/')}.sizes", [1, channels, side, side], np.int64)
        return writer.op("Resize", [x, "", "", sizes], scope, mode="linear",
                         coordinate_transformation_mode="align_corners")  # fmt: skip

    x = relu6(w.conv(writer.input("image", [1, 3, 257, 257]), "/stem/conv", 3, 16, 3, stride=2, gain=1.5), "/stem")
    ins, index = 16, 0
    plan = ((1, 8, 1, 1, 1), (6, 12, 2, 2, 1), (6, 16, 3, 2, 1), (6, 32, 4, 1, 2), (6, 48, 3, 1, 2), (6, 80, 3, 1, 4),
            (6, 160, 1, 1, 4))  # fmt: skip
    for widen, outs, repeats, first, dilation in plan:
        for repeat in range(repeats):
            scope, stride, hidden, h = f"/blocks.{index}", first if repeat == 0 else 1, ins * widen, x
            if widen != 1:
                h = relu6(w.conv(h, f"{scope}/expand", ins, hidden, 1, gain=1.5, bias=0.4), f"{scope}/expand")
            h = w.conv(h, f"{scope}/depth", hidden, hidden, 3, stride=stride, group=hidden, dilation=dilation,
                       gain=1.6, bias=0.4)  # fmt: skip
            h = w.conv(relu6(h, f"{scope}/depth"), f"{scope}/project", hidden, outs, 1, gain=1.3)
            x = writer.op("Add", [x, h], scope) if stride == 1 and ins == outs else h
            ins, index = outs, index + 1
    pooled = writer.op("AveragePool", [x], "/pool", kernel_shape=[33, 33], strides=[33, 33])
    pooled = writer.op("Relu", [w.conv(pooled, "/pool/conv", ins, 256, 1, gain=3.0)], "/pool")
    local = writer.op("Relu", [w.conv(x, "/aspp/conv", ins, 256, 1, gain=1.4)], "/aspp")
    joined = writer.op("Concat", [resized(pooled, "/pool", 256, 33), local], "/aspp", axis=1)
    joined = writer.op("Relu", [w.conv(joined, "/project", 512, 256, 1, gain=1.4)], "/project")
    logits = resized(w.conv(joined, "/classifier", 256, 21, 1, gain=3.0), "/classifier", 21, 33)
    writer.output(resized(logits, "/up", 21, 257), "logits", [1, 21, 257, 257])
    return ZooModel("segmenter_257", writer.model(), pictures(2570, 257), 0.01, fails=False)


def tagger_lstm() -> ZooModel:
    """A tagger of 48 words: embeddings and two layers of LSTM in both directions, 128 wide each."""
    writer = GraphWriter("tagger_lstm")
    w, words, width = Weights(writer, 48), 48, 128
    ids = writer.input("words", [1, words], TensorProto.INT64)
    x = writer.op("Gather", [writer.weight("embedding", w.matrix(3000, 100, 50.0)), ids], "/embed", axis=0)
    x, ins = writer.op("Transpose", [x], "/embed", perm=[1, 0, 2]), 100
    for layer in range(2):
        x, ins = _recurrent(w, "LSTM", x, f"/lstm.{layer}", ins, width, (words, 1)), 2 * width
    x = writer.op("Transpose", [x], "/head", perm=[1, 0, 2])
    writer.output(w.linear(x, "/head", ins, 40, 2.0), "tags", [1, words, 40])
    rng = np.random.default_rng(480)
    feeds: list[Feed] = [{"words": rng.integers(0, 3000, (1, words))} for _ in range(_INPUTS)]
    return ZooModel("tagger_lstm", writer.model(), feeds, 0.01, fails=False)


def denoiser_gru() -> ZooModel:
    """A denoiser of 64 frames: a dense layer, two layers of GRU in both directions, a mask for the spectrum."""
    writer = GraphWriter("denoiser_gru")
    w, frames, width = Weights(writer, 64), 64, 96
    spectrum = writer.input("spectrum", [frames, 1, 129])
    x, ins = writer.op("Tanh", [w.linear(spectrum, "/in", 129, width, 0.6)], "/in"), width
    for layer in range(2):
        x, ins = _recurrent(w, "GRU", x, f"/gru.{layer}", ins, width, (frames, 1)), 2 * width
    mask = writer.op("Sigmoid", [w.linear(x, "/mask", ins, 129, 3.0)], "/mask")
    writer.output(writer.op("Mul", [spectrum, mask], "/out"), "clean", [frames, 1, 129])
    rng = np.random.default_rng(640)
    feeds: list[Feed] = [
        {"spectrum": np.ascontiguousarray(_spectrum(rng, 129, frames).transpose(2, 0, 1))} for _ in range(_INPUTS)
    ]
    return ZooModel("denoiser_gru", writer.model(), feeds, 0.01, fails=False)


def _patches(w: Weights, x: str, scope: str, ins: int, outs: int, step: int) -> str:
    """A convolution whose windows do not overlap."""
    key, writer = scope.strip("/").replace("/", "."), w.writer
    kernels = w.matrix(ins * step * step, outs, 1.2).T.reshape(outs, ins, step, step)
    names = [x, writer.weight(f"{key}.weight", kernels), writer.weight(f"{key}.bias", w.vector(outs))]
    return writer.op("Conv", names, scope, kernel_shape=[step, step], strides=[step, step])


def _recurrent(w: Weights, op: str, x: str, scope: str, ins: int, width: int, sizes: tuple[int, int]) -> str:
    """One layer in both directions, its results side by side."""
    key, writer, gates = scope.strip("/").replace("/", "."), w.writer, {"GRU": 3, "LSTM": 4}[op]
    inward = np.stack([w.matrix(ins, gates * width).T for _ in range(2)])
    inner = np.stack([w.matrix(width, gates * width, 1.2).T for _ in range(2)])
    names = [
        x,
        writer.weight(f"{key}.weight_ih", inward),
        writer.weight(f"{key}.weight_hh", inner),
        writer.weight(f"{key}.bias", np.stack([w.vector(2 * gates * width) for _ in range(2)])),
    ]
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    y = writer.op(op, names, scope, hidden_size=width, direction="bidirectional", **more)
    y = writer.op("Transpose", [y], scope, perm=[0, 2, 1, 3])
    return writer.op("Reshape", [y, writer.weight(f"{key}.sides", [*sizes, 2 * width], np.int64)], scope)


def _spectrum(rng: np.random.Generator, bands: int, frames: int) -> Array:
    """A log spectrum, normalised: harmonics that glide, noise, silence."""
    time, band = np.arange(frames)[None], np.arange(bands)[:, None]
    level = np.full((bands, frames), -1.0)
    for _ in range(6):
        centre = rng.uniform(0, bands) + 6.0 * np.sin(time / rng.uniform(8, 40) + rng.uniform(0, 6))
        loud = np.clip(np.sin(time / rng.uniform(10, 60) + rng.uniform(0, 6)), 0, 1)
        level += 2.5 * loud * np.exp(-(((band - centre) / rng.uniform(1, 5)) ** 2))
    level += 0.15 * rng.standard_normal((bands, frames))
    return np.asarray(np.clip(level, -2, 4), np.float32)[None]


HELD_OUT: dict[str, Callable[[], ZooModel]] = {
    build.__name__: build
    for build in (
        convnext_like, unet_like, speech_encoder, efficientnet_like, segmenter_257, tagger_lstm, denoiser_gru,
    )
}  # fmt: skip
