"""Tells the protobufs of ONNX and TensorFlow apart by their outermost fields; contents are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from halfwise.core.files.kinds import FileKind

__all__ = ["protobuf_kind"]

_MOST_FIELDS = 10_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# The outermost fields of each message: number -> wire type.
_ONNX = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_SAVED_MODEL = {1: 0, 2: 2}
_GRAPH_DEF = {1: 2, 2: 2, 3: 0, 4: 2, 5: 2}


def protobuf_kind(path: Path) -> FileKind | None:
    """ONNX, its beginning, a SavedModel or a frozen graph; None for what is no protobuf of these from end to end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        fields, whole = _fields(file, size)
    if not whole:
        begun = {1, 7} <= fields.keys() and fields.items() <= _ONNX.items()
        return FileKind.CUT_OFF_ONNX if begun else None
    if 7 in fields and fields.items() <= _ONNX.items():
        return FileKind.ONNX
    if {1, 2} <= fields.keys() and fields.items() <= _SAVED_MODEL.items():
        return FileKind.SAVED_MODEL
    if 1 in fields and fields.items() <= _GRAPH_DEF.items():
        return FileKind.FROZEN_GRAPH
    return None


def _fields(file: BinaryIO, size: int) -> tuple[dict[int, int], bool]:
    """The numbers and wire types of the outermost fields, and whether they fill the file exactly."""
    found: dict[int, int] = {}
    for _ in range(_MOST_FIELDS):
        position = file.tell()
        if position == size:
            return found, bool(found)
        tag = _varint(file)
        if tag is None or position > size:
            return found, False
        number, wire = tag >> 3, tag & 7
        if found.setdefault(number, wire) != wire:
            return {}, False
        if wire == _VARINT:
            skipped = 0 if _varint(file) is not None else None
        elif wire == _BYTES:
            skipped = _varint(file)
        else:
            skipped = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if skipped is None or file.tell() + skipped > size:
            return found, False
        file.seek(skipped, 1)
    return found, True


def _varint(file: BinaryIO) -> int | None:
    value = 0
    for place in range(10):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 127) << (7 * place)
        if byte[0] < 128:
            return value
    return None
