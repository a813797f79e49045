"""Many models: one file that says what to do with each, a run on this machine or on a Ray cluster, a store, a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfwise.core.lazy import lazily

if TYPE_CHECKING:
    from halfwise.fleet.frame import load

__all__ = ["load"]

__getattr__, __dir__ = lazily(__name__, {"load": ".frame"})
