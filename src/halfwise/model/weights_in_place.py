"""Large weights stay in the model's file: they are mapped, as external data is, neither parsed nor held.

A protobuf library copies what it parses, and copies it once more whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["without_weights"]

_LEAST = 1 << 16  # bytes of a weight
_DEEPEST = 100  # messages in one another, of a protobuf
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
# Field numbers of ModelProto, GraphProto, NodeProto, AttributeProto and TensorProto.
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_OP_TYPE, _ATTRIBUTE = 4, 5
_TENSOR, _BODY, _BODIES = 5, 6, 11
_RAW, _EXTERNAL, _LOCATION = 9, 13, 14
_DESCRIBES = frozenset((1, 2, 8, 12, 16))  # sizes, type, name, documentation, metadata
_IS_EXTERNAL = 1


class _Field(NamedTuple):
    number: int
    wire: int
    tag: int  # where it begins
    start: int  # of its value
    stop: int


_Rewrite = Callable[[_Field, int], bytes | None]  # a field, how many messages deep it lies


class _Irregular(Exception):
    """Bytes that are no protobuf, or one written in a way that nobody writes."""


def without_weights(content: memoryview, name: str) -> tuple[bytes, int] | None:
    """The same model whose large weights are external data in the file itself, of that name, and how many these are.

    They are initializers and values of Constant nodes, those of bodies included. None where there is none, or where it
    is written oddly.
    """
    rewriting = _Rewriting(content, name)
    try:
        light = rewriting.model()
    except _Irregular:
        return None
    return None if light is None else (light, len(rewriting.stayed))


class _Rewriting:
    def __init__(self, content: memoryview, name: str) -> None:
        self._content, self._name = content, name
        self.stayed: list[_Field] = []

    def model(self) -> bytes | None:
        whole = _Field(0, _BYTES, 0, 0, len(self._content))
        if sum(field.number == _GRAPH for field in self._fields(whole)) != 1:
            return None
        return self._rewritten(whole, 0, {_GRAPH: self._graph})

    def _graph(self, graph: _Field, depth: int) -> bytes | None:
        return self._rewritten(graph, depth, {_NODE: self._node, _INITIALIZER: self._tensor})

    def _node(self, node: _Field, depth: int) -> bytes | None:
        kinds = [
            bytes(self._content[field.start : field.stop]) for field in self._fields(node) if field.number == _OP_TYPE
        ]
        is_constant = len(kinds) == 1 and kinds[0] == b"Constant"

        def attribute(field: _Field, depth: int) -> bytes | None:
            bodies: dict[int, _Rewrite] = {_BODY: self._graph, _BODIES: self._graph}
            return self._rewritten(field, depth, {_TENSOR: self._tensor} if is_constant else bodies)

        return self._rewritten(node, depth, {_ATTRIBUTE: attribute})

    def _rewritten(self, message: _Field, depth: int, within: dict[int, _Rewrite]) -> bytes | None:
        """A message with its large fields of these numbers rewritten; None where none of them is."""
        if depth > _DEEPEST:
            raise _Irregular
        pieces: list[memoryview | bytes] = []
        taken = message.start
        for field in self._fields(message):
            if field.number in within and field.wire == _BYTES and field.stop - field.start >= _LEAST:
                light = within[field.number](field, depth + 1)
                if light is not None:
                    pieces += [self._content[taken : field.tag], _message(field.number, light)]
                    taken = field.stop
        return b"".join((*pieces, self._content[taken : message.stop])) if pieces else None

    def _tensor(self, tensor: _Field, _depth: int) -> bytes | None:
        """Without its bytes, and where these lie; None where they do not stand in one place."""
        raw: _Field | None = None
        rest: list[memoryview | bytes] = []
        for field in self._fields(tensor):
            if field.number == _RAW and field.wire == _BYTES and raw is None:
                raw = field
            elif field.number in _DESCRIBES:
                rest.append(self._content[field.tag : field.stop])
            else:
                return None
        if raw is None or raw.stop - raw.start < _LEAST:
            return None
        self.stayed.append(tensor)
        told = {"location": self._name, "offset": str(raw.start), "length": str(raw.stop - raw.start)}
        entries = (_message(_EXTERNAL, _message(1, of.encode()) + _message(2, to.encode())) for of, to in told.items())
        return b"".join((*rest, *entries, _varint(_LOCATION << 3 | _VARINT), _varint(_IS_EXTERNAL)))

    def _fields(self, message: _Field) -> Iterator[_Field]:
        at, stop = message.start, message.stop
        while at < stop:
            tag, begin = self._varint(at, stop)
            wire, end = tag & 7, begin
            if wire == _BYTES:
                length, begin = self._varint(begin, stop)
                end = begin + length
            elif wire == _VARINT:
                _, end = self._varint(begin, stop)
            elif wire in (_EIGHT, _FOUR):
                end = begin + (8 if wire == _EIGHT else 4)
            else:
                raise _Irregular
            if end > stop:
                raise _Irregular
            yield _Field(tag >> 3, wire, at, begin, end)
            at = end

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        value = shift = 0
        while at < stop and shift < 64:
            byte = self._content[at]
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
