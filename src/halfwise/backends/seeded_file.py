"""Runs a model file whose nodes draw random numbers: every session of every model draws the same by a node's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.backends.runtime_path import with_data_in

__all__ = ["Sessions", "seeded"]


@dataclass(frozen=True)
class Sessions:
    """One session for all samples; of a model with random nodes a new one for each, which draws from the start."""

    first: Any
    start: Callable[[], Any]
    random: bool

    @classmethod
    def begun(cls, start: Callable[[], Any], *, random: bool) -> Sessions:
        return cls(start(), start, random)

    def each(self) -> Iterator[Any]:
        yield self.first
        while True:
            yield self.start() if self.random else self.first


def seeded(model: Path, settings: Any) -> bytes:
    """The protobuf with a seed for each random node. Its external weights stay where they are."""
    import onnx

    from halfwise.model.random_draws import seed_file

    proto = onnx.load(str(model), load_external_data=False)
    seed_file(proto.graph)
    with_data_in(settings, model.parent)
    return bytes(proto.SerializeToString())
