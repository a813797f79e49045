"""Every representative input in the order given, for verbs that look and compare but do not search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Annotated, Any

from numpy.typing import NDArray

from halfwise.core.document import Count, Record, about
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import MOST, load_samples
from halfwise.model.inputs.synthetic import USUAL, OpenSizes

__all__ = ["AllSamples", "UsedInputs", "all_samples"]

Feed = Mapping[str, NDArray[Any]]

_OF_VARIANTS = {NoteKind.ONE_SAMPLE, NoteKind.ONE_CONSTANT_SAMPLE}


class UsedInputs(Record, frozen=True):
    """The inputs that an answer rests on."""

    origin: Annotated[str, about("given, derived or synthetic.")]
    samples: Count


@dataclass(frozen=True, eq=False)
class AllSamples:
    """`origin` is "given" or "synthetic"."""

    feeds: tuple[Feed, ...]
    origin: str
    notes: tuple[Note, ...]


def all_samples(
    specs: Sequence[InputSpec],
    sources: Any,
    *,
    most: int | None = None,
    sizes: OpenSizes = USUAL,
    states: Collection[str] | None = None,
) -> AllSamples:
    """Read and check the inputs; nothing is held out, so that a single sample needs no variants of itself.

    At most `most` samples are kept, evenly picked; None keeps as many as a search and its validation would. With
    `states` they are a stream, of which all are kept.
    """
    if isinstance(sources, Iterable) and not isinstance(sources, (str, Mapping)):
        sources = list(sources) or None
    samples = load_samples(specs, sources, most=most or MOST, sizes=sizes, states=states)
    if not specs:
        return AllSamples(samples.search, "given", ())
    if samples.origin == "derived":  # nothing is held out here, so there is no need to speak of variants
        notes = tuple(note for note in samples.notes if note.kind not in _OF_VARIANTS)
        return AllSamples(samples.search, "given", notes)
    pairs = zip_longest(samples.search, samples.validation)  # how the two were told apart
    return AllSamples(
        tuple(feed for feed in chain.from_iterable(pairs) if feed is not None), samples.origin, samples.notes
    )
