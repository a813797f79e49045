"""What got better and worse since the last run, job by job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from halfwise.fleet.store import Result

__all__ = ["Change", "changes"]

Direction = Literal["worse", "better", "new"]

_NOISE = 1.1  # factor by which an error may differ without a word
_RANKS = {"good": 0, "bad": 1}  # all that is no answer: 2


@dataclass(frozen=True)
class Change:
    direction: Direction
    what: Literal["state", "FP32 nodes", "error", "first result"]
    before: Result | None
    now: Result


def changes(before: Mapping[str, Result], results: Sequence[Result]) -> list[Change]:
    """The worst first; of each job what matters most. An interrupted job says nothing."""
    found = [_change(before.get(result.subject), result) for result in results if result.state != "interrupted"]
    order: Sequence[Direction] = ("worse", "better", "new")
    return sorted(
        filter(None, found), key=lambda change: (order.index(change.direction), -_rank(change.now), change.now.subject)
    )


def _change(before: Result | None, now: Result) -> Change | None:
    if before is None:
        return Change("new", "first result", None, now)
    if before.id == now.id:
        return None
    if before.state != now.state and _rank(before) != _rank(now):
        return Change("worse" if _rank(now) > _rank(before) else "better", "state", before, now)
    if before.fp32_nodes is not None and now.fp32_nodes is not None and before.fp32_nodes != now.fp32_nodes:
        return Change("worse" if now.fp32_nodes > before.fp32_nodes else "better", "FP32 nodes", before, now)
    if before.error is not None and now.error is not None:
        if now.error > before.error * _NOISE:
            return Change("worse", "error", before, now)
        if before.error > now.error * _NOISE:
            return Change("better", "error", before, now)
    return None


def _rank(result: Result) -> int:
    return _RANKS.get(result.state, 2)
