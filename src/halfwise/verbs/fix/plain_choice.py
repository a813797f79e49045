"""Which choice between near equals plain FP16 takes otherwise: it turns by the least rounding of all that leads to it,
so that no few FP32 nodes keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

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


def plain_choice(prepared: Prepared, given: Sequence[Feed]) -> tuple[Note, ...]:
    """Of the first choice that turns: later ones may turn for that. Nothing of a model too large for two passes more,
    nor of streams, nor where a budget of runs is spent."""
    counter, emulator, model = prepared.context.counter, prepared.context.emulator, prepared.sites.model
    choices = [found for node in model.graph if (found := _choice(node)) is not None]
    streams = any(isinstance(feed, Trajectory) for feed in given)
    if not choices or streams or emulator.streams(model) or not counter.free(2 * len(given), Untried.CHOICES):
        return ()
    names = dict.fromkeys(value.name or "" for each in choices for value in (each.asked, each.place))
    sites = Sites(replace(model, watched=tuple(names)))
    feeds = [widen_feeds(feed) for feed in given]
    counter.add(2 * len(feeds))
    right, plain = (
        answered(emulator.session(assignment), feeds)
        for assignment in (Assignment(sites, {}), Assignment.all_narrow(sites, io=prepared.request.io_types))
    )
    notes = (_turned(each, right, plain) for each in choices)
    return next(((note,) for note in notes if note is not None), ())


def _choice(node: ir.Node) -> _Choice | None:
    """None where it chooses by no number that was computed."""
    if node.domain or node.op_type not in _PLACES or len(node.outputs) <= _PLACES[node.op_type]:
        return None
    asked, place = node.inputs[0], node.outputs[_PLACES[node.op_type]]
    if asked is None or asked.producer() is None or native_format(asked) is None or not place.name:
        return None
    return _Choice(node, asked, place)


def _turned(choice: _Choice, right: Sequence[Mapping[str, Array]], plain: Sequence[Mapping[str, Array]]) -> Note | None:
    node = choice.node
    axis = node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0)
    count = changed = total = 0
    apart = 0.0
    for one, other in zip(right, plain, strict=True):
        a, b, values = one[choice.place.name or ""], other[choice.place.name or ""], one[choice.asked.name or ""]
        if a.shape != b.shape:
            return None
        differ = a != b
        total += a.size
        if not differ.any():
            continue
        count += 1
        changed += int(np.count_nonzero(differ))
        taken = [np.take_along_axis(values, _as_indices(each, values, axis), axis).reshape(a.shape) for each in (a, b)]
        apart = max(apart, float(np.abs(taken[0] - taken[1])[differ].max()))
    if not changed:
        return None
    name, op, inputs = node.name or "", node.op_type, len(right)
    return Note.of(
        NoteKind.CHOICE_TURNS, name, op=op, changed=changed, total=total, count=count, inputs=inputs, apart=apart
    )


def _as_indices(places: Array, values: Array, axis: int) -> Array:
    """With the axis that a reduction may have dropped."""
    return places if places.ndim == values.ndim else np.expand_dims(places, axis)
