"""One model of the corpus: how it is made, and the files in which it lies."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

__all__ = ["Feed", "Graph", "Made", "in_the_tenth", "keep", "kept_feeds", "sampled"]

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


def sampled(graphs: Sequence[Graph], count: int) -> list[Graph]:
    """So many of them: some of every kind, more of a kind that has more, always the same ones."""
    waiting = {kind: [graph for graph in graphs if graph.kind == kind] for kind in {graph.kind for graph in graphs}}
    sizes = {kind: math.sqrt(len(found)) for kind, found in waiting.items()}
    waiting = {kind: sorted(found, key=lambda each: each.seed) for kind, found in sorted(waiting.items())}
    chosen: list[Graph] = []
    for _ in range(min(count, len(graphs))):
        taken = Counter(graph.kind for graph in chosen)
        kind = min((kind for kind in waiting if waiting[kind]), key=lambda kind: taken[kind] / sizes[kind])
        chosen.append(waiting[kind].pop(0))
    return chosen


def keep(made: Made, folder: Path) -> None:
    """Write what was made; the model last, because its presence says that the rest is there."""
    inputs = folder / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for index, feed in enumerate(made.feeds):
        np.savez(inputs / f"{index:02}.npz", **_named(feed))
    if made.original is not None:
        onnx.save(made.original, folder / "original.onnx")
    onnx.save(made.model, folder / "model.onnx.part", format="protobuf")
    (folder / "model.onnx.part").rename(folder / "model.onnx")


def kept_feeds(folder: Path) -> list[Feed]:
    """What was kept, sequences as lists; of an optional input that is left out there is nothing."""
    return [_read(path) for path in sorted((folder / "inputs").glob("*.npz"))]


def _named(feed: Feed) -> Feed:
    """Arrays by name, those of a sequence by their place in it."""
    lists = {name: held for name, held in feed.items() if isinstance(held, list)}
    plain = {name: held for name, held in feed.items() if name not in lists and held is not None}
    return plain | {f"{name}[{place}]": each for name, held in lists.items() for place, each in enumerate(held)}


def _read(path: Path) -> Feed:
    found: dict[str, Any] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            base, bracket, place = name.rpartition("[")
            if bracket and place[:-1].isdigit() and place.endswith("]"):
                found.setdefault(base, []).append(arrays[name])
            else:
                found[name] = arrays[name]
    return found
