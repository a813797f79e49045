"""A model file as one whose large weights are external data: they lie in that very file, and the runtime maps them.

Parsed as usual, they are held in the message and again in the runtime.
"""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from halfwise.backends.runtime_path import speakable, with_data_in
from halfwise.core.protobuf_wire import ALIGNMENT
from halfwise.model.weights_in_place import without_weights

__all__ = ["mapped"]

LEAST = 1 << 24  # bytes of a file for which it is worth its while


def mapped(model: Path, settings: Any) -> bytes | None:
    """Its protobuf; None where that brings nothing, or where it is no model."""
    if model.stat().st_size < LEAST or not speakable(model):
        return None
    with (
        model.open("rb") as file,
        mmap(file.fileno(), 0, access=ACCESS_READ) as content,
        memoryview(content) as view,
    ):
        found = without_weights(view, model.name, ALIGNMENT)
    if found is None:
        return None
    with_data_in(settings, model.parent)
    return found
