"""Protobuf's format field by field, for messages that are too large to be parsed or made whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["ALIGNMENT", "Bytes", "Field", "field", "fields", "tag", "varint"]

ALIGNMENT = 64  # bytes, of a weight in a file that may be mapped: that of ONNX Runtime's own memory

Bytes = bytes | memoryview
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
_LONGEST = 10  # bytes of a number


class Field(NamedTuple):
    """Where it lies: its tag starts at `start`, and its content ends at `end`."""

    number: int
    start: int
    content: int
    end: int


def fields(data: Bytes, start: int, end: int) -> Iterator[Field]:
    """Those of the message between; ValueError where that is none."""
    while start < end:
        key, content = _read(data, start)
        wire, size = key & 7, 0
        if wire == _BYTES:
            size, content = _read(data, content)
        elif wire == _VARINT:
            size = _read(data, content)[1] - content
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError(f"no field has the wire type {wire}")
        if content + size > end:
            raise ValueError("a field goes beyond its message")
        yield Field(key >> 3, start, content, content + size)
        start = content + size


def field(number: int, content: bytes) -> bytes:
    """One that has a length."""
    return tag(number) + varint(len(content)) + content


def tag(number: int) -> bytes:
    """Of such a field."""
    return varint(number << 3 | _BYTES)


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _read(data: Bytes, start: int) -> tuple[int, int]:
    """A number, and where the next thing begins."""
    number = 0
    for place, byte in enumerate(data[start : start + _LONGEST]):
        number |= (byte & 0x7F) << (7 * place)
        if byte <= 0x7F:
            return number, start + place + 1
    raise ValueError("a number does not end")
