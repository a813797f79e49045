"""Where in a TOML file each key and each element of an array stands: line and column, for errors that can point."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Path", "Place", "places"]

Path = tuple[str | int, ...]
Place = tuple[int, int]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}\s#]+(?: \d[^,\]}\s#]*)?")  # a number, a boolean or a date with its time
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)


def places(text: str) -> dict[Path, Place]:
    """Of a text that a TOML parser took. Elements of an array of tables are counted from 0, as in the parsed data."""
    reader = _Reader(text)
    table: Path = ()
    while reader.more():
        if reader.at("["):
            table = reader.header()
        else:
            reader.pair(table)
    return reader.found


@dataclass
class _Reader:
    text: str
    position: int = 0
    found: dict[Path, Place] = field(default_factory=dict)
    counts: dict[Path, int] = field(default_factory=dict)  # of arrays of tables

    def more(self) -> bool:
        """Past blanks, ends of lines and comments; whether anything is left."""
        while self.position < len(self.text):
            if self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif self.text[self.position].isspace() or self.text[self.position] == "\ufeff":
                self.position += 1
            else:
                return True
        return False

    def at(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def take(self, text: str) -> bool:
        self.more()
        if self.at(text):
            self.position += len(text)
            return True
        return False

    def here(self) -> Place:
        line = self.text.count("\n", 0, self.position) + 1
        return line, self.position - (self.text.rfind("\n", 0, self.position) + 1) + 1

    def header(self) -> Path:
        place, several = self.here(), self.at("[[")
        self.position += 2 if several else 1
        keys = self.keys()
        self.take("]]" if several else "]")
        path: Path = ()
        for key in keys[:-1]:
            path = (*path, key)
            self.found.setdefault(path, place)
            path = (*path, self.counts[path]) if path in self.counts else path
        path = (*path, keys[-1])
        if several:
            self.counts[path] = self.counts.get(path, -1) + 1
            self.found.setdefault(path, place)
            path = (*path, self.counts[path])
        self.found[path] = place
        return path

    def keys(self) -> tuple[str, ...]:
        keys = [self.key()]
        while self.take("."):
            keys.append(self.key())
        return tuple(keys)

    def key(self) -> str:
        self.more()
        pattern = _STRING if self.text[self.position] in "\"'" else _BARE
        found = pattern.match(self.text, self.position)
        assert found is not None
        self.position = found.end()
        return _unquoted(found[0]) if pattern is _STRING else found[0]

    def pair(self, table: Path) -> None:
        place = self.here()
        path = (*table, *self.keys())
        for depth in range(len(table) + 1, len(path) + 1):
            self.found.setdefault(path[:depth], place)
        self.take("=")
        self.value(path)

    def value(self, path: Path) -> None:
        self.more()
        if self.take("["):
            index = 0
            while not self.take("]"):
                self.more()
                element = (*path, index)
                self.found[element] = self.here()
                self.value(element)
                self.take(",")
                index += 1
        elif self.take("{"):
            while not self.take("}"):
                self.more()
                self.pair(path)
                self.take(",")
        else:
            found = _STRING.match(self.text, self.position) or _PLAIN.match(self.text, self.position)
            assert found is not None
            self.position = found.end()


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1]

    def plain(found: re.Match[str]) -> str:
        mark = found[1]
        return chr(int(mark[1:], 16)) if mark[0] in "uU" and len(mark) > 1 else _ESCAPES.get(mark, mark)

    return _ESCAPE.sub(plain, text[1:-1])
