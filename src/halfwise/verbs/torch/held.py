"""Who holds what a function is given, by CPython's counts of references, whichever its version counts.

`sys.getrefcount` belongs into the function that is given the thing: each call on the way holds it, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

__all__ = ["NAMES_UNCOUNTED", "ONE_HOLDER", "holders", "named", "references"]


def references(thing: object) -> int:
    """How many references a function sees of a temporary that it is given; versions of Python differ in that."""
    return sys.getrefcount(thing)


def named(thing: object, frame: FrameType) -> bool:
    """Whether a variable of a function that runs holds it."""
    return any(value is thing for value in frame.f_locals.values())


def holders(given: Mapping[str, Any], name: str) -> int:
    return sys.getrefcount(given[name])


def _names_uncounted() -> bool:
    """Whether a function sees no more of what a variable of its caller holds: so from Python 3.14 on."""
    thing = object()
    return references(thing) <= references(object())


def _one_holder() -> int:
    """What `holders` says of a thing in the user's bindings and our copy of them, that a local variable names."""
    bindings = {"": object()}
    ours = dict(bindings)
    thing = ours[""]
    count = holders(ours, "")
    del thing
    return count


NAMES_UNCOUNTED = _names_uncounted()
ONE_HOLDER = _one_holder()
