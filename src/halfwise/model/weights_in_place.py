"""Large weights stay in the model's file: they are mapped, as external data is, neither parsed nor held.

A protobuf library copies what it parses, and copies it once more whenever it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir

__all__ = ["HERE", "bring_home", "without_weights"]

HERE = f"\0{os.urandom(16).hex()}"  # as the file of external data: nobody else can name it
_LEAST = 1 << 16  # bytes of a weight
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types of a protobuf
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9  # field numbers of ModelProto, GraphProto and TensorProto
_DESCRIBES = frozenset((1, 2, 8, 12, 16))  # fields of TensorProto: sizes, type, name, documentation, metadata
_EXTERNAL, _LOCATION = 13, 14
_IS_EXTERNAL = 1


class _Field(NamedTuple):
    number: int
    wire: int
    tag: int  # where it begins
    start: int  # of its value
    stop: int


class _Irregular(Exception):
    """Bytes that are no protobuf, or one written in a way that nobody writes."""


def without_weights(content: memoryview) -> bytes | None:
    """The same model whose large weights are external data in the file itself; None where it is written oddly."""
    try:
        graphs = [field for field in _fields(content, 0, len(content)) if field.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].wire != _BYTES:
            return None
        (graph,) = graphs
        inner = _without(content, graph)
    except _Irregular:
        return None
    return b"".join((content[: graph.tag], _message(_GRAPH, inner), content[graph.stop :]))


def bring_home(model: ir.Model, path: Path) -> None:
    """Says where in which file the weights lie that stayed in it."""
    there = path.resolve() if path.is_symlink() else path
    for value in model.graph.initializers.values():
        held = value.const_value
        if isinstance(held, ir.ExternalTensor) and held.location == HERE:
            value.const_value = ir.ExternalTensor(
                there.name,
                held.offset,
                held.length,
                held.dtype,
                shape=held.shape,
                name=held.name,
                doc_string=held.doc_string,
                metadata_props=held.metadata_props,
                base_dir=there.parent,
            )


def _without(content: memoryview, graph: _Field) -> bytes:
    pieces, taken = [], graph.start
    for field in _fields(content, graph.start, graph.stop):
        if field.number == _INITIALIZER and field.wire == _BYTES and field.stop - field.start >= _LEAST:
            light = _light(content, field)
            if light is not None:
                pieces += [content[taken : field.tag], _message(_INITIALIZER, light)]
                taken = field.stop
    return b"".join((*pieces, content[taken : graph.stop]))


def _light(content: memoryview, tensor: _Field) -> bytes | None:
    """A tensor without its bytes, and where these lie; None where they do not stand in one place."""
    raw, rest = None, []
    for field in _fields(content, tensor.start, tensor.stop):
        if field.number == _RAW and field.wire == _BYTES and raw is None:
            raw = field
        elif field.number in _DESCRIBES:
            rest.append(content[field.tag : field.stop])
        else:
            return None
    if raw is None or raw.stop - raw.start < _LEAST:
        return None
    told = {"location": HERE, "offset": str(raw.start), "length": str(raw.stop - raw.start)}
    entries = (_message(_EXTERNAL, _message(1, key.encode()) + _message(2, of.encode())) for key, of in told.items())
    return b"".join((*rest, *entries, _varint(_LOCATION << 3 | _VARINT), _varint(_IS_EXTERNAL)))


def _fields(content: memoryview, start: int, stop: int) -> Iterator[_Field]:
    at = start
    while at < stop:
        tag, begin = _read_varint(content, at, stop)
        wire, end = tag & 7, begin
        if wire == _BYTES:
            length, begin = _read_varint(content, begin, stop)
            end = begin + length
        elif wire == _VARINT:
            _, end = _read_varint(content, begin, stop)
        elif wire in (_EIGHT, _FOUR):
            end = begin + (8 if wire == _EIGHT else 4)
        else:
            raise _Irregular
        if end > stop:
            raise _Irregular
        yield _Field(tag >> 3, wire, at, begin, end)
        at = end


def _read_varint(content: memoryview, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop and shift < 64:
        byte = content[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
        shift += 7
    raise _Irregular


def _message(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
