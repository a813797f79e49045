"""A transformer block whose attention TensorRT fuses into `_gemm_mha_v2`, which gave wrong results in 10.0.0: what is
known of that version, and the FP32 region that keeps the kernel out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graph import Graph
from numpy.typing import NDArray

from halfwise.compiler.attention_advice import keep_kernel_out
from halfwise.core.errors import MissingBackend
from halfwise.core.targets import Target
from halfwise.deploy.advisories import facts_of_file, match

TOKENS, WIDTH, HEADS = 64, 64, 4


def model() -> Path:
    rng = np.random.default_rng(3)
    graph = Graph(tokens=[1, TOKENS, WIDTH])

    def mixing() -> NDArray[np.float64]:
        return rng.normal(0, 1 / np.sqrt(WIDTH), (WIDTH, WIDTH))

    split = graph.weight("split", [1, TOKENS, HEADS, WIDTH // HEADS], np.int64)

    def heads(name: str, order: list[int]) -> str:
        made = graph.linear(f"/attn/{name}", "tokens", mixing(), np.zeros(WIDTH))
        return graph.op(
            "Transpose",
            f"/attn/{name}/Transpose",
            graph.op("Reshape", f"/attn/{name}/Reshape", made, split),
            perm=order,
        )

    query, key, value = heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 3, 1]), heads("v", [0, 2, 1, 3])
    scores = graph.op("MatMul", "/attn/MatMul", query, key)
    scores = graph.op("Mul", "/attn/Mul", scores, graph.weight("attn.scale", (WIDTH // HEADS) ** -0.5))
    mixed = graph.op("MatMul", "/attn/MatMul_1", graph.op("Softmax", "/attn/Softmax", scores, axis=-1), value)
    mixed = graph.op("Transpose", "/attn/Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = graph.op("Reshape", "/attn/Reshape", mixed, graph.weight("join", [1, TOKENS, WIDTH], np.int64))
    out = graph.linear("/attn/out", mixed, mixing(), np.zeros(WIDTH))
    return graph.save("block.onnx", out=(out, [1, TOKENS, WIDTH]))


def main() -> None:
    path = model()
    for version in ("10.0.0", "10.0.1"):
        known = match(Target.parse(f"trt-{version}@a100"), facts_of_file(path))
        fused = [a for a in known if "_gemm_mha_v2" in a.entry.symptom and not a.open_questions]
        print(f"TensorRT {version}: {', '.join(a.entry.id for a in fused) or 'nothing known of _gemm_mha_v2'}")
        for advisory in fused:
            print(f"  {advisory.entry.symptom} Fixed in {advisory.entry.fixed_in}.")
    try:
        region = keep_kernel_out(path, ["_gemm_mha"])
    except MissingBackend as error:
        print(f"not compiled: {error}")
        return
    print(f"in FP32 it is gone: {', '.join(region.nodes)}" if region is not None else "it is not fused here")


if __name__ == "__main__":
    main()
