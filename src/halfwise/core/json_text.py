"""Reads JSON that a stranger wrote: what is larger or deeper than any document of ours is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.opened import opened

__all__ = ["once", "parse_json", "read_json", "read_text"]


def read_json(path: Path) -> Any:
    """The document in a file; a ValueError where there is none. Of a key that is there twice readers take either."""
    return parse_json(read_text(path), once(f"{path} is ambiguous: an object in it", "write it once"))


def read_text(path: Path) -> str:
    """That of a file, without a mark of its encoding; a ValueError where it is too large.

    A device has no size, and may have no end.
    """
    with opened(path) as file:
        content = file.read(min(path.stat().st_size, limits.LARGEST_JSON) + 1)
        content += file.read(limits.LARGEST_JSON + 1 - len(content))
    if len(content) > limits.LARGEST_JSON:
        raise ValueError(f"it is larger than {limits.LARGEST_JSON >> 20} MiB")
    return content.decode("utf-8-sig")


def parse_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The document; a ValueError where there is none. `pairs` makes an object of its keys and values."""
    too_deep = f"it is nested more than {limits.DEEPEST_JSON} levels deep"
    try:
        document = json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [document]
    for _ in range(limits.DEEPEST_JSON):
        level = [each for held in level for each in _inside(held) if isinstance(each, (dict, list))]
        if not level:
            return document
    raise ValueError(too_deep)


def once(where: str, way: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """For `pairs`: an InputError where a key is there twice."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise InputError(f"{where} names {twice!r} twice; {way}")
        return found

    return made


def _inside(held: Any) -> Any:
    return held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
