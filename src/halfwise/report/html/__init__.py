"""One self-contained HTML page about a fix: what was wrong, how wrong, where, what was done, and how we know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfwise.core.lazy import lazily

if TYPE_CHECKING:
    from halfwise.report.html.write import write_report

__all__ = ["write_report"]

__getattr__, __dir__ = lazily(__name__, {"write_report": ".write"})
