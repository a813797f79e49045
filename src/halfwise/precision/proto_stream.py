"""Writes an ONNX file whose weights come piece by piece: no message that holds them is ever made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

import onnx

__all__ = ["Streamed", "write_streamed"]

_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


@dataclass(frozen=True)
class Streamed:
    """An initializer without its content, the content's length, and the content."""

    tensor: onnx.TensorProto
    length: int
    content: Iterable[bytes]


def write_streamed(file: IO[bytes], proto: onnx.ModelProto, weights: Iterable[Streamed]) -> None:
    """The model with these initializers behind its own. In protobuf's format a message may come field by field."""
    rest = onnx.ModelProto()
    rest.CopyFrom(proto)
    rest.ClearField("graph")
    graph = proto.graph.SerializeToString()
    ahead = []
    for weight in weights:
        head = weight.tensor.SerializeToString() + _tag(_RAW_DATA) + _varint(weight.length)
        ahead.append((_tag(_INITIALIZER) + _varint(len(head) + weight.length) + head, weight))
    length = len(graph) + sum(len(head) + weight.length for head, weight in ahead)
    file.write(rest.SerializeToString() + _tag(_GRAPH) + _varint(length) + graph)
    for head, weight in ahead:
        file.write(head)
        for piece in weight.content:
            file.write(piece)


def _tag(number: int) -> bytes:
    """Of a field with a length."""
    return _varint(number << 3 | 2)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
