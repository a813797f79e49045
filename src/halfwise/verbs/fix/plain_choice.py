"""Which choice between near equals plain FP16 takes otherwise: it turns by the least rounding of all that leads to it,
so that no few FP32 nodes keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.emulate import widen_feeds
from halfwise.emulation.streamed import answered
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites, native_format
from halfwise.search.run_counter import Untried
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["plain_choice"]

Array = NDArray[Any]

_PLACES = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}  # which output says where


@dataclass(frozen=True, eq=False)
class _Choice:
    """A node, the numbers that it chooses by, and where it says which it took."""

    node: ir.Node
    asked: ir.Value
    place: ir.Value


@dataclass(frozen=True)
class _Turned:
    """On one input: of how many places another entry is taken, and how far apart both lie at most in FP32."""

    changed: int
    total: int
    apart: float


def plain_choice(prepared: Prepared, given: Sequence[Feed]) -> tuple[Note, ...]:
    """Of the first choice that turns: later ones may turn for that. Nothing of a model too large for two passes more,
    nor of streams, nor where a budget of runs is spent, nor where plain FP16 does not run."""
    counter, emulator, model = prepared.context.counter, prepared.context.emulator, prepared.sites.model
    choices = [found for node in model.graph if (found := _choice(node)) is not None]
    streams = any(isinstance(feed, Trajectory) for feed in given)
    if not choices or streams or emulator.streams(model) or not counter.free(2 * len(given), Untried.CHOICES):
        return ()
    names = dict.fromkeys(value.name or "" for each in choices for value in (each.asked, each.place))
    sites = Sites(replace(model, watched=tuple(names)))
    narrow = Assignment.all_narrow(sites, io=prepared.request.io_types)
    counter.add(2 * len(given))
    try:
        sessions = [emulator.session(assignment) for assignment in (Assignment(sites, {}), narrow)]
        seen = [_of_one(choices, *(answered(each, [feed])[0] for each in sessions)) for feed in map(widen_feeds, given)]
    except InputError:
        return ()
    for number, choice in enumerate(choices):
        each = [of_feed[number] for of_feed in seen]
        if any(turned.changed for turned in each):
            return _told(choice, each)
    return ()


def _choice(node: ir.Node) -> _Choice | None:
    """None where it chooses by no number that was computed."""
    if node.domain or node.op_type not in _PLACES or len(node.outputs) <= _PLACES[node.op_type]:
        return None
    asked, place = node.inputs[0], node.outputs[_PLACES[node.op_type]]
    if asked is None or asked.producer() is None or native_format(asked) is None:
        return None
    if not place.name or place.dtype is None:
        return None
    return _Choice(node, asked, place)


def _of_one(choices: Sequence[_Choice], right: Mapping[str, Array], plain: Mapping[str, Array]) -> list[_Turned]:
    """Of one input."""
    return [_turned(choice, right, plain) for choice in choices]


def _turned(choice: _Choice, right: Mapping[str, Array], plain: Mapping[str, Array]) -> _Turned:
    place, node = choice.place.name or "", choice.node
    axis = node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0)
    a, b, values = right[place], plain[place], right[choice.asked.name or ""]
    if a.shape != b.shape:
        return _Turned(0, a.size, 0.0)
    differ = a != b
    if not differ.any():
        return _Turned(0, a.size, 0.0)
    one, other = (
        np.take_along_axis(values, _as_indices(p, values, axis), axis).reshape(a.shape)[differ] for p in (a, b)
    )
    with np.errstate(invalid="ignore"):
        apart = np.where(one == other, 0.0, np.abs(one - other))  # of minus infinity, as masks have it, too
    return _Turned(int(np.count_nonzero(differ)), a.size, float(apart.max()))


def _told(choice: _Choice, each: Sequence[_Turned]) -> tuple[Note, ...]:
    """Nothing where an entry was taken that is not finite in FP32: no near equal."""
    apart = max(turned.apart for turned in each)
    if not np.isfinite(apart):
        return ()
    changed, total = sum(turned.changed for turned in each), sum(turned.total for turned in each)
    count, inputs = sum(turned.changed > 0 for turned in each), len(each)
    name, op = choice.node.name or "", choice.node.op_type
    told = Note.of(
        NoteKind.CHOICE_TURNS, name, op=op, changed=changed, total=total, count=count, inputs=inputs, apart=apart
    )
    return (told,)


def _as_indices(places: Array, values: Array, axis: int) -> Array:
    """With the axis that a reduction may have dropped."""
    return places if places.ndim == values.ndim else np.expand_dims(places, axis)
