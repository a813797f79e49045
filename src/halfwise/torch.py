"""The public home of what halfwise says about PyTorch modules: `halfwise.verbs.torch` under its short name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfwise.core.lazy import lazily

if TYPE_CHECKING:
    from halfwise.verbs.torch import AutocastCheck, BindingsCheck, check_autocast, check_bindings, stages

__all__ = ["AutocastCheck", "BindingsCheck", "check_autocast", "check_bindings", "stages"]

__getattr__, __dir__ = lazily(__name__, dict.fromkeys(__all__, "halfwise.verbs.torch"))
