"""A LayerNorm that was asked for in FP32 and still ran in FP16: a Myelin region of TensorRT 8.6 swallowed it. How to
see that, and two ways out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from graph import Graph
from numpy.typing import NDArray

import halfwise
from halfwise.compiler.audit import audit
from halfwise.compiler.layers import read_layers
from halfwise.compiler.layers_model import nodes_of_model

TOKENS, WIDTH, CLASSES = 8, 64, 6
OUTLIERS = {5: 900.0, 23: -600.0, 40: 320.0}  # a few channels far beyond the rest, as trained transformers have them


def model() -> Path:
    rng = np.random.default_rng(16)
    bias = rng.normal(0, 1, WIDTH)
    bias[list(OUTLIERS)] = list(OUTLIERS.values())
    scale = 10 * rng.lognormal(0, 0.2, WIDTH)
    scale[list(OUTLIERS)] = 0.05
    graph = Graph(tokens=[TOKENS, WIDTH])
    hidden = graph.linear("/embed", "tokens", rng.normal(0, 10 / np.sqrt(WIDTH), (WIDTH, WIDTH)), bias)
    hidden = graph.layer_norm("/norm", hidden, scale, rng.normal(0, 0.1, WIDTH))
    scores = graph.linear("/head", hidden, rng.normal(0, 1 / np.sqrt(WIDTH), (WIDTH, CLASSES)), np.zeros(CLASSES))
    return graph.save("block.onnx", scores=(scores, [TOKENS, CLASSES]))


def inputs() -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(7)
    return [{"tokens": rng.normal(0, s, (TOKENS, WIDTH)).astype(np.float32)} for s in np.geomspace(0.7, 1.4, 10)]


def engine_layers(path: Path) -> Path:
    """What `trtexec --exportLayerInfo` of 8.6 writes of such an engine: one region, and nothing inside it."""
    half = "Row major linear FP16"

    def tensor(name: str, shape: list[int]) -> dict[str, object]:
        return {"Name": name, "Location": "Device", "Dimensions": shape, "Format/Datatype": half}

    region = {
        "Name": "{ForeignNode[/embed/MatMul.../head/Add]}",
        "LayerType": "Myelin",
        "Inputs": [tensor("tokens", [TOKENS, WIDTH])],
        "Outputs": [tensor("scores", [TOKENS, CLASSES])],
        "TacticValue": "0x0000000000000000",
    }
    file = path.with_name("layers.json")
    file.write_text(json.dumps({"Layers": [region], "Bindings": ["tokens", "scores"]}))
    return file


def main() -> None:
    path = model()
    kept = halfwise.fix(path, inputs(), repairs=["none"], profile="strict")
    print(f"plain FP16: relative error {kept.fp16['scores'].rel_l2:.1g}; allowed 0.01")
    print(f"asked for in FP32: {', '.join(kept.fp32_nodes)}")

    wanted = {node.name: node.format for node in kept.plan.nodes}
    seen = audit(read_layers(engine_layers(path)), model_nodes=nodes_of_model(path), wanted=wanted)
    print(f"the engine: {len(seen.violations)} of {len(wanted)} not shown to be in FP32")
    print(f"  {seen.violations[0].node}: {seen.violations[0].why}")

    repaired = halfwise.fix(path, inputs(), profile="strict")
    for repair in repaired.plan.repairs:
        print(f"repaired: {repair.algebra}")
    print(f"  relative error {repaired.fixed['scores'].rel_l2:.1g}, FP32 nodes: {len(repaired.fp32_nodes)}")


if __name__ == "__main__":
    main()
