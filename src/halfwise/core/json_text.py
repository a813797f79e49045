"""Reads JSON that a stranger wrote: what is larger or deeper than any document of ours is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halfwise.core import limits

__all__ = ["parse_json", "read_json", "read_text"]


def read_json(path: Path, encoding: str = "utf-8") -> Any:
    """The document in a file; a ValueError where there is none."""
    return parse_json(read_text(path, encoding))


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """That of a file; a ValueError where it is too large. A device has no size, and may have no end."""
    with path.open("rb") as file:
        content = file.read(min(path.stat().st_size, limits.LARGEST_JSON) + 1)
        content += file.read(limits.LARGEST_JSON + 1 - len(content))
    if len(content) > limits.LARGEST_JSON:
        raise ValueError(f"it is larger than {limits.LARGEST_JSON >> 20} MiB")
    return content.decode(encoding)


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


def _inside(held: Any) -> Any:
    return held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
