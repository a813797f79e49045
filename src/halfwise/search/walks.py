"""How closely is looked at what each rounding does: walks over the model, node by node and back."""

from __future__ import annotations

from dataclasses import dataclass

from halfwise.search.gradients import PROBES

__all__ = ["CLOSE", "Walks"]


@dataclass(frozen=True)
class Walks:
    """Over so many samples, the worst first, and back with so many probes of the outputs."""

    samples: int
    probes: int

    @property
    def passes(self) -> int:
        """Over a model, that one of them costs."""
        return 1 + self.probes


CLOSE = Walks(2, PROBES)
