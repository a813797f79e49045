"""Remembers every measurement of a search as it is made, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from halfwise.core.document import matching
from halfwise.core.errors import InputError, NoRoom
from halfwise.core.json_text import parse_json, read_text
from halfwise.core.opened import check_own

__all__ = ["Journal", "digest"]

T = TypeVar("T")


def digest(*parts: object) -> str:
    """A short key for anything that prints the same whenever it is the same."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


class Journal:
    """Measurements by key. Without a path it lives in memory only; with one, each entry is on disk at once."""

    def __init__(self, path: Path | None = None, identity: str = "") -> None:
        self.path = path
        self._identity = identity
        self._entries: dict[str, Any] = dict(_read(path, identity)) if path is not None else {}
        self.resumed = len(self._entries)
        self._owed = set(self._entries)
        self._makes_folder = path is not None and not path.parent.exists()

    def get(self, key: str, kind: type[T], fits: Callable[[T], bool] = lambda entry: True) -> T | None:
        """The entry, if it is of this kind and fits what is asked; another's is forgotten."""
        if key not in self._entries:
            return None
        entry = matching(self._entries[key], kind)
        if entry is not None and fits(entry):
            return entry
        del self._entries[key]
        self._owed.discard(key)
        return None

    def runs(self, key: str) -> tuple[float, float]:
        """The model runs that an entry of an interrupted search stands for, when it is first used, and how many that
        search had counted by then; later, and for what was measured since, nothing: it is counted."""
        if key not in self._owed:
            return 0.0, math.inf
        self._owed.remove(key)
        return float(self._entries[key]["runs"]), float(self._entries[key]["until"])

    def put(self, key: str, value: Any) -> None:
        self._entries[key] = value
        if self.path is None:
            return
        try:
            fresh = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                if fresh:
                    file.write(json.dumps({"identity": self._identity}))
                entry = {"key": key, "value": value, "sum": _sum(key, value)}
                file.write("\n" + json.dumps(entry))  # a torn line before it ends here
        except OSError as error:
            kind = NoRoom if error.errno == errno.ENOSPC else InputError
            raise kind(f"{self.path.parent} cannot be written to: {error.strerror}") from error

    def discard(self) -> None:
        """The search is done; nothing is left to resume."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def withdraw(self) -> None:
        """There is no answer: leave nothing behind."""
        self.discard()
        folder = self.path.parent if self.path is not None and self._makes_folder else None
        if folder is not None and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _sum(key: str, value: Any) -> str:
    """Tells a line that is as it was written from a damaged one."""
    return digest(key, json.dumps(value))


def _read(path: Path, identity: str) -> Iterable[tuple[str, Any]]:
    """The entries of an earlier search of the same question; of another question nothing."""
    check_own(path)
    if not path.exists():
        return
    try:
        lines = read_text(path).splitlines()
        same = bool(lines) and parse_json(lines[0]).get("identity") == identity
    except (OSError, ValueError, AttributeError):
        same = False
    if not same:
        path.unlink(missing_ok=True)
        return
    for line in lines[1:]:
        try:
            entry = parse_json(line)
            if isinstance(entry["key"], str) and entry["sum"] == _sum(entry["key"], entry["value"]):
                yield entry["key"], entry["value"]
        except (ValueError, KeyError, TypeError):
            continue
