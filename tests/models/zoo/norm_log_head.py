"""A head of four small failures: a sum over 512x512, an L2-norm with 1e-12, exp and log by hand, log(p + 1e-10)."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.blocks import linear, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import Feed, ZooModel

_MAPS = 4
_SIDE = 512
_TOKENS = 20
_WIDTH = 32


def norm_log_head() -> ZooModel:
    """Four branches on two inputs; each has an output of its own and its own few nodes that need FP32.

    `context`: sums over 512x512 exceed 65504. `unit`: padding tokens are all zero, and 0 / 1e-12 becomes 0 / 0.
    `log_probability`: exp of similarities up to 14. `entropy`: probabilities below FP16's range, log(0).
    """
    rng = np.random.default_rng(512)
    writer = GraphWriter("norm_log_head")
    maps = writer.input("maps", [1, _MAPS, _SIDE, _SIDE])
    tokens = writer.input("tokens", [1, _TOKENS, _WIDTH])

    total = writer.op("ReduceSum", [maps, writer.weight("area.axes", [2, 3], np.int64)], "/area", keepdims=0)
    mean = writer.op("Mul", [total, writer.weight("area.inverse", 1.0 / _SIDE**2)], "/area")
    context = linear(writer, mean, "/context", trained_matrix(rng, _MAPS, 16), rng.normal(0.0, 0.1, 16))
    writer.output(context, "context", [1, 16])

    weight, bias = trained_matrix(rng, _WIDTH, _WIDTH), np.zeros(_WIDTH)
    projected = linear(writer, tokens, "/project", weight, bias)
    length = writer.op("ReduceL2", [projected], "/normalize", axes=[-1], keepdims=1)
    guarded = writer.op("Clip", [length, writer.weight("normalize.eps", 1e-12)], "/normalize")
    unit = writer.op("Div", [projected, guarded], "/normalize")
    transposed = writer.op("Transpose", [unit], "/similarity", perm=[0, 2, 1])
    cosine = writer.op("MatMul", [unit, transposed], "/similarity")
    similarity = writer.op("Mul", [cosine, writer.weight("similarity.temperature", 14.0)], "/similarity")

    powers = writer.op("Exp", [similarity], "/log_sum_exp")
    last = writer.weight("log_sum_exp.axes", [-1], np.int64)
    partition = writer.op("Log", [writer.op("ReduceSum", [powers, last], "/log_sum_exp")], "/log_sum_exp")
    writer.output(writer.op("Sub", [similarity, partition], "/log_sum_exp"), "log_probability", [1, _TOKENS, _TOKENS])

    probability = writer.op("Softmax", [similarity], "/entropy", axis=-1)
    shifted = writer.op("Add", [probability, writer.weight("entropy.eps", 1e-10)], "/entropy")
    product = writer.op("Mul", [probability, writer.op("Log", [shifted], "/entropy")], "/entropy")
    negative = writer.op("ReduceSum", [product, writer.weight("entropy.axes", [-1], np.int64)], "/entropy", keepdims=0)
    writer.output(writer.op("Neg", [negative], "/entropy"), "entropy", [1, _TOKENS])
    writer.output(unit, "unit", [1, _TOKENS, _WIDTH])

    known_good = ["/area/ReduceSum", "/area/Mul", "/normalize/Clip", "/normalize/Div"]
    known_good += [f"/log_sum_exp/{op}" for op in ("Exp", "ReduceSum", "Log")]
    known_good += ["/entropy/Add", "/entropy/Log"]
    return ZooModel("norm_log_head", writer.model(), _inputs(rng), 0.01, tuple(known_good))


def _inputs(rng: np.random.Generator) -> list[Feed]:
    feeds: list[Feed] = []
    coarse = _SIDE // 8
    for scale in np.geomspace(0.8, 2.5, 8):
        blobs = np.abs(rng.standard_normal((1, _MAPS, coarse, coarse))) * rng.uniform(0.7, 1.5, (1, _MAPS, 1, 1))
        maps = scale * np.kron(blobs, np.ones((8, 8)))
        topics = rng.standard_normal((3, _WIDTH))
        tokens = topics[rng.integers(0, 3, _TOKENS)] + 0.4 * rng.standard_normal((_TOKENS, _WIDTH))
        tokens[_TOKENS - int(rng.integers(1, 4)) :] = 0.0
        feeds.append({"maps": maps.astype(np.float32), "tokens": (scale * tokens[None]).astype(np.float32)})
    return feeds
