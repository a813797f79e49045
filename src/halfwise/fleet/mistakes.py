"""What is wrong in a fleet's file, as far as the file itself shows: by the key at which it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halfwise.core.nearest import nearest
from halfwise.fleet.toml_places import Path as Key
from halfwise.fleet.values import DEFAULTS, FLEET, LISTS, MODEL, Check, size_in_bytes, why_not_together

__all__ = ["listed", "mistakes_of", "own", "sets"]


def mistakes_of(data: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    tables = {"fleet": FLEET, "defaults": DEFAULTS, "models": MODEL}
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
            yield from _in_table(("models", index), table, MODEL)
            if isinstance(table, dict):
                merged = {**(defaults if isinstance(defaults, dict) else {}), **own(table)}
                yield from ((("models", index, *key), what) for key, what in _together(merged))
        yield from _twice(models)
    yield from _more_than_all(data)


def _in_table(key: Key, table: Any, checks: Mapping[str, Check]) -> Iterator[tuple[Key, str]]:
    if not isinstance(table, dict):
        yield key, f"{key[0]} is a table"
        return
    for name, value in table.items():
        if name not in checks:
            yield (*key, name), f"there is no key {name!r} here{nearest(name, checks)}; there are {', '.join(checks)}"
        elif isinstance(value, list) and checks[name] in LISTS:
            yield from _in_list((*key, name), value, checks[name])
        elif wrong := checks[name](value):
            yield (*key, name), f"{name}: {wrong}"


def _in_list(key: Key, values: Sequence[Any], check: Check) -> Iterator[tuple[Key, str]]:
    if not values:
        yield key, f"{key[-1]}: an empty list; leave the key out"
    for index, value in enumerate(values):
        if isinstance(value, list) and check is MODEL["tolerance"] and all(isinstance(each, str) for each in value):
            wrong = next(filter(None, map(check, value)), "" if value else "an empty list")
        else:
            wrong = check(value)
        if wrong or value in values[:index]:
            yield (*key, index), f"{key[-1]}: {wrong or f'{value!r} is there twice'}"
    if check is MODEL["tolerance"] and len({isinstance(value, list) for value in values}) > 1:
        yield key, f"{key[-1]}: either a list of bounds, or a list of lists of bounds"


def own(table: Mapping[str, Any]) -> dict[str, Any]:
    """A function takes the place of the folder in the defaults, and the other way round."""
    rival = {"inputs": "function", "function": "inputs"}
    return {**{rival[key]: None for key in table if key in rival and rival[key] not in table}, **table}


def _together(table: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """What only a whole table shows."""
    if "path" not in table:
        yield (), "a model needs a path"
    if table.get("inputs") and table.get("function"):
        yield ("function",), "inputs and function are two sources of the same samples: give one"
    do = listed(table.get("do", ["fix"]))
    if "gate" in do and not table.get("plan"):
        yield ("do",), "gate needs the committed plan: plan = 'plans/{name}.halfwise.json'"
    if "audit" in do and not table.get("engine"):
        yield ("do",), "audit needs the layers or the log of the engine: engine = 'engines/{name}.layers.json'"
    if table.get("versions") is True and not table.get("name"):
        yield ("versions",), "files that are versions of one model need its name"
    stands = "tolerance" if "tolerance" in table else "metric"
    yield from (((stands,), what) for what in _bounds_mistaken(table, do))


def _bounds_mistaken(table: Mapping[str, Any], do: Sequence[Any]) -> Iterator[str]:
    """What `fix` and `stages` would say of bounds that are sound one by one."""
    given, metric = sets(table.get("tolerance", [])), table.get("metric", "")
    if any(MODEL["tolerance"](bound) for bounds in given for bound in bounds) or (metric and MODEL["metric"](metric)):
        return
    asked = dict.fromkeys(metric if action == "fix" else "" for action in do if action in ("fix", "stages"))
    yield from filter(None, (why_not_together(bounds, each) for bounds in given for each in asked))


def _more_than_all(data: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Jobs that may take more memory than the fleet."""
    fleet, models = data.get("fleet"), data.get("models")
    most = fleet.get("memory") if isinstance(fleet, dict) else None
    if most is None or MODEL["memory"](most):
        return
    tables: list[tuple[Key, Any]] = [(("defaults",), data.get("defaults"))]
    tables += [(("models", index), table) for index, table in enumerate(models if isinstance(models, list) else ())]
    for key, table in tables:
        asked = table.get("memory") if isinstance(table, dict) else None
        if asked is not None and not MODEL["memory"](asked) and size_in_bytes(asked) > size_in_bytes(most):
            yield (*key, "memory"), f"memory: {asked} for one job is more than the fleet's {most}"


def _twice(models: Sequence[Any]) -> Iterator[tuple[Key, str]]:
    names: dict[str, int] = {}
    for index, table in enumerate(models):
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str) and names.setdefault(name, index) != index:
            yield ("models", index, "name"), f"the name {name!r} is taken by an earlier model"


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def sets(tolerance: Any) -> list[list[Any]]:
    """Bounds that hold together: one job for each set."""
    given = listed(tolerance)
    return given if given and isinstance(given[0], list) else [given]
