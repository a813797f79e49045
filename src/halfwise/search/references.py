"""The FP32 answers of the model as given, or of the original that it was made from, each computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.streamed import answered
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.run_counter import RunCounter

__all__ = ["References"]

Outputs = dict[str, NDArray[Any]]


class References:
    """Answers by the number of the feed. Feeds made on the way are run when their answers are first asked for.

    With `original`, what that one gives for an output is the answer. `known` are answers of the model itself.
    """

    def __init__(
        self,
        sites: Sites,
        emulator: Emulator,
        counter: RunCounter,
        original: References | None = None,
        known: Mapping[int, Mapping[str, NDArray[Any]]] | None = None,
    ) -> None:
        self._fp32 = Assignment(sites, {})
        self._original = original
        self._emulator = emulator
        self._counter = counter
        names = [value.name or "" for value in sites.model.judged_values]
        self._known = {
            key: {name: outputs[name] for name in names}
            for key, outputs in (known or {}).items()
            if outputs.keys() >= set(names)
        }

    @property
    def model(self) -> Model:
        return self._fp32.sites.model

    @property
    def interface(self) -> Mapping[str, Format]:
        """The narrow formats in which the answers' model takes its inputs."""
        return self.model.interface if self._original is None else {}

    def keeping(self, sites: Sites) -> References:
        """The same answers, of what is judged in the model of `sites` alone."""
        return References(sites, self._emulator, self._counter, self._original, self._known)

    def apart(self, known: Mapping[int, Mapping[str, NDArray[Any]]] | None = None) -> References:
        """The same answers, and those that are `known`; what is asked of these is not known to those."""
        given = {**self._known, **(known or {})}
        return References(self._fp32.sites, self._emulator, self._counter, self._original, given)

    def of_form(self, sites: Sites) -> References:
        """What is right stays so, and the model is written otherwise."""
        return References(sites, self._emulator, self._counter, self._original or self)

    def of(self, feeds: Sequence[Feed]) -> list[Outputs]:
        """What is right."""
        own = self.own(feeds)
        if self._original is None:
            return own
        theirs = self._original.own(feeds)
        return [{n: b.get(n, array) for n, array in a.items()} for a, b in zip(own, theirs, strict=True)]

    def own(self, feeds: Sequence[Feed]) -> list[Outputs]:
        """What the model itself gives in FP32."""
        new = {feed.id: feed for feed in feeds if feed.id not in self._known}
        if new:
            session = self._emulator.session(self._fp32)
            found = answered(session, [widen_feeds(feed) for feed in new.values()])
            self._known.update(zip(new, found, strict=True))
            self._counter.add(len(new))
        return [self._known[feed.id] for feed in feeds]
