"""The user's own decisions, spelled out node by node; they outrank whatever is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["NO_CHOICES", "Choices"]


@dataclass(frozen=True, eq=False)
class Choices:
    """Nodes that must stay in FP32 and nodes that must not, each with the words that asked for it."""

    kept: Mapping[str, str] = field(default_factory=dict)
    forced: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.kept or self.forced)


NO_CHOICES = Choices()
