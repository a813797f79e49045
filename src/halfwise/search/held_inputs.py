"""The inputs of a search: what was given, and variants of it where these are few; what is searched, and held out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import Samples
from halfwise.search.references import References
from halfwise.search.variants import of_few, varied

__all__ = ["HELD_OUT_TARGET", "Inputs"]

HELD_OUT_TARGET = 0.9  # of the tolerance: a held-out input nearer to it says that others may miss it


@dataclass(frozen=True, eq=False)
class Inputs:
    """`variants` are all that were made; those in `searched` and `beyond` are held out no more."""

    given: Samples
    variants: tuple[Feed, ...] | None = None  # None before they were asked for
    searched: tuple[Feed, ...] = ()
    beyond: tuple[Feed, ...] = ()  # on which no set of FP32 nodes is worth having

    @property
    def search(self) -> tuple[Feed, ...]:
        return (*self.given.search, *self.searched)

    @property
    def held_out(self) -> tuple[Feed, ...]:
        """What was given first."""
        taken = (*self.searched, *self.beyond)
        return (*self.given.validation, *(feed for feed in self.variants or () if feed not in taken))

    def with_variants(self, references: References) -> Inputs:
        return self if self.variants is not None else replace(self, variants=of_few(self.given, references))

    def with_searched(self, worst: Feed, references: References) -> tuple[Inputs, Note]:
        """A held-out input joins the search; it judges no more."""
        if worst in (self.variants or ()):
            return replace(self, searched=(*self.searched, worst)), Note.of(NoteKind.VARIANT_MOVED)
        search = (*self.given.search, worst)
        rest = tuple(feed for feed in self.given.validation if feed is not worst)
        if rest:
            given, note = replace(self.given, search=search, validation=rest), Note.of(NoteKind.VALIDATION_MOVED)
        elif any(isinstance(feed, Trajectory) for feed in search):
            given, note = self._derived(search, search), Note.of(NoteKind.ROLLOUT_REUSED)
        else:
            held_out = varied(search, (*search, *(self.variants or ())), references, seed=len(search))
            given, note = self._derived(search, held_out or search), Note.of(NoteKind.VALIDATION_REPLACED)
        return replace(self, given=given), note

    def _derived(self, search: tuple[Feed, ...], held_out: tuple[Feed, ...]) -> Samples:
        return replace(self.given, search=search, validation=held_out, origin="derived")
