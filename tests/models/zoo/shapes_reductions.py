"""Small shapes: sums, products of sums, exponentials and selections that leave FP16's range or precision."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.models.zoo.blocks import Array, linear, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import feeds
from tests.models.zoo.zoo_model import ZooModel

_ROWS = 16
_CLASSES = 48


def sum_over_512x512() -> ZooModel:
    """A spatial mean by hand: the sum exceeds 65504 before it is divided."""
    rng = np.random.default_rng(21)
    writer = GraphWriter("sum_over_512x512")
    x = writer.op("Relu", [writer.input("x", [1, 2, 512, 512])], "")
    total = writer.op("ReduceSum", [x, writer.weight("pool.axes", [2, 3], np.int64)], "/pool", keepdims=0)
    mean = writer.op("Div", [total, writer.weight("pool.count", 512.0 * 512.0)], "/pool")
    writer.output(linear(writer, mean, "/fc", trained_matrix(rng, 2, 8), rng.normal(0.0, 0.05, 8)), "y", [1, 8])
    known_good = ("/pool/ReduceSum", "/pool/Div")
    return ZooModel("sum_over_512x512", writer.model(), feeds(rng, "x", _large_maps), 0.01, known_good)


def global_average_pool_large() -> ZooModel:
    """The operator over 512x512: right where a kernel accumulates in FP32, and so healthy when only tensors round."""
    rng = np.random.default_rng(22)
    writer = GraphWriter("global_average_pool_large")
    x = writer.op("Relu", [writer.input("x", [1, 2, 512, 512])], "")
    pooled = writer.op("Flatten", [writer.op("GlobalAveragePool", [x], "/pool")], "/pool", axis=1)
    writer.output(linear(writer, pooled, "/fc", trained_matrix(rng, 2, 8), rng.normal(0.0, 0.05, 8)), "y", [1, 8])
    return ZooModel("global_average_pool_large", writer.model(), feeds(rng, "x", _large_maps), 0.01, fails=False)


def gram_matrix() -> ZooModel:
    """Style features: the product over 4096 positions exceeds 65504 before it is divided by their number."""
    rng = np.random.default_rng(23)
    writer = GraphWriter("gram_matrix")
    x = writer.input("x", [1, 12, 64, 64])
    flat = writer.op("Reshape", [x, writer.weight("gram.shape", [0, 12, -1], np.int64)], "/gram")
    product = writer.op("MatMul", [flat, writer.op("Transpose", [flat], "/gram", perm=[0, 2, 1])], "/gram")
    gram = writer.op("Div", [product, writer.weight("gram.count", 12.0 * 4096.0)], "/gram")
    _project(writer, rng, gram, [1, 12, 12])

    def features(rng: np.random.Generator, scale: float) -> Array:
        channels = rng.lognormal(2.2, 0.3, (1, 12, 1, 1))
        maps = np.abs(rng.standard_normal((1, 12, 64, 64)) + rng.standard_normal((1, 1, 64, 64)))
        return (scale * channels * maps).astype(np.float32)

    known_good = ("/gram/MatMul", "/gram/Div")
    return ZooModel("gram_matrix", writer.model(), feeds(rng, "x", features), 0.01, known_good)


def cumulative_sum() -> ZooModel:
    """A moving average as a difference of running sums, which grow until FP16 resolves no single step."""
    rng = np.random.default_rng(24)
    writer = GraphWriter("cumulative_sum")
    x = writer.input("x", [1, 4096])
    running = writer.op("CumSum", [x, writer.weight("average.axis", 1, np.int64)], "/average")
    axis = writer.weight("average.axes", [1], np.int64)
    ends = []
    for name, start, end in (("later", 32, 4096), ("earlier", 0, 4064)):
        bounds = [writer.weight(f"{name}.{which}", [at], np.int64) for which, at in (("start", start), ("end", end))]
        ends.append(writer.op("Slice", [running, *bounds, axis], "/average"))
    window = writer.op("Sub", ends, "/average")
    writer.output(writer.op("Div", [window, writer.weight("average.width", 32.0)], "/average"), "y", [1, 4064])

    def signal(rng: np.random.Generator, scale: float) -> Array:
        steps = np.arange(4096) / 4096.0
        wave = 1.0 + 0.5 * np.sin(2.0 * np.pi * rng.uniform(2.0, 9.0) * steps)
        return (scale * wave * rng.uniform(0.5, 1.5, 4096))[None].astype(np.float32)

    known_good = ("/average/CumSum", "/average/Slice", "/average/Slice_1", "/average/Sub")
    return ZooModel("cumulative_sum", writer.model(), feeds(rng, "x", signal), 0.01, known_good)


def log_sum_exp_by_hand() -> ZooModel:
    """log(sum(exp(x))) of logits up to 20; the largest shown is not taken out first."""
    rng = np.random.default_rng(25)
    writer = GraphWriter("log_sum_exp_by_hand")
    logits = writer.input("logits", [_ROWS, _CLASSES])
    powers = writer.op("Exp", [logits], "/lse")
    total = writer.op("ReduceSum", [powers, writer.weight("lse.axes", [-1], np.int64)], "/lse")
    log_probability = writer.op("Sub", [logits, writer.op("Log", [total], "/lse")], "/lse")
    _project(writer, rng, log_probability, [_ROWS, _CLASSES])
    known_good = ("/lse/Exp", "/lse/ReduceSum", "/lse/Log")
    return ZooModel("log_sum_exp_by_hand", writer.model(), feeds(rng, "logits", _logits), 0.01, known_good)


def softmax_by_hand() -> ZooModel:
    """exp(x) / sum(exp(x)) without the maximum taken out: inf / inf."""
    rng = np.random.default_rng(26)
    writer = GraphWriter("softmax_by_hand")
    logits = writer.input("logits", [_ROWS, _CLASSES])
    powers = writer.op("Exp", [logits], "/softmax")
    total = writer.op("ReduceSum", [powers, writer.weight("softmax.axes", [-1], np.int64)], "/softmax")
    _project(writer, rng, writer.op("Div", [powers, total], "/softmax"), [_ROWS, _CLASSES])
    known_good = ("/softmax/Exp", "/softmax/ReduceSum", "/softmax/Div")
    return ZooModel("softmax_by_hand", writer.model(), feeds(rng, "logits", _logits), 0.01, known_good)


def log_of_probability() -> ZooModel:
    """log(p + 1e-10) of probabilities below FP16's range: FP32 gives at least -23, FP16 minus infinity."""
    rng = np.random.default_rng(27)
    writer = GraphWriter("log_of_probability")
    probability = writer.op("Softmax", [writer.input("logits", [_ROWS, _CLASSES])], "/head", axis=-1)
    shifted = writer.op("Add", [probability, writer.weight("head.eps", 1e-10)], "/head")
    _project(writer, rng, writer.op("Log", [shifted], "/head"), [_ROWS, _CLASSES])
    known_good = ("/head/Softmax", "/head/Add", "/head/Log")
    return ZooModel("log_of_probability", writer.model(), feeds(rng, "logits", _logits), 0.01, known_good)


