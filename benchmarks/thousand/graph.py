"""One model of the corpus: how it is made, and the files in which it lies."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

__all__ = ["Feed", "Graph", "Made", "in_the_tenth", "keep"]

Feed = Mapping[str, Any]
WHOLE = 1 << 30  # bytes; a larger model keeps its weights beside it


@dataclass(frozen=True)
class Made:
    """A model, what to feed it, and the FP32 model that it was typed from, where it was."""

    model: onnx.ModelProto
    feeds: Sequence[Feed]
    original: onnx.ModelProto | None = None


@dataclass(frozen=True)
class Graph:
    """`make` is called in a process of its own; `needs` are the packages without which it cannot be."""

    name: str
    kind: str
    make: Callable[[], Made]
    needs: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())


def in_the_tenth(graphs: Sequence[Graph]) -> list[Graph]:
    """Of each kind the first and then every tenth, in the order of a hash of the names."""
    chosen = []
    for kind in dict.fromkeys(graph.kind for graph in graphs):
        chosen += sorted((graph for graph in graphs if graph.kind == kind), key=lambda each: each.seed)[::10]
    return chosen


def keep(made: Made, folder: Path) -> None:
    """Write what was made; the model last, because its presence says that the rest is there."""
    inputs = folder / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for index, feed in enumerate(made.feeds):
        np.savez(inputs / f"{index:02}.npz", allow_pickle=False, **feed)
    if made.original is not None:
        onnx.save(made.original, folder / "original.onnx")
    onnx.save(made.model, folder / "model.onnx.part", format="protobuf")
    (folder / "model.onnx.part").rename(folder / "model.onnx")
