"""A detector whose boxes are off by 3 to 5 pixels in FP16, while PyTorch's autocast is fine: coordinates reach 7,680,
where FP16 has only every fourth number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graph import Graph
from numpy.typing import NDArray

import halfwise

QUERIES, WIDTH = 40, 32
CELLS, STRIDE = 240, 32.0  # of the grid; in pixels


def model() -> Path:
    rng = np.random.default_rng(11)
    graph = Graph(features=[QUERIES, WIDTH])

    def mixing(columns: int, scale: float) -> NDArray[np.float64]:
        return rng.normal(0, scale / np.sqrt(WIDTH), (WIDTH, columns))

    hidden = graph.op("Relu", "/body/Relu", graph.linear("/body/fc1", "features", mixing(WIDTH, 1.5), np.zeros(WIDTH)))
    hidden = graph.op("Relu", "/body/Relu_1", graph.linear("/body/fc2", hidden, mixing(WIDTH, 1.5), np.zeros(WIDTH)))
    offset = graph.op("Tanh", "/box/Tanh", graph.linear("/box/offset", hidden, mixing(2, 1.0), np.zeros(2)))
    size = graph.op("Exp", "/box/Exp", graph.linear("/box/size", hidden, mixing(2, 0.5), np.full(2, 3.5)))
    cell = graph.op("Add", "/box/Add", offset, graph.weight("box.grid", rng.uniform(1, CELLS - 1, (QUERIES, 2))))
    centre = graph.op("Mul", "/box/Mul", cell, graph.weight("box.stride", STRIDE))
    half = graph.op("Mul", "/box/Mul_1", size, graph.weight("box.half", 0.5))
    low, high = graph.op("Sub", "/box/Sub", centre, half), graph.op("Add", "/box/Add_1", centre, half)
    boxes = graph.op("Concat", "/box/Concat", low, high, axis=-1)
    classes = graph.op(
        "Softmax", "/class/Softmax", graph.linear("/class", hidden, mixing(6, 3.0), np.zeros(6)), axis=-1
    )
    return graph.save("detector.onnx", boxes=(boxes, [QUERIES, 4]), scores=(classes, [QUERIES, 6]))


def inputs() -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(12)
    return [{"features": rng.normal(0, 1, (QUERIES, WIDTH)).astype(np.float32)} for _ in range(10)]


def main() -> None:
    path = model()
    result = halfwise.fix(path, inputs(), tolerance=["boxes:max_abs<=0.5", "scores:max_abs<=0.01"])
    print(f"plain FP16: boxes off by up to {result.fp16['boxes'].max_abs:.1f} pixels,", end=" ")
    print(f"relative error {result.fp16['boxes'].rel_l2:.1g}")
    print(f"fixed: boxes off by up to {result.fixed['boxes'].max_abs:.1f} pixels")
    for node in result.plan.nodes:
        print(f"  {node.name} stays in FP32: {node.measured}")


if __name__ == "__main__":
    main()
