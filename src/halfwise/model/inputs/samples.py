"""Representative inputs: read, checked against what the model declares, and split for search and validation."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from halfwise.core.contents import layout, tensors_in
from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.checked import Arrays, checked, with_states
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.fitted import fitted
from halfwise.model.inputs.shapes import Shapes
from halfwise.model.inputs.sources import Entry, Source, sources_of
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, open_dimensions, synthesize, vary

__all__ = ["MOST", "Feed", "Samples", "content_of", "load_samples"]

MOST = 8
_SYNTHETIC = 4
_ALL = 1 << 30


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs to search with and inputs that the search never sees.

    `origin`: "given"; "derived": the validation inputs are variants of the only one given; "synthetic": all made up.
    `notes` are for the user.
    """

    search: tuple[Feed, ...]
    validation: tuple[Feed, ...]
    origin: Literal["given", "derived", "synthetic"]
    notes: tuple[Note, ...] = ()

    @property
    def all(self) -> tuple[Feed, ...]:
        """Each once."""
        return tuple(dict.fromkeys((*self.search, *self.validation)))


def load_samples(
    specs: Sequence[InputSpec],
    sources: Source | Iterable[Source] | None,
    *,
    seed: int = 0,
    most: int = MOST,
    dims: Mapping[str, int] | None = None,
    sizes: OpenSizes = USUAL,
    states: Collection[str] | None = None,
) -> Samples:
    """Read, check and split the inputs of a model.

    `sources` are paths (.npz with input names as keys, .npy for a model with one input, Polygraphy's .json, folders of
    these, raw values as NAME:FILE or NAME.bin in a folder), feeds (mappings from input names to arrays), `Images`,
    `Audio` or `Shapes`, one or many. A sequence is a list of arrays, in a file the
    keys "name[0]", "name[1]", ...; an optional input may be left out. None makes inputs up, with symbolic
    dimensions from `dims` (else 1 for a batch, and as `sizes` tells for others).
    At most `most` samples each are kept to search and to validate, evenly picked. The same sources and seed always
    give the same samples. Arrays come out in the declared type. With `states` the samples are a stream: all are kept,
    and a state that a sample lacks is zero.
    """
    rng = np.random.default_rng(seed)
    if not specs:
        return Samples((Feed(0, {}),), (Feed(1, {}),), "given", (Note.of(NoteKind.NO_INPUTS),))
    if sources is None:
        return _synthetic(specs, rng, dims or {}, sizes)

    found = sources_of(sources, specs, states or ())
    if found.only_shapes:
        return _synthetic(specs, rng, dims or {}, sizes, found.shapes)
    room = 2 * most if states is None else _ALL
    entries, given = _picked(found.entries, room)
    if not entries:
        raise InputError("no input samples were given; give files with --inputs, or leave it out for synthetic ones")
    feeds: list[Arrays] = []
    done: dict[Note, None] = {}
    for entry in entries:
        read = with_states(entry.read(), specs, states or ())
        parts, said = fitted(read, specs, entry.label, alone=given == 1 and states is None)
        feeds += [checked(part, specs, entry.label) for part in parts]
        done.update(dict.fromkeys(said))
    given += len(feeds) - len(entries)
    if len(feeds) > room:
        feeds = [feeds[index * len(feeds) // room] for index in range(room)]
    notes = [*found.notes, *done]
    notes += [Note.of(NoteKind.SAMPLES_THINNED, used=len(feeds), given=given)] if given > len(feeds) else []
    feeds, repeats = _distinct(feeds) if states is None else (feeds, 0)
    if repeats:
        notes.append(Note.of(NoteKind.SAMPLES_REPEATED, count=repeats))
    notes += _nonfinite_notes(feeds)
    if len(feeds) == 1:
        return _derived(feeds[0], notes, rng)
    return Samples(*_numbered(feeds[0::2], feeds[1::2]), "given", tuple(notes))


def _synthetic(
    specs: Sequence[InputSpec],
    rng: np.random.Generator,
    dims: Mapping[str, int],
    sizes: OpenSizes,
    shapes: Shapes | None = None,
) -> Samples:
    """With shapes, each sample takes the next of those stated, half of them to search and half to validate."""
    choices = [(tuple(specs), dims)] if shapes is None else list(shapes.choices(specs))
    sets = [synthesize(each, 2 * _SYNTHETIC, rng=rng, dims=symbols, sizes=sizes) for each, symbols in choices]
    made = [sets[index % _SYNTHETIC % len(sets)][index] for index in range(2 * _SYNTHETIC)]
    notes = [Note.of(NoteKind.SYNTHETIC)]
    chosen = [f"{key} {sizes.of(key)}" for key in open_dimensions(specs) if key not in dims] if shapes is None else []
    notes += [Note.of(NoteKind.SIZES_CHOSEN, sizes=chosen)] if chosen else []
    return Samples(*_numbered(made[:_SYNTHETIC], made[_SYNTHETIC:]), "synthetic", tuple(notes))


def _derived(only: Arrays, notes: Sequence[Note], rng: np.random.Generator) -> Samples:
    """One sample cannot be split, so that the held-out ones must come from it."""
    variants = (vary(only, rng=rng), vary(only, rng=rng))
    if content_of(variants[0]) == content_of(only):
        feed = Feed(0, only)
        return Samples((feed,), (feed,), "derived", (*notes, Note.of(NoteKind.ONE_CONSTANT_SAMPLE)))
    return Samples(*_numbered((only,), variants), "derived", (*notes, Note.of(NoteKind.ONE_SAMPLE)))


def _numbered(search: Sequence[Arrays], validation: Sequence[Arrays]) -> tuple[tuple[Feed, ...], tuple[Feed, ...]]:
    feeds = [Feed(index, arrays) for index, arrays in enumerate((*search, *validation))]
    return tuple(feeds[: len(search)]), tuple(feeds[len(search) :])


# -- choosing ---------------------------------------------------------------------------------------------------------


def _picked(entries: Iterable[Entry], most: int) -> tuple[list[Entry], int]:
    """At most `most` entries, evenly picked, and how many there were; never more than twice as many are held."""
    kept: list[Entry] = []
    stride = 1
    count = 0
    for entry in entries:
        if count % stride == 0:
            kept.append(entry)
        count += 1
        if len(kept) > 2 * most:
            kept = kept[::2]
            stride *= 2
    if len(kept) > most:
        kept = [kept[index * len(kept) // most] for index in range(most)]
    return kept, count


def _distinct(feeds: Sequence[Arrays]) -> tuple[list[Arrays], int]:
    """The feeds without repeats: one that the search saw may not be held out."""
    distinct = list({content_of(feed): feed for feed in reversed(feeds)}.values())[::-1]
    return distinct, len(feeds) - len(distinct)


def content_of(feed: Arrays) -> bytes:
    """A digest of a sample: the same for the same arrays, wherever they come from."""
    digest = hashlib.sha256()
    for name, held in feed.items():
        digest.update(f"{name} {layout(held)} ".encode())
        for array in tensors_in([held]):
            digest.update(f"{array.dtype} {array.shape} ".encode())
            digest.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return digest.digest()


def _nonfinite_notes(feeds: Sequence[Arrays]) -> list[Note]:
    notes = []
    for name in feeds[0]:
        held = [[array for array in tensors_in([feed[name]]) if is_float(array.dtype)] for feed in feeds]
        if any(held):
            bad = sum(not all(np.isfinite(array).all() for array in arrays) for arrays in held)
            if bad:
                notes.append(Note.of(NoteKind.SAMPLES_NOT_FINITE, name, bad=bad, samples=len(feeds)))
    return notes
