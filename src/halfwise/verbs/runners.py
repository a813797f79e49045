"""What answers samples in `verify`: a model that is emulated, outputs that were saved, or an object of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from halfwise.backends.saved_files import SavedSample, saved_samples
from halfwise.core.contents import changed
from halfwise.core.errors import InputError, of_sample
from halfwise.core.notes import Note
from halfwise.core.set_aside import set_aside
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.emulation.profiles import WIDE, profile_named
from halfwise.emulation.profiles.caveats import caveats
from halfwise.model.model import Model, check_outputs
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites, native_format

__all__ = ["UNDERSTOOD", "EmulatedRunner", "Runner", "SavedOutputs"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


@runtime_checkable
class Runner(Protocol):
    """Something that answers a sample with outputs by name."""

    def run(self, index: int, feed: Feed) -> dict[str, Array]: ...


UNDERSTOOD = 16  # samples from whose answers the outputs are understood; as many meet a weight that is read once


class EmulatedRunner:
    """A model as it stands, its FP16 and BF16 tensors rounded honestly under a profile; `narrow` makes all FP16."""

    def __init__(
        self,
        model: Model,
        profile: str = "strict",
        *,
        narrow: bool = False,
        beside: Emulator | None = None,
        walked: Callable[[int, int], None] = lambda *_: None,
        kept: KeptWalks | None = None,
        in_a_row: bool = False,
    ) -> None:
        """It shares its rounded weights with what runs `beside` it; a stream runs many times `in_a_row`."""
        check_outputs(model)
        self.model = model
        self._profile = profile
        own = profile_named(profile)
        self._emulator = (
            Emulator(own, walked=walked, kept=kept, in_a_row=in_a_row) if beside is None else beside.under(own)
        )
        self._types = {spec.name: spec.dtype for spec in model.inputs}
        sites = Sites(model)
        assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
        self._session = self._emulator.session(assignment)

    @property
    def judges(self) -> dict[str, EmulatedRunner]:
        """By profile: itself and, where it rounds anything, the same with less rounding."""
        formats = (native_format(value) for node in self.model.nodes for value in node.outputs)
        if self._profile == WIDE.name or not any(fmt is not None and fmt.narrow for fmt in formats):
            return {self._profile: self}
        return {self._profile: self, WIDE.name: EmulatedRunner(self.model, WIDE.name, beside=self._emulator)}

    @property
    def caveats(self) -> tuple[Note, ...]:
        return tuple(caveats(profile_named(self._profile), self.model.nodes))

    def run(self, index: int, feed: Feed) -> dict[str, Array]:
        with of_sample(index):
            return self._session.run(self._typed(index, feed))

    def all(self, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        """Of every sample; a large model reads its weights once for several."""
        for start in range(0, len(feeds), UNDERSTOOD):
            several = list(enumerate(feeds[start : start + UNDERSTOOD], start))
            answers = self._session.answers([self._typed(index, feed) for index, feed in several])
            for (index, _), answer in zip(several, answers, strict=True):
                with of_sample(index):
                    if isinstance(answer, Exception):
                        raise answer
                yield set_aside(answer)

    def _typed(self, index: int, feed: Feed) -> dict[str, Any]:
        missing = [name for name in self._types if name not in feed]
        if missing:
            raise InputError(
                f"sample {index + 1} has no input {missing[0]!r}, which {self.model.path or 'a model'} wants: "
                "the two models do not take the same inputs"
            )
        typed = {
            name: changed(feed[name], partial(np.ndarray.astype, dtype=dtype, copy=False))
            for name, dtype in self._types.items()
        }
        return widen_feeds(typed)

    def watching(self, names: tuple[str, ...]) -> EmulatedRunner:
        """The same, which answers with tensors inside the model, too."""
        if not names:
            return self
        watched, own = replace(self.model, watched=names), self._emulator
        return EmulatedRunner(watched, self._profile, walked=own.walked, kept=own.kept, in_a_row=own.in_a_row)


class SavedOutputs:
    """Outputs that something else computed, in the order of the samples."""

    def __init__(self, path: Path, samples: Sequence[SavedSample] = ()) -> None:
        self.path = path
        self.samples = tuple(samples) or saved_samples(path)

    def run(self, index: int, feed: Feed) -> dict[str, Array]:
        return self.samples[index].read()
