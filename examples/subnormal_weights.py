"""A classifier whose FP16 engine is wrong on a T4, however many layers are forced to FP32: the builder warns of 111
subnormal weights and 4 below the smallest subnormal, and the culprit is its input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graph import Graph
from numpy.typing import NDArray

import halfwise

ROWS, FEATURES, WIDTH, CLASSES = 4, 24, 48, 5


def model() -> Path:
    rng = np.random.default_rng(4)
    graph = Graph(readings=[ROWS, FEATURES])
    embed = rng.choice([-1.0, 1.0], (FEATURES, WIDTH)) * rng.uniform(1e-4, 3e-4, (FEATURES, WIDTH))  # for raw readings
    hidden = graph.linear("/embed", "readings", embed, rng.normal(0, 0.5, WIDTH))
    hidden = graph.op("Relu", "/act/Relu", hidden)
    mixing = rng.choice([-1.0, 1.0], (WIDTH, WIDTH)) * rng.uniform(0.02, 0.3, (WIDTH, WIDTH))
    tiny = rng.choice(WIDTH * WIDTH, 115, replace=False)
    mixing.flat[tiny[:111]] = rng.uniform(1e-6, 5e-5, 111)
    mixing.flat[tiny[111:]] = 2e-8
    hidden = graph.linear("/mix", hidden, mixing, rng.normal(0, 0.5, WIDTH))
    hidden = graph.op("Relu", "/act_1/Relu", hidden)
    head = rng.choice([-1.0, 1.0], (WIDTH, CLASSES)) * rng.uniform(0.02, 0.3, (WIDTH, CLASSES))
    scores = graph.linear("/head", hidden, head, rng.normal(0, 0.5, CLASSES))
    return graph.save("t4.onnx", scores=(scores, [ROWS, CLASSES]))


def inputs() -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(5)
    return [{"readings": rng.uniform(0, 90_000, (ROWS, FEATURES)).astype(np.float32)} for _ in range(10)]


def main() -> None:
    path = model()
    weights = halfwise.scan(path).totals
    print(f"weights: {weights.subnormal} subnormal, {weights.underflow} below the smallest subnormal")

    forced = halfwise.fix(path, inputs(), io_types=halfwise.Format.FP16)
    print(f"with FP16 inputs: tolerance {'kept' if forced.met else 'not kept'}, though", end=" ")
    print(f"{len(forced.plan.nodes)} of {len(forced.sites.all)} nodes are in FP32")

    result = halfwise.fix(path, inputs(), repairs=["none"])
    print(f"with FP32 inputs: tolerance {'kept' if result.met else 'not kept'}")
    for node in result.plan.nodes:
        print(f"  {node.name} stays in FP32: {node.cause}")
    print(f"  rounding the weights of /mix, tiny ones and all: error {result.fixed['scores'].rel_l2:.1g}, allowed 0.01")


if __name__ == "__main__":
    main()
