"""Fits a sample to the model where only one reading of it makes sense: names, a missing batch, batches; and says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.checked import names_of

__all__ = ["fitted"]

Feed = Mapping[str, Any]
Dims = Sequence[int | str | None]

_PLACE = re.compile(r"arr_\d+")  # what np.savez calls an array without a name
_BATCH = re.compile(r"(?i).*batch.*")


def fitted(feed: Feed, specs: Sequence[InputSpec], label: str, *, alone: bool) -> tuple[list[Feed], list[Note]]:
    """The samples in it, and what was done to them. `alone`: no other sample was given."""
    notes: list[Note] = []
    named = _named(feed, specs, label, notes)
    ranked = {name: _ranked(held, _spec(specs, name), notes) for name, held in named.items()}
    return _split(ranked, specs, notes, alone), notes


def _spec(specs: Sequence[InputSpec], name: str) -> InputSpec | None:
    return next((spec for spec in specs if spec.name == name and not spec.sequence and spec.shape is not None), None)


# -- names ------------------------------------------------------------------------------------------------------------


def _named(feed: Feed, specs: Sequence[InputSpec], label: str, notes: list[Note]) -> Feed:
    """Arrays under the model's names: by place, by a name that differs in signs only, or the one that is left."""
    if any(spec.sequence for spec in specs):  # whose parts have names of their own
        return feed
    wanted = [spec for spec in specs if spec.name not in feed]
    names = {spec.name for spec in specs}
    unknown = [name for name in feed if name not in names]
    if not unknown or not wanted:
        return feed
    taken: dict[str, str] = {}
    if len(unknown) == len(feed) == len(specs) and all(_PLACE.fullmatch(name) for name in unknown):
        taken = dict(zip(unknown, (spec.name for spec in specs), strict=True))
    for name in unknown:
        alike = [spec.name for spec in wanted if _bare(spec.name) == _bare(name)]
        if len(alike) == 1 and alike[0] not in taken.values():
            taken.setdefault(name, alike[0])
    left = [name for name in unknown if name not in taken]
    lacking = [spec for spec in wanted if spec.name not in taken.values() and not spec.optional]
    if len(left) == len(lacking) == 1 and _may_be(feed[left[0]], lacking[0]):
        taken[left[0]] = lacking[0].name
        left = []
    if left:
        near = "".join(nearest(name, (spec.name for spec in wanted)) for name in left[:1])
        told = ", ".join(repr(name) for name in left)
        raise InputError(f"{label}: holds {told}, but the model takes {names_of(specs)}{near}")
    notes += [Note.of(NoteKind.INPUT_TAKEN_AS, spec, given=name) for name, spec in taken.items()]
    return {taken.get(name, name): held for name, held in feed.items()}


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name.removesuffix(":0")).lower()


def _may_be(array: Any, spec: InputSpec) -> bool:
    """Whether its shape is the declared one, but for the batch."""
    if not isinstance(array, np.ndarray) or spec.shape is None:
        return isinstance(array, np.ndarray)
    return _alike(array.shape[1:], spec.shape[1:]) or (bool(spec.shape) and _alike(array.shape, spec.shape[1:]))


def _alike(shape: Sequence[int], declared: Dims) -> bool:
    return len(shape) == len(declared) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True)
    )


# -- batches ----------------------------------------------------------------------------------------------------------


def _ranked(held: Any, spec: InputSpec | None, notes: list[Note]) -> Any:
    """With the batch that is missing, where the model leads with one of 1 or of any size."""
    if spec is None or not isinstance(held, np.ndarray) or not spec.shape or held.ndim != len(spec.shape) - 1:
        return held
    if not _alike(held.shape, spec.shape[1:]) or (spec.shape[0] not in (1, None) and isinstance(spec.shape[0], int)):
        return held
    notes.append(Note.of(NoteKind.BATCH_ADDED, spec.name))
    return held[None]


def _split(feed: Feed, specs: Sequence[InputSpec], notes: list[Note], alone: bool) -> list[Feed]:
    """Several samples that lie one behind another, where the model takes fewer at a time."""
    counts: dict[str, int] = {}
    for spec in specs:
        held = feed.get(spec.name)
        if spec.sequence or not spec.shape or not isinstance(held, np.ndarray) or held.ndim != len(spec.shape):
            continue
        lead = spec.shape[0]
        if not isinstance(lead, int):
            lead = 1 if alone and isinstance(lead, str) and _BATCH.fullmatch(lead) else 0
        whole = lead and held.shape[0] > lead and held.shape[0] % lead == 0
        if whole and _alike(held.shape[1:], spec.shape[1:]):
            counts[spec.name] = held.shape[0] // lead
    if len(set(counts.values())) != 1:
        return [feed]
    (count,) = set(counts.values())
    notes.append(Note.of(NoteKind.BATCH_SPLIT, count=count))
    return [
        {name: _part(held, place, count) if name in counts else held for name, held in feed.items()}
        for place in range(count)
    ]


def _part(held: Any, place: int, count: int) -> Any:
    size = held.shape[0] // count
    return held[place * size : (place + 1) * size]
