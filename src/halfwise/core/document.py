"""Documents as types: from one record follow its JSON, its strict reading and its JSON Schema.

A document is a class with its fields in the order in which they are written. Field types are the schema; `about` adds a
sentence to one. A field of type `X | Left` is left out where it is LEFT_OUT. Records are frozen.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET as LEFT_OUT
from msgspec import Meta
from msgspec import UnsetType as Left

from halfwise.core.errors import InputError
from halfwise.core.summary import Summary

__all__ = [
    "LEFT_OUT",
    "WRITTEN",
    "Answer",
    "Count",
    "Document",
    "Documented",
    "Left",
    "Number",
    "Record",
    "Share",
    "about",
    "matching",
    "read",
    "written",
]

WRITTEN = "written"  # the mark of such a field

_WORDS = ("inf", "-inf", "nan")

if TYPE_CHECKING:
    Number = float
else:

    class Number(float):
        """A number; JSON has no infinity, so that these are words."""

        @classmethod
        def read(cls, value: object) -> Number:
            if value in _WORDS or (isinstance(value, (int, float)) and not isinstance(value, bool)):
                return cls(value)
            raise ValueError(f"must be a number or one of {', '.join(_WORDS)}, not {value!r}")

        @classmethod
        def schema(cls) -> dict[str, Any]:
            return {"anyOf": [{"type": "number"}, {"enum": list(_WORDS)}]}


Count = Annotated[int, Meta(ge=0)]
Answer = Literal["met", "not-met"]
Share = Annotated[float, Meta(ge=0, le=1)]

_PLACE = re.compile(r"(?P<what>.*) - at `\$(?P<where>.*)`")
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")


def about(text: str) -> Meta:
    """The sentence that a schema says of a field: `Annotated[str, about("...")]`."""
    return Meta(description=text)


def written(text: str = "") -> Meta:
    """Of a field that is always written, and that older documents lack: the schema requires it, reading does not."""
    return Meta(description=text or None, extra_json_schema={WRITTEN: True})


class Record(msgspec.Struct, frozen=True):
    """A part of a document."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, keys in the order of the fields."""
        config = self.__struct_config__
        head = {config.tag_field: config.tag} if config.tag_field else {}
        values = (getattr(self, name) for name in self.__struct_fields__)
        named = zip(self.__struct_encode_fields__, values, strict=True)
        return head | {key: _plain(value) for key, value in named if value is not LEFT_OUT}


class Document(Record, frozen=True, tag_field="schema"):
    """A whole document; a subclass names its contract as its `tag`, such as halfwise.scan/1."""


class Documented(ABC):
    """A result that a document tells of."""

    @abstractmethod
    def document(self) -> Document:
        """The document as a typed record."""

    def to_json(self) -> dict[str, Any]:
        """The document as plain JSON."""
        return self.document().to_json()

    @abstractmethod
    def summary(self) -> Summary:
        """The answer in a line, and its main table."""

    def to_dataframe(self) -> Any:
        """The main table as a pandas DataFrame; pandas has to be installed."""
        return self.summary().dataframe()

    def __repr__(self) -> str:
        return self.summary().text()

    def _repr_html_(self) -> str:
        return self.summary().html()


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


# -- reading ----------------------------------------------------------------------------------------------------------

E = TypeVar("E", bound=Record)
T = TypeVar("T")


def read(data: Any, kind: type[E], source: str) -> E:
    """The record that this JSON is; else one line with the key, what was found there and what is allowed.

    Keys that the record does not name are another version's, and are passed over, if the record does not forbid them.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_read_own)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        what = _plainly(found["what"] if found else str(error))
        told = f"{_named(found['where'], str(error), data, kind)}: {what}" if found else what
        raise InputError(f"{source}: {told}") from None
    except UnicodeEncodeError as error:
        raise InputError(f"{source}: it holds a text that is no Unicode: {error.object[:40]!a}") from None


def matching(data: Any, kind: type[T]) -> T | None:
    """The same of any type; None where the data is none of it."""
    try:
        return msgspec.convert(data, kind, dec_hook=_read_own)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None


_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)
_TYPES = re.compile(r"Expected `(?P<wanted>[^`]*)`(?P<bound>[^,]*)(?:, got `(?P<found>[^`]*)`)?")
_KINDS = {
    "object": "an object", "array": "a list", "str": "a text", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "null",
}  # fmt: skip


def _plainly(told: str) -> str:
    """What msgspec says of a mistake, in the words of the documentation."""
    if missing := _MISSING.fullmatch(told):
        return f"{missing['key']!r} is missing"
    if unknown := _UNKNOWN.fullmatch(told):
        return f"no key is called {unknown['key'][:80]!r}; it is misspelt or of a newer halfwise"
    if not (found := _TYPES.fullmatch(told)):
        return told
    wanted = " or ".join(_KINDS.get(kind, kind) for kind in found["wanted"].split(" | "))
    but = f", not {_KINDS.get(found['found'], found['found'])}" if found["found"] else ""
    return f"must be {wanted}{found['bound'].replace('of length >= 1', 'with at least 1 entry')}{but}"


def _named(place: str, told: str, data: Any, kind: type[Record]) -> str:
    """The place with the key of each mapping on the way whose entry alone is told so, too: msgspec names none."""
    data = deepcopy(data)
    at, named = data, ""
    for step in _STEP.finditer(place):
        key: Any = step["key"] or int(step["index"] or 0)
        if step["any"]:
            entries = dict(at)
            for key in entries:
                at.clear()
                at[key] = entries[key]
                if _refused(data, kind) == told:
                    break
        named += step[0] if not step["any"] else f"[{key!r}]"
        at = at[key]
    return named.removeprefix(".")


def _refused(data: Any, kind: type[Record]) -> str:
    """How msgspec does so; empty where it takes the data."""
    try:
        msgspec.convert(data, kind, dec_hook=_read_own)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter of a text that stands elsewhere
        return str(error)
    return ""


def _read_own(kind: Any, value: object) -> object:
    """Types of our own, such as Number, have a `read` and a `schema`."""
    return kind.read(value)
