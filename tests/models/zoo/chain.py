"""A deep chain: thousands of small residual branches, so that what is rounded early grows on its way to the end."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import ZooModel

_WIDTH = 16
_ROWS = 4
_INPUTS = 6


def chain(branches: int, seed: int = 0) -> ZooModel:
    """Four nodes a branch and four more: 2,004 of 500 branches, 12,004 of 3,000.

    Fails because squares overflow at the end, and because the error of so many roundings is far beyond the tolerance:
    a large part of the nodes has to stay in FP32, the first ones before all.
    """
    rng = np.random.default_rng(seed)
    writer = GraphWriter("chain")
    x = writer.input("x", [_ROWS, _WIDTH])
    for index in range(branches):
        x = writer.op("Add", [x, _branch(writer, rng, x, f"/{index}")], f"/{index}")
    scaled = writer.op("Mul", [x, writer.weight("loudness", 60.0)], "/end")
    square = writer.op("Mul", [scaled, scaled], "/end")
    root = writer.op("Sqrt", [writer.op("ReduceMean", [square], "/end", axes=[-1], keepdims=1)], "/end")
    writer.output(root, "size", [_ROWS, 1])
    writer.output(x, "stream", [_ROWS, _WIDTH])
    feeds = [np.random.default_rng(each).standard_normal((_ROWS, _WIDTH)) for each in range(_INPUTS)]
    inputs = [{"x": feed.astype(np.float32)} for feed in feeds]
    return ZooModel(f"chain_{branches}", writer.model(), inputs, 0.01)


def _branch(writer: GraphWriter, rng: np.random.Generator, x: str, at: str) -> str:
    matrix = rng.standard_normal((_WIDTH, _WIDTH)) * 0.5 / np.sqrt(_WIDTH)
    product = writer.op("MatMul", [x, writer.weight(f"{at}.weight", matrix)], at)
    bias = writer.weight(f"{at}.bias", rng.standard_normal(_WIDTH) * 0.05)
    return writer.op("Tanh", [writer.op("Add", [product, bias], at)], at)
