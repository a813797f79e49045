"""The document of what is known of a target."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from halfwise.compiler.attention_regions import RegionRecord
from halfwise.core.advisory import AdvisoryRecord
from halfwise.core.document import Document

__all__ = ["AdviseDocument"]


class AdviseDocument(Document, frozen=True, tag="halfwise.advise/1"):
    """What `halfwise advise --json` prints: known precision defects of a target."""

    target: str
    source: str | None
    advisories: Sequence[AdvisoryRecord]
    region: RegionRecord | None = field(name="island")
