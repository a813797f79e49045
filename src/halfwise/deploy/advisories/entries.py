"""The known precision defects and surprises, as shipped beside this module in advisories.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

__all__ = ["Entry", "load_entries"]


@dataclass(frozen=True)
class Entry:
    """One thing known about some versions; schema.json says what each field means."""

    id: str
    kind: str
    runtimes: tuple[str, ...]
    versions: tuple[str, ...]
    typing: str | None
    fixed_in: str | None
    ops: tuple[str, ...]
    kernels: tuple[str, ...]
    gpus: tuple[str, ...]
    seen_on: tuple[str, ...]
    seen_with: str | None
    only_with: str | None
    symptom: str
    workaround: str
    source: tuple[str, ...]
    confidence: Literal["high", "medium", "low"]
    note: str | None


@lru_cache(maxsize=1)
def load_entries() -> tuple[Entry, ...]:
    """All entries in the order of the file."""
    document = json.loads(files(__package__).joinpath("advisories.json").read_text(encoding="utf-8"))
    return tuple(_entry(item) for item in document["advisories"])


def _entry(item: dict[str, Any]) -> Entry:
    values: dict[str, Any] = {}
    for field in fields(Entry):
        value = item[field.name]
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return Entry(**values)
