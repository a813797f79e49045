"""A model file as one whose large weights are external data: they lie in that very file, and the runtime maps them.

Parsed as usual, they are held in the message and again in the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from halfwise.core.protobuf_wire import ALIGNMENT, Field, field, fields, varint

__all__ = ["mapped"]

LEAST = 1 << 24  # bytes of a file for which it is worth its while
LARGE = 1 << 16  # bytes of a weight

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL, _LOCATION = 7, 5, 9, 13, 14  # numbers of fields
_IS_EXTERNAL = b"\x01"


def mapped(model: Path, settings: Any) -> bytes | None:
    """Its protobuf; None where that brings nothing, or where it is no model."""
    if model.stat().st_size < LEAST:
        return None
    with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        try:
            graphs = [each for each in fields(content, 0, len(content)) if each.number == _GRAPH]
            if len(graphs) != 1:
                return None
            graph = b"".join(_graph(content, graphs[0], model.name))
        except ValueError:
            return None
        before, behind = content[: graphs[0].start], content[graphs[0].end :]
    settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
    return before + field(_GRAPH, graph) + behind


def _graph(content: mmap, graph: Field, name: str) -> Iterator[bytes]:
    for each in fields(content, graph.content, graph.end):
        tensor = _outside(content, each, name) if each.number == _INITIALIZER and each.end - each.start > LARGE else b""
        yield field(_INITIALIZER, tensor) if tensor else content[each.start : each.end]


def _outside(content: mmap, tensor: Field, name: str) -> bytes:
    """The tensor with its content left in the file; nothing where it is not one piece there, or not aligned."""
    inside = list(fields(content, tensor.content, tensor.end))
    raw = [each for each in inside if each.number == _RAW_DATA]
    is_external = any(each.number in (_EXTERNAL, _LOCATION) for each in inside)
    if len(raw) != 1 or is_external or raw[0].content % ALIGNMENT:
        return b""
    kept = b"".join(content[each.start : each.end] for each in inside if each.number != _RAW_DATA)
    place = {"location": name, "offset": str(raw[0].content), "length": str(raw[0].end - raw[0].content)}
    entries = (field(1, key.encode()) + field(2, text.encode()) for key, text in place.items())
    where = b"".join(field(_EXTERNAL, entry) for entry in entries)
    return kept + where + varint(_LOCATION << 3) + _IS_EXTERNAL
