"""What became of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["BAD", "Outcome"]

# answered: exit code 0 or 1.  refused: 2 or 3 and one line.  unmade: the mutations leave no file to try.
# stopped: the model itself ran longer than the limit.
BAD = {
    "internal": "an error that is nobody's answer",
    "code": "an exit code that means nothing",
    "wrote": "files although the exit code is 2 or 3",
    "lines": "not one line",
    "json": "no JSON document",
    "differs": "another answer than without the damage",
    "death": "the process ended",
    "over": "over the limit of time or memory",
}


@dataclass(frozen=True)
class Outcome:
    """Its kind, where or how, which tells two findings apart, and what was said."""

    kind: str
    where: str = ""
    told: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in BAD

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.where

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
