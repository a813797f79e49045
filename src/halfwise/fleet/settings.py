"""fleet.toml: which models, with which inputs, for which targets and tolerances, and what to do with each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.measures.named import measure_named
from halfwise.core.nearest import nearest
from halfwise.core.targets import Target
from halfwise.core.tolerance import Bound
from halfwise.fleet.toml_places import Path as Key
from halfwise.fleet.toml_places import places

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

__all__ = [
    "ACTIONS",
    "Mistake",
    "Settings",
    "Subject",
    "mistakes_in",
    "read_settings",
    "read_text",
    "size_in_bytes",
    "sound_settings",
]

ACTIONS = ("scan", "fix", "gate", "stages", "audit")

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>[KMGT]i?B|B)", re.IGNORECASE)
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ERROR = re.compile(r"(?P<what>.*) \(at (line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)


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
    runs: float


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
    except (tomllib.TOMLDecodeError, RecursionError):
        data = {}
    wrong = {key for key, _ in _wrong(data)}
    fleet = {} if ("fleet",) in wrong else data.get("fleet", {})
    fleet = {name: value for name, value in fleet.items() if ("fleet", name) not in wrong}
    tables = [] if any(key[:1] in ((), ("defaults",)) or key == ("models",) for key in wrong) else data["models"]
    defaults = data.get("defaults", {})
    sound = {
        number: _subject({**defaults, **_own(table)})
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
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return [_syntax(str(error), text)]
    where = places(text)

    def at(key: Key, what: str) -> Mistake:
        while key not in where and key:
            key = key[:-1]
        line, column = where.get(key, (1, 1))
        return Mistake(line, column, what)

    return sorted(at(key, what) for key, what in _wrong(data))


def size_in_bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("write a size such as '8 GB' or '512 MiB'")
    return round(float(found["number"]) * _UNITS[found["unit"].lower()])


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > 16 << 20:
            raise InputError(f"{path} is larger than 16 MiB: it is no fleet file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; `halfwise fleet init FOLDER` writes such a file"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no TOML file: it is not UTF-8") from None


def _syntax(told: str, text: str) -> Mistake:
    found = _ERROR.fullmatch(told)
    if found is None or found["line"] is None:
        return Mistake(text.count("\n") + 1, 1, f"no valid TOML: {found['what'] if found else told}")
    return Mistake(int(found["line"]), int(found["column"]), f"no valid TOML: {found['what']}")


# -- what may stand where ---------------------------------------------------------------------------------------------

Check = Callable[[Any], str]  # what is wrong with a value; empty where nothing is


def _wrong(data: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    tables = {"fleet": _FLEET, "defaults": _DEFAULTS, "models": _MODEL}
    for name, value in data.items():
        if name not in tables:
            yield (name,), f"there is no table {name!r}{nearest(name, tables)}; there are fleet, defaults and models"
        elif name != "models":
            yield from _in_table((name,), value, tables[name])
    models = data.get("models")
    if models is None:
        yield (), "no models: write a table [[models]] with a path"
    elif not isinstance(models, list) or not models:
        yield ("models",), "write [[models]], with two brackets on each side, once for each model"
    else:
        defaults = data.get("defaults", {})
        for index, table in enumerate(models):
            yield from _in_table(("models", index), table, _MODEL)
            if isinstance(table, dict):
                merged = {**(defaults if isinstance(defaults, dict) else {}), **_own(table)}
                yield from ((("models", index, *key), what) for key, what in _together(merged))
        yield from _twice(models)


def _in_table(key: Key, table: Any, checks: Mapping[str, Check]) -> Iterator[tuple[Key, str]]:
    if not isinstance(table, dict):
        yield key, f"{key[0]} is a table"
        return
    for name, value in table.items():
        if name not in checks:
            yield (*key, name), f"there is no key {name!r} here{nearest(name, checks)}; there are {', '.join(checks)}"
        elif isinstance(value, list) and checks[name] in _LISTS:
            yield from _in_list((*key, name), value, checks[name])
        elif wrong := checks[name](value):
            yield (*key, name), f"{name}: {wrong}"


def _in_list(key: Key, values: Sequence[Any], check: Check) -> Iterator[tuple[Key, str]]:
    if not values:
        yield key, f"{key[-1]}: an empty list; leave the key out"
    for index, value in enumerate(values):
        if isinstance(value, list) and check is _tolerance and all(isinstance(each, str) for each in value):
            wrong = next(filter(None, map(check, value)), "" if value else "an empty list")
        else:
            wrong = check(value)
        if wrong:
            yield (*key, index), f"{key[-1]}: {wrong}"
    if check is _tolerance and len({isinstance(value, list) for value in values}) > 1:
        yield key, f"{key[-1]}: either a list of bounds, or a list of lists of bounds"


def _own(table: Mapping[str, Any]) -> dict[str, Any]:
    """A function takes the place of the folder in the defaults, and the other way round."""
    rival = {"inputs": "function", "function": "inputs"}
    return {**{rival[key]: None for key in table if key in rival and rival[key] not in table}, **table}


def _together(table: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """What only a whole table shows."""
    if "path" not in table:
        yield (), "a model needs a path"
    if table.get("inputs") and table.get("function"):
        yield ("function",), "inputs and function are two sources of the same samples: give one"
    do = _listed(table.get("do", ["fix"]))
    if "gate" in do and not table.get("plan"):
        yield ("do",), "gate needs the committed plan: plan = 'plans/{name}.halfwise.json'"
    if "audit" in do and not table.get("engine"):
        yield ("do",), "audit needs the layers or the log of the engine: engine = 'engines/{name}.layers.json'"
    if table.get("versions") and not table.get("name"):
        yield ("versions",), "files that are versions of one model need its name"


def _twice(models: Sequence[Any]) -> Iterator[tuple[Key, str]]:
    names: dict[str, int] = {}
    for index, table in enumerate(models):
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str) and names.setdefault(name, index) != index:
            yield ("models", index, "name"), f"the name {name!r} is taken by an earlier model"


def _string(value: Any) -> str:
    return "" if isinstance(value, str) and value.strip() else f"a text is wanted, not {value!r}"


def _name(value: Any) -> str:
    if wrong := _string(value):
        return wrong
    bad = sorted(set(value) & set('/\\:*?"<>|\0\n\t'))
    if bad or value.strip(". ") != value or len(value) > 100:
        return f"{value!r} cannot be a folder's name"
    return ""


def _truth(value: Any) -> str:
    return "" if isinstance(value, bool) else f"true or false is wanted, not {value!r}"


def _whole(value: Any) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return "" if good else f"a whole number from 1 is wanted, not {value!r}"


def _positive(value: Any) -> str:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
    return "" if good else f"a number above 0 is wanted, not {value!r}"


def _size(value: Any) -> str:
    try:
        return "" if size_in_bytes(value) > 0 else "more than 0 bytes are wanted"
    except (ValueError, AttributeError):
        return f"a size such as '8 GB' is wanted, not {value!r}"


def _action(value: Any) -> str:
    if value in ACTIONS:
        return ""
    return f"{value!r} is none of {', '.join(ACTIONS)}{nearest(str(value), ACTIONS)}"


def _target(value: Any) -> str:
    return _string(value) or _refusal(Target.parse, value)


def _tolerance(value: Any) -> str:
    def parse(text: str) -> object:
        name, equals, allowed = text.strip().rpartition("=")
        if allowed.endswith("%") and (not equals or measure_named(name) is not None):
            return float(allowed[:-1])
        return Bound.parse(text)

    return _string(value) or _refusal(parse, value)


def _metric(value: Any) -> str:
    if wrong := _string(value):
        return wrong
    if _FUNCTION.fullmatch(value):
        return ""

    def parse(text: str) -> object:
        if measure_named(text) is None:
            raise InputError(f"{text!r} is neither package.module:function nor a ready measure")
        return None

    return _refusal(parse, value)


def _function(value: Any) -> str:
    if wrong := _string(value):
        return wrong
    return "" if _FUNCTION.fullmatch(value) else f"{value!r}: write package.module:function"


def _refusal(parse: Callable[[str], object], value: str) -> str:
    try:
        parse(value)
    except HalfwiseError as error:
        return str(error)
    except ValueError:
        return f"{value!r} cannot be read"
    return ""


_FLEET: dict[str, Check] = {"results": _string, "memory": _size, "processes": _whole}
_DEFAULTS: dict[str, Check] = {
    "do": _action,
    "targets": _target,
    "tolerance": _tolerance,
    "metric": _metric,
    "inputs": _string,
    "function": _function,
    "plan": _string,
    "engine": _string,
    "seconds": _positive,
    "memory": _size,
    "runs": _positive,
}
_MODEL: dict[str, Check] = {"name": _name, "path": _string, "versions": _truth, **_DEFAULTS}
_LISTS = (_action, _target, _tolerance, _string)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _subject(table: Mapping[str, Any]) -> Subject:
    tolerance = _listed(table.get("tolerance", []))
    sets = tolerance if tolerance and isinstance(tolerance[0], list) else [tolerance]
    return Subject(
        name=table.get("name", ""),
        path=table["path"],
        versions=table.get("versions", False),
        do=tuple(_listed(table.get("do", ["fix"]))),
        targets=tuple(_listed(table.get("targets", ["onnx"]))),
        tolerances=tuple(map(tuple, sets)),
        metric=table.get("metric", ""),
        inputs=tuple(_listed(table.get("inputs") or [])),
        function=table.get("function") or "",
        plan=table.get("plan", ""),
        engine=table.get("engine", ""),
        seconds=float(table.get("seconds", 3600.0)),
        memory=size_in_bytes(table.get("memory", "0 B")),
        runs=float(table.get("runs", 40)),
    )
