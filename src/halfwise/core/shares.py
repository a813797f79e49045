"""A tolerance without a metric: the share of error that the default measure of every output is allowed."""

from __future__ import annotations

import re
from typing import Any

from halfwise.core.errors import InputError

__all__ = ["SHARE", "share_of"]

SHARE = re.compile(r"\d+(\.\d+)?%")


def share_of(given: Any) -> float | None:
    """What "0.5%", "0.005" or 0.005 allows; None for anything else."""
    text = str(given).strip()
    if isinstance(given, str) and SHARE.fullmatch(text):
        return float(text.rstrip("%")) / 100
    try:
        value = float(text)
    except ValueError:
        return None
    if isinstance(given, bool) or not 0.0 <= value < 1.0:
        raise InputError(
            f"tolerance {given}: write 0.01 or 1% for a relative error, 'max_abs<=2' for one in the output's unit"
        )
    return value
