"""Ready measures by what users write: --metric NAME:KEY=VALUE,... and --tol NAME=0.5%."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.measures import MEASURES
from halfwise.core.measures.measure import Measure
from halfwise.core.user_metric import load_metric

__all__ = ["ALLOWED", "measure_named", "metric_named", "spec_of", "with_measure"]

ALLOWED = "1%"  # where the user gives a measure and no bound

Metric = Callable[[Mapping[str, Any], Mapping[str, Any]], float]

_BOUND = re.compile(r"(?P<name>[a-z]+)(?::(?P<options>.*))?=(?P<allowed>\d+(\.\d+)?%)")
_KINDS: dict[str, Callable[[str], Any]] = {"float": float, "int": int, "str": str}


def measure_named(spec: str) -> Measure | None:
    """The measure of that name with these options; None where the name is that of no ready measure."""
    name, _, options = spec.strip().partition(":")
    if name not in MEASURES or (options and "=" not in options):
        return None
    kind = MEASURES[name]
    known = {field.name: str(field.type) for field in fields(kind)}
    values: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, _, value = (part.strip() for part in option.partition("="))
        if key not in known:
            raise InputError(f"--metric {spec}: there is no option {key!r}; there are {', '.join(known)}")
        values[key] = _value(spec, key, value, known[key])
    return kind(**values)


def _value(spec: str, key: str, value: str, kind: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[value.lower()]
        return _KINDS[kind](value)
    except (KeyError, ValueError):
        wanted = {"bool": "true or false", "int": "a whole number"}.get(kind, "a number")
        raise InputError(f"--metric {spec}: {key} is {wanted}, not {value!r}") from None


def metric_named(spec: str) -> Metric:
    """A ready measure, or the user's function in a module."""
    ready = measure_named(spec)
    if ready is None and ":" not in spec:
        raise InputError(f"--metric {spec!r}: write package.module:function, or one of {', '.join(MEASURES)}")
    return ready or load_metric(spec)


def spec_of(metric: Metric | None) -> str:
    """The name and the options of a ready measure; empty for a function of the user's."""
    return metric.spec if isinstance(metric, Measure) else ""


def with_measure(tolerance: Any, metric: Metric | str | None) -> tuple[Any, Metric | None]:
    """The bounds and the function, where either may name a ready measure: `boxes=0.5%` is one with its bound."""
    if isinstance(metric, str):
        metric = metric_named(metric)
    if not isinstance(tolerance, (str, list, tuple)):
        return tolerance, metric
    texts: Sequence[Any] = [tolerance] if isinstance(tolerance, str) else tolerance
    bounds: list[Any] = []
    for text in texts:
        form = _BOUND.fullmatch(text.strip()) if isinstance(text, str) else None
        named = form["name"] + (f":{form['options']}" if form["options"] else "") if form is not None else ""
        found = measure_named(named) if named else None
        if form is None or found is None:
            bounds.append(text)
            continue
        if metric is not None and spec_of(metric).partition(":")[0] != form["name"]:
            raise InputError(f"tolerance {text!r}: --metric names another measure; give one")
        metric = metric if metric is not None and not form["options"] else found
        bounds.append(form["allowed"])
    if isinstance(metric, Measure) and not bounds:
        bounds = [ALLOWED]
    return tuple(bounds), metric
