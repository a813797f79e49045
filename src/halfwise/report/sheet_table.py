"""A table of a result's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["SheetTable"]


@dataclass(frozen=True)
class SheetTable:
    """One table: its heading, what a row is, and the rows, whose cells are texts, numbers or None."""

    title: str
    noun: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    about: str = ""