def top_k_selection() -> ZooModel:
    """The best 50 of 2000 close scores: rounding ties them, and other boxes are selected."""
    rng = np.random.default_rng(28)
    writer = GraphWriter("top_k_selection")
    logits = writer.input("logits", [1, 2000])
    boxes = writer.weight("boxes", rng.uniform(0.0, 1.0, (2000, 4)))
    scores = writer.op("Sigmoid", [logits], "/select")
    count = writer.weight("select.count", [50], np.int64)
    _, indices = writer.ops("TopK", [scores, count], "/select", 2, axis=-1, largest=1, sorted=1)
    selected = writer.op("Gather", [boxes, indices], "/select", axis=0)
    pixels = writer.op("Mul", [selected, writer.weight("image_size", [1280.0, 720.0, 1280.0, 720.0])], "/select")
    writer.output(writer.op("Round", [pixels], "/select"), "selected", [1, 50, 4])
    writer.output(indices, "indices", [1, 50], TensorProto.INT64)

    def close(rng: np.random.Generator, scale: float) -> Array:
        return (2.5 + 0.05 * scale * rng.standard_normal((1, 2000))).astype(np.float32)

    known_good = ("/select/Sigmoid", "/select/TopK")
    return ZooModel("top_k_selection", writer.model(), feeds(rng, "logits", close), 0.01, known_good)


def _project(writer: GraphWriter, rng: np.random.Generator, x: str, shape: list[int]) -> None:
    y = linear(writer, x, "/fc", trained_matrix(rng, shape[-1], 16), rng.normal(0.0, 0.05, 16))
    writer.output(y, "y", [*shape[:-1], 16])


def _large_maps(rng: np.random.Generator, scale: float) -> Array:
    coarse = rng.lognormal(0.0, 0.5, (1, 2, 64, 64)) * rng.uniform(0.7, 1.5, (1, 2, 1, 1))
    return (scale * np.kron(coarse, np.ones((8, 8)))).astype(np.float32)


def _logits(rng: np.random.Generator, scale: float) -> Array:
    """Peaked: one class of each row leads by far."""
    logits = 2.0 * scale * rng.standard_normal((_ROWS, _CLASSES))
    logits[np.arange(_ROWS), rng.integers(0, _CLASSES, _ROWS)] += 13.0 + 4.0 * scale
    return logits.astype(np.float32)
