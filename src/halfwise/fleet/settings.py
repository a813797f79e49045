"""fleet.toml: which models, with which inputs, for which targets and tolerances, and what to do with each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.whole_files import is_special
from halfwise.fleet.mistakes import listed, mistakes_of, own, sets
from halfwise.fleet.toml_places import Path as Key
from halfwise.fleet.toml_places import places
from halfwise.fleet.values import size_in_bytes

__all__ = ["Mistake", "Settings", "Subject", "mistakes_in", "read_settings", "read_text", "sound_settings"]

_ERROR = re.compile(r"(?P<what>.*) \(at (line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_LARGEST = 1 << 20  # bytes
_MOST_POINTS = 100  # of a line: what a key takes to parse grows with the square of its parts


@dataclass(frozen=True, order=True)
class Mistake:
    line: int
    column: int
    what: str


@dataclass(frozen=True)
class Subject:
    """One table of models: all that is asked of the files that its path matches."""

    name: str  # empty: each file's own
    path: str
    versions: bool
    do: tuple[str, ...]
    targets: tuple[str, ...]
    tolerances: tuple[tuple[str, ...], ...]
    metric: str
    inputs: tuple[str, ...]
    function: str
    plan: str
    engine: str
    seconds: float
    memory: int  # bytes; 0: as the fleet's
    runs: float | None
    device: str  # that emulates, in fix


@dataclass(frozen=True)
class Settings:
    """What the file says. Paths in it start at its folder."""

    folder: Path
    results: Path
    memory: int  # bytes; 0: 80% of what is free
    processes: int  # 0: as many as there are cores
    models: tuple[Subject, ...]
    text: str = field(repr=False)
    sound: Mapping[int, Subject] = field(default_factory=dict)  # tables without a mistake, by their number

    def only(self, subject: Subject) -> Settings:
        return replace(self, models=(subject,))


def read_settings(path: Path) -> Settings:
    """Raises InputError with the first mistake, and how many more there are."""
    text = read_text(path)
    mistakes = mistakes_in(text)
    if mistakes:
        first = mistakes[0]
        more = f" ({len(mistakes) - 1} more: halfwise fleet check)" if len(mistakes) > 1 else ""
        raise InputError(f"{path}:{first.line}:{first.column}: {first.what}{more}")
    return sound_settings(text, path.parent)


def sound_settings(text: str, folder: Path) -> Settings:
    """What the tables without a mistake say."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):
        data = {}
    wrong = {key for key, _ in mistakes_of(data)}
    fleet = {} if ("fleet",) in wrong else data.get("fleet", {})
    fleet = {name: value for name, value in fleet.items() if ("fleet", name) not in wrong}
    tables = [] if any(key[:1] in ((), ("defaults",)) or key == ("models",) for key in wrong) else data["models"]
    defaults = data.get("defaults", {})
    sound = {
        number: _subject({**defaults, **own(table)})
        for number, table in enumerate(tables)
        if not any(key[:2] == ("models", number) for key in wrong)
    }
    return Settings(
        folder,
        folder / fleet.get("results", "fleet-results"),
        size_in_bytes(fleet.get("memory", "0 B")),
        fleet.get("processes", 0),
        tuple(sound.values()),
        text,
        sound,
    )


def mistakes_in(text: str) -> list[Mistake]:
    """All of them, in the order of the file."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits is no TOMLDecodeError
        return [_syntax(str(error), text)]
    where = places(text)

    def at(key: Key, what: str) -> Mistake:
        while key not in where and key:
            key = key[:-1]
        line, column = where.get(key, (1, 1))
        return Mistake(line, column, what)

    return sorted(at(key, what) for key, what in mistakes_of(data))


def read_text(path: Path) -> str:
    try:
        if is_special(path):
            raise InputError(f"{path} is a pipe or a device; name a file")
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path} is larger than {_LARGEST >> 20} MiB: it is no fleet file")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; `halfwise fleet init FOLDER` writes such a file"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no TOML file: it is not UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_POINTS and _STRING.sub("", line).count(".") > _MOST_POINTS:
            raise InputError(f"{path}:{number}:1: more than {_MOST_POINTS} points outside of strings: no fleet file")
    return text


def _syntax(told: str, text: str) -> Mistake:
    found = _ERROR.fullmatch(told)
    if found is None or found["line"] is None:
        return Mistake(text.count("\n") + 1, 1, f"no valid TOML: {found['what'] if found else told}")
    return Mistake(int(found["line"]), int(found["column"]), f"no valid TOML: {found['what']}")


def _subject(table: Mapping[str, Any]) -> Subject:
    return Subject(
        name=table.get("name", ""),
        path=table["path"],
        versions=table.get("versions", False),
        do=tuple(listed(table.get("do", ["fix"]))),
        targets=tuple(listed(table.get("targets", ["onnx"]))),
        tolerances=tuple(map(tuple, sets(table.get("tolerance", [])))),
        metric=table.get("metric", ""),
        inputs=tuple(listed(table.get("inputs") or [])),
        function=table.get("function") or "",
        plan=table.get("plan", ""),
        engine=table.get("engine", ""),
        seconds=float(table.get("seconds", 3600.0)),
        memory=size_in_bytes(table.get("memory", "0 B")),
        runs=float(table["runs"]) if "runs" in table else None,
        device=table.get("device", "cpu"),
    )
