"""Whether a measure sees anything on an input: one that counts boxes says 0 where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from halfwise.core.contents import changed, tensors_in
from halfwise.core.errors import InputError
from halfwise.core.measures.measure import Array, Measure
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note, NoteKind

__all__ = ["blind_notes", "check_equal", "sees_nothing"]

# Each puts the numbers of a tensor in another order: where one gives the same answer by chance, the other does not.
_ORDERS: tuple[Callable[[Array], Array], ...] = (lambda flat: flat[::-1], lambda flat: np.roll(flat, 1))


def sees_nothing(metric: OutputMetric, answer: Mapping[str, Any]) -> bool:
    """Whether it finds nothing to count, or calls an answer perfect that stands in another order."""
    try:
        return (isinstance(metric, Measure) and not metric.finds_any(answer)) or _takes_any_order(metric, answer)
    except Exception:  # a function of the user's may not take what no model gives
        return False


def _takes_any_order(metric: OutputMetric, answer: Mapping[str, Any]) -> bool:
    asked = False
    for order in _ORDERS:
        other = {name: changed(held, partial(_in_order, order)) for name, held in answer.items()}
        if _same(answer, other):
            continue
        asked = True
        if not float(metric(_copied(answer), other)) <= 0.0:
            return False
    return asked


def check_equal(metric: OutputMetric, allowed: float, answer: Mapping[str, Any]) -> None:
    """Refuse a function that calls an answer beside itself too far off: no model could keep its bound."""
    try:
        given = float(metric(_copied(answer), _copied(answer)))
    except Exception:  # told where it judges
        return
    if not given <= allowed:
        told = f"the metric gives {given:.3g} for equal outputs, where {allowed:.3g} is allowed"
        raise InputError(f"{told}: return 0 for equal outputs, such as 1 - IoU")


def blind_notes(metric: OutputMetric, blind: Sequence[bool]) -> tuple[Note, ...]:
    """`blind`: of each input what `sees_nothing` says."""
    ready = metric if isinstance(metric, Measure) else None
    what = "Your metric" if ready is None else f"--metric {ready.spec}"
    if not any(blind):
        return ()
    if not all(blind):
        return (Note.of(NoteKind.METRIC_BLIND_IN_PART, what, count=sum(blind), total=len(blind)),)
    if ready is None or not ready.finer:
        return (Note.of(NoteKind.METRIC_BLIND, what),)
    return (Note.of(NoteKind.METRIC_TOO_COARSE, what, option=f"{ready.name}:{ready.finer}"),)


def _in_order(order: Callable[[Array], Array], array: Array) -> Array:
    return order(array.reshape(-1)).reshape(array.shape).copy()


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(map(np.array_equal, tensors_in(one.values()), tensors_in(other.values())))


def _copied(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A function may write into what it is given."""
    return {name: changed(held, np.copy) for name, held in answer.items()}
