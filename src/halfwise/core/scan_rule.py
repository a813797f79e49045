"""One row of the tables of finding rules."""

from __future__ import annotations

from dataclasses import dataclass

from halfwise.core.finding import Severity

__all__ = ["ScanRule"]


@dataclass(frozen=True)
class ScanRule:
    """One kind of finding."""

    id: str
    title: str
    severity: Severity
    remedy: str
