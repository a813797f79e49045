"""Large weights stay in the model's file: they are mapped, as external data is, neither parsed nor held.

A protobuf library copies what it parses, and copies it once more whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from halfwise.core.protobuf_wire import Field, field, fields, varint

__all__ = ["without_weights"]

_LEAST = 1 << 16  # bytes of a weight
_DEEPEST = 100  # messages in one another, of a protobuf
# Field numbers of ModelProto, GraphProto, NodeProto, AttributeProto and TensorProto.
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_OP_TYPE, _ATTRIBUTE = 4, 5
_TENSOR, _BODY, _BODIES = 5, 6, 11
_RAW, _EXTERNAL, _LOCATION = 9, 13, 14
_DESCRIBES = frozenset((1, 2, 8, 12, 16))  # sizes, type, name, documentation, metadata
_IS_EXTERNAL = b"\x01"
_LISTS = frozenset(varint(20 << 3) + varint(kind) for kind in (6, 7, 8))  # the type: FLOATS, INTS or STRINGS

_Rewrite = Callable[[Field, int], bytes | None]  # a message, and how many it lies in


def without_weights(content: memoryview, name: str, alignment: int = 1) -> bytes | None:
    """The same model whose large weights are external data in the file itself, of that name.

    They are initializers and values of Constant nodes, those of bodies included, whose place is a multiple of
    `alignment`. None where there is none, or where the file is written oddly.
    """
    rewriting = _Rewriting(content, name, alignment)
    try:
        return rewriting.model()
    except ValueError:
        return None


class _Rewriting:
    def __init__(self, content: memoryview, name: str, alignment: int) -> None:
        self._content, self._name, self._alignment = content, name, alignment

    def model(self) -> bytes | None:
        whole = Field(0, 0, 0, len(self._content))
        if sum(each.number == _GRAPH for each in self._within(whole)) != 1:
            return None
        return self._rewritten(whole, 0, {_GRAPH: self._graph})

    def _graph(self, graph: Field, depth: int) -> bytes | None:
        return self._rewritten(graph, depth, {_NODE: self._node, _INITIALIZER: self._tensor})

    def _node(self, node: Field, depth: int) -> bytes | None:
        kinds = [self._bytes(each.content, each.end) for each in self._within(node) if each.number == _OP_TYPE]
        within: dict[int, _Rewrite] = {_BODY: self._graph, _BODIES: self._graph}
        if kinds == [b"Constant"]:
            within = {_TENSOR: self._tensor}

        def attribute(each: Field, depth: int) -> bytes | None:
            return None if self._is_list(each) else self._rewritten(each, depth, within)

        return self._rewritten(node, depth, {_ATTRIBUTE: attribute})

    def _is_list(self, attribute: Field) -> bool:
        """Whether it ends with its type, as all libraries write it, and that is one of numbers or texts: of trees these
        are millions of fields."""
        return self._bytes(max(attribute.content, attribute.end - 3), attribute.end) in _LISTS

    def _rewritten(self, message: Field, depth: int, within: dict[int, _Rewrite]) -> bytes | None:
        """A message with its large fields of these numbers rewritten; None where none of them is."""
        if depth > _DEEPEST:
            raise ValueError("messages lie too deep in one another")
        pieces: list[bytes] = []
        taken = message.content
        for each in self._within(message):
            if each.number in within and each.end - each.content >= _LEAST:
                light = within[each.number](each, depth + 1)
                if light is not None:
                    pieces += [self._bytes(taken, each.start), field(each.number, light)]
                    taken = each.end
        return b"".join((*pieces, self._bytes(taken, message.end))) if pieces else None

    def _tensor(self, tensor: Field, _depth: int) -> bytes | None:
        """Without its bytes, and where these lie; None where they do not stand in one place."""
        raw: Field | None = None
        rest: list[bytes] = []
        for each in self._within(tensor):
            if each.number == _RAW and raw is None:
                raw = each
            elif each.number in _DESCRIBES:
                rest.append(self._bytes(each.start, each.end))
            else:
                return None
        if raw is None or raw.end - raw.content < _LEAST or raw.content % self._alignment:
            return None
        told = {"location": self._name, "offset": str(raw.content), "length": str(raw.end - raw.content)}
        entries = (field(_EXTERNAL, field(1, of.encode()) + field(2, to.encode())) for of, to in told.items())
        return b"".join((*rest, *entries, varint(_LOCATION << 3), _IS_EXTERNAL))

    def _within(self, message: Field) -> Iterator[Field]:
        return fields(self._content, message.content, message.end)

    def _bytes(self, start: int, end: int) -> bytes:
        return bytes(self._content[start:end])
