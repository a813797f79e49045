"""A tracker whose parts convert well and whose whole does not: the softmax of one multi-head attention gets logits that
FP16 cannot tell apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from graph import Graph
from numpy.typing import NDArray

import halfwise

TOKENS, WIDTH, HEADS = 24, 32, 2


class Tracker(Graph):
    def __init__(self) -> None:
        super().__init__(features=[TOKENS, WIDTH])
        self.rng = np.random.default_rng(2)

    def mixing(self, columns: int = WIDTH) -> NDArray[np.float64]:
        return self.rng.normal(0, 1 / np.sqrt(WIDTH), (WIDTH, columns))

    def block(self, name: str, source: str, key_bias: float) -> str:
        attended = self.op("Add", f"{name}/Add", source, self.attention(f"{name}/self_attn", source, key_bias))
        hidden = self.layer_norm(f"{name}/norm1", attended, np.ones(WIDTH), np.zeros(WIDTH))
        fed = self.op("Relu", f"{name}/Relu", self.linear(f"{name}/fc1", hidden, self.mixing(), np.zeros(WIDTH)))
        fed = self.linear(f"{name}/fc2", fed, self.mixing(), np.zeros(WIDTH))
        return self.layer_norm(
            f"{name}/norm2", self.op("Add", f"{name}/Add_1", hidden, fed), np.ones(WIDTH), np.zeros(WIDTH)
        )

    def attention(self, name: str, source: str, key_bias: float) -> str:
        """A bias of the keys moves all logits of a query together: a softmax in FP32 does not see it."""
        split = self.weight(f"{name[1:]}.heads", [TOKENS, HEADS, WIDTH // HEADS], np.int64)

        def heads(part: str, bias: NDArray[np.float64], order: list[int]) -> str:
            made = self.op(
                "Reshape", f"{name}/{part}/Reshape", self.linear(f"{name}/{part}", source, self.mixing(), bias), split
            )
            return self.op("Transpose", f"{name}/{part}/Transpose", made, perm=order)

        query = heads("q", np.zeros(WIDTH), [1, 0, 2])
        key = heads("k", self.rng.normal(0, key_bias, WIDTH) if key_bias else np.zeros(WIDTH), [1, 2, 0])
        value = heads("v", np.zeros(WIDTH), [1, 0, 2])
        logits = self.op("MatMul", f"{name}/MatMul", query, key)
        mixed = self.op("MatMul", f"{name}/MatMul_1", self.op("Softmax", f"{name}/Softmax", logits, axis=-1), value)
        mixed = self.op("Transpose", f"{name}/Transpose", mixed, perm=[1, 0, 2])
        mixed = self.op(
            "Reshape", f"{name}/Reshape", mixed, self.weight(f"{name[1:]}.width", [TOKENS, WIDTH], np.int64)
        )
        return self.linear(f"{name}/out", mixed, self.mixing(), np.zeros(WIDTH))


def model() -> Path:
    graph = Tracker()
    hidden = graph.block("/backbone", "features", 0.0)
    hidden = graph.block("/filter_predictor", hidden, 120.0)
    scores = graph.linear("/classifier", hidden, graph.mixing(3), np.zeros(3))
    return graph.save("tracker.onnx", scores=(scores, [TOKENS, 3]))


def inputs() -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(6)
    return [{"features": rng.normal(0, 1, (TOKENS, WIDTH)).astype(np.float32)} for _ in range(10)]


def main() -> None:
    result = halfwise.fix(model(), inputs(), repairs=["none"])
    print(f"plain FP16: relative error {result.fp16['scores'].rel_l2:.1g}; allowed 0.01")
    modules: Counter[str] = Counter()
    for name, share in result.shares.items():
        modules["/".join(name.split("/")[:3])] += share  # type: ignore[assignment]
    print("share of the error, by module:")
    for name, share in modules.most_common(2):
        print(f"  {share:4.0%} {name}")
    print("and by node:")
    for name, share in Counter(result.shares).most_common(2):
        print(f"  {share:4.0%} {name}")
    print(f"kept in FP32: {', '.join(result.fp32_nodes)}")
    print(f"fixed: relative error {result.fixed['scores'].rel_l2:.1g}")


if __name__ == "__main__":
    main()
