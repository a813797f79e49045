"""Generated models for the benchmarks of a fleet: transformers of 52 to 1,477 nodes, each with weights of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.models.zoo import transformer

__all__ = ["MOST", "model_of", "sizes", "write_fleet"]

MOST = 1500  # nodes
_LEAST = 50
_HEAD, _ATTENTION, _LAYER = 13, 39, 61  # nodes behind the layers, of a layer's first half, and of a layer
_SAMPLES = 4


def sizes(count: int, most: int = MOST) -> list[int]:
    """Nodes of so many models, evenly on a logarithmic axis."""
    return [round(float(nodes)) for nodes in np.geomspace(_LEAST, most, count)]


def write_fleet(folder: Path, nodes: Sequence[int], settings: str = "", first: int = 0, step: int = 1) -> Path:
    """The fleet's file, with a model of about as many nodes for each; `settings` are lines of its table [fleet].

    Models are numbered, and have weights of their number.
    """
    lines = ["[fleet]", settings, "[defaults]", 'do = ["fix"]', 'inputs = "{name}-inputs"']
    for place, wanted in enumerate(nodes):
        number = first + step * place
        name = f"model-{number:03d}"
        model, feeds = model_of(wanted, number)
        onnx.save(model, folder / f"{name}.onnx")
        inputs = folder / f"{name}-inputs"
        inputs.mkdir()
        for index, feed in enumerate(feeds[:_SAMPLES]):
            np.savez(inputs / f"{index}.npz", **dict[str, Any](feed))
        lines += ["[[models]]", f'path = "{name}.onnx"']
    file = folder / "fleet.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def model_of(wanted: int, seed: int) -> tuple[onnx.ModelProto, Sequence[Any]]:
    """Whole layers, or as many and the first half of one more: what comes nearest."""
    halves = {_HEAD + _LAYER * layers: (layers, False) for layers in range(1, 25)}
    halves |= {_HEAD + _LAYER * layers - _LAYER + _ATTENTION: (layers, True) for layers in range(1, 25)}
    layers, half = halves[min(halves, key=lambda nodes: abs(nodes - wanted))]
    built = transformer(layers, seed=seed)
    return (_without_last_half(built.model, layers - 1) if half else built.model), built.inputs


def _without_last_half(model: onnx.ModelProto, last: int) -> onnx.ModelProto:
    """The head reads what the attention of the last layer gave."""
    scope = f"/layers.{last}"
    outputs = {node.name: node.output[0] for node in model.graph.node}
    dropped = (f"{scope}/norm2/", f"{scope}/mlp/")
    kept = [n for n in model.graph.node if n.name != f"{scope}/Add_1" and not n.name.startswith(dropped)]
    for node in kept:
        node.input[:] = [outputs[f"{scope}/Add"] if i == outputs[f"{scope}/Add_1"] else i for i in node.input]
    read = {name for node in kept for name in node.input}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.initializer[:]
    made.graph.node.extend(kept)
    made.graph.initializer.extend(each for each in model.graph.initializer if each.name in read)
    return made
