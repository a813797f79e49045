"""The words for what a stage was found to do; the keys are the values of the document."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["STAGE_FINDINGS"]

STAGE_FINDINGS: Mapping[str, str] = {
    "good": "good",
    "wrong by itself": "fails alone",
    "only in company": "fails in combination",
    "spreads": "amplifies",
    "inherits": "inherits",
}
