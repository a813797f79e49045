"""Writes an ONNX file whose weights come piece by piece: no message that holds them is ever made.

Each lies in the file as a runtime wants it in memory, so that it can be mapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO

import onnx

from halfwise.core.protobuf_wire import ALIGNMENT, field, tag, varint

__all__ = ["Streamed", "write_streamed"]

_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_NAME = onnx.TensorProto.DESCRIPTOR.fields_by_name["name"].number
_RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_SPARE = (b"", *(field(_NAME, b" " * count) for count in range(2 * ALIGNMENT)))  # bytes that nobody reads


@dataclass(frozen=True)
class Streamed:
    """An initializer without its content, the content's length, and the content."""

    tensor: onnx.TensorProto
    length: int
    content: Iterable[bytes | memoryview]


def write_streamed(file: IO[bytes], proto: onnx.ModelProto, weights: Iterable[Streamed]) -> None:
    """The model with these initializers behind its own. In protobuf's format a message may come field by field."""
    rest = onnx.ModelProto()
    rest.CopyFrom(proto)
    rest.ClearField("graph")
    graph, listed = proto.graph.SerializeToString(), list(weights)
    start = rest.SerializeToString() + tag(_GRAPH)
    for size in range(1, 11):  # of the length's own bytes
        heads, end = _heads(listed, len(start) + size + len(graph))
        length = varint(end - len(start) - size)
        if len(length) == size:
            break
    file.write(start + length + graph)
    for head, weight in zip(heads, listed, strict=True):
        file.write(head)
        for piece in weight.content:
            file.write(piece)


def _heads(weights: Sequence[Streamed], start: int) -> tuple[list[bytes], int]:
    """What stands before each content, where the first head begins at `start`; and where the last content ends."""
    heads = []
    for weight in weights:
        heads.append(_head(weight, start))
        start += len(heads[-1]) + weight.length
    return heads, start


def _head(weight: Streamed, start: int) -> bytes:
    """With spare bytes, so that the content is aligned: of a name that is there twice, the last counts."""
    own: bytes = weight.tensor.SerializeToString() + tag(_RAW_DATA) + varint(weight.length)
    for spare in _SPARE:
        inner = spare + own
        head = tag(_INITIALIZER) + varint(len(inner) + weight.length) + inner
        if (start + len(head)) % ALIGNMENT == 0:
            return head
    raise AssertionError("every place is reached")
