"""What each key of fleet.toml may hold: a check says what is wrong with a value, and nothing where nothing is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from reprlib import repr as shortened
from typing import Any

from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.measures.named import measure_named, with_measure
from halfwise.core.nearest import nearest
from halfwise.core.shares import share_of
from halfwise.core.targets import Target
from halfwise.core.tolerance import Bound, Tolerance

__all__ = ["ACTIONS", "DEFAULTS", "FLEET", "LISTS", "MODEL", "Check", "size_in_bytes", "why_not_together"]

ACTIONS = ("scan", "fix", "gate", "stages", "audit")
DEVICES = ("cpu", "cuda")

Check = Callable[[Any], str]

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>[KMGT]i?B|B)", re.IGNORECASE)
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def size_in_bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("write a size such as '8 GB' or '512 MiB'")
    return round(float(found["number"]) * _UNITS[found["unit"].lower()])


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
    return "" if good else f"a whole number from 1 is wanted, not {shortened(value)}"


def _positive(value: Any) -> str:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
    return "" if good else f"a number above 0 is wanted, not {shortened(value)}"


def _size(value: Any) -> str:
    try:
        return "" if size_in_bytes(value) > 0 else "more than 0 bytes are wanted"
    except (ValueError, AttributeError, OverflowError):
        return f"a size such as '8 GB' is wanted, not {value!r}"


def _action(value: Any) -> str:
    if value in ACTIONS:
        return ""
    return f"{value!r} is none of {', '.join(ACTIONS)}{nearest(str(value), ACTIONS)}"


def _device(value: Any) -> str:
    return "" if value in DEVICES else f"{value!r} is none of {', '.join(DEVICES)}"


def _target(value: Any) -> str:
    return _string(value) or _refusal(Target.parse, value)


def _input(value: Any) -> str:
    return _string(value)


def _tolerance(value: Any) -> str:
    return _string(value) or _refusal(lambda text: _parsed([text]), value)


def _parsed(texts: Sequence[str]) -> list[Bound]:
    """Those that are no share of a ready measure."""
    bounds, _ = with_measure(texts, None)
    return [Bound.parse(text) for text in bounds if share_of(text) is None]


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


def why_not_together(bounds: Sequence[str], metric: str) -> str:
    """What `fix` says of these bounds, whatever outputs there are; a function of the user's is not imported."""

    def parse(_: str) -> object:
        texts, found = with_measure(bounds, (measure_named(metric) or _users) if metric else None)
        outputs = {each.output for each in _parsed(bounds)}
        return Tolerance.parse(texts, outputs, outputs, user_metric=found is not None)

    return _refusal(parse, "")


def _users(*_: object) -> float:
    return 0.0


FLEET: dict[str, Check] = {"results": _string, "memory": _size, "processes": _whole}
DEFAULTS: dict[str, Check] = {
    "do": _action,
    "targets": _target,
    "tolerance": _tolerance,
    "metric": _metric,
    "inputs": _input,
    "function": _function,
    "plan": _string,
    "engine": _string,
    "seconds": _positive,
    "memory": _size,
    "runs": _positive,
    "device": _device,
}
MODEL: dict[str, Check] = {"name": _name, "path": _string, "versions": _truth, **DEFAULTS}
LISTS = (_action, _target, _tolerance, _input)
