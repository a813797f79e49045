"""Every representative input in the order given, for verbs that look and compare but do not search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from numpy.typing import NDArray

from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import load_samples

__all__ = ["AllSamples", "all_samples"]

Feed = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class AllSamples:
    """`origin` is "given" or "synthetic"; `notes` are for the user, a line each."""

    feeds: tuple[Feed, ...]
    origin: str
    notes: tuple[str, ...]


def all_samples(specs: Sequence[InputSpec], sources: Any, *, most: int | None = None) -> AllSamples:
    """Read and check the inputs; nothing is held out, so that a single sample needs no variants of itself.

    At most `most` samples are kept, evenly picked; None keeps as many as a search and its validation would.
    """
    if isinstance(sources, Iterable) and not isinstance(sources, (str, Mapping)):
        sources = list(sources) or None
    samples = load_samples(specs, sources) if most is None else load_samples(specs, sources, most=most)
    if not specs:
        return AllSamples(samples.search, "given", ())
    if samples.origin == "derived":  # the last notes speak of the variants
        return AllSamples(samples.search, "given", samples.notes[:-1])
    pairs = zip_longest(samples.search, samples.validation)  # how the two were told apart
    return AllSamples(
        tuple(feed for feed in chain.from_iterable(pairs) if feed is not None), samples.origin, samples.notes
    )
