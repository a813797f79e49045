"""What a search keeps of each measurement, as types: an entry that is none of them is another's, and does not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from halfwise.core.document import Number, Record
from halfwise.core.metrics import Outputs

__all__ = ["AloneEntry", "NoiseEntry", "OneEntry", "Ratio", "SensitivityEntry", "SetEntry"]

if TYPE_CHECKING:
    Amount = float
    Ratio = float
else:

    class Amount(Number):
        """A number from 0; infinity may be a word."""

        @classmethod
        def read(cls, value: object) -> Amount:
            if (found := cls(Number.read(value))) >= 0:
                return found
            raise ValueError(f"must be at least 0, not {value!r}")

    class Ratio(float):
        """A number as text, infinity among them."""

        @classmethod
        def read(cls, value: object) -> Ratio:
            if isinstance(value, str):
                return cls(value)
            raise ValueError("must be a number as text")


Runs = Annotated[float, Meta(ge=0)]


class SetEntry(Record, frozen=True):
    """The error with a set of nodes in FP32, sample by sample."""

    loads: tuple[Ratio, ...]
    uncompared: tuple[str, ...]
    outputs: Outputs  # over all samples
    runs: Runs
    until: Runs  # as many were counted by then
    chances: tuple[Amount, ...] = ()
    smooth: tuple[Ratio, ...] = ()
    hardest: tuple[tuple[int, Ratio], ...] = ()  # of samples with steps: the worst finite one, and its error

    def of(self, samples: int) -> bool:
        """Whether it is of so many."""
        more = {len(self.chances), len(self.smooth), len(self.hardest)}
        return len(self.loads) == samples and more <= {0, samples}


class OneEntry(Record, frozen=True):
    """The same on one sample."""

    load: Ratio
    runs: Runs
    until: Runs


class AloneEntry(Record, frozen=True):
    """The same with each of some nodes reverted by itself."""

    loads: tuple[Ratio, ...]
    runs: Runs
    until: Runs
    put_off: tuple[str, ...] = ()  # of those nodes, the ones that there was no room for


class NoiseEntry(Record, frozen=True):
    """What a walk saw, by the names of nodes."""

    pieces: tuple[tuple[tuple[str, ...], Amount, bool], ...]
    cost: Mapping[str, Amount]
    runs: Runs
    until: Runs
    walked: tuple[int, ...] = ()

    def of(self, names: Mapping[str, object]) -> bool:
        """Whether it is of a model with such nodes, each with its cost."""
        return (
            all(name in self.cost for needs, _, _ in self.pieces for name in needs) and self.cost.keys() <= names.keys()
        )


class SensitivityEntry(Record, frozen=True):
    """What walks over some samples saw, by the names of nodes and the numbers of values."""

    reads: Mapping[str, Mapping[str, Amount]]
    handed_out: Mapping[str, Amount]
    weights: Mapping[str, Amount]
    breaks: tuple[tuple[str, str], ...]
    overflows: tuple[str, ...]
    size: Mapping[str, int]
    samples: int
    runs: Runs
    until: Runs

    def of(self, nodes: Mapping[str, object], values: Mapping[str, object]) -> bool:
        """Whether it is of a model with such nodes and values."""
        named = {*self.reads, *self.weights, *(node for node, _ in self.breaks)}
        numbered = {*self.handed_out, *self.overflows, *self.size, *(value for _, value in self.breaks)}
        numbered.update(value for effects in self.reads.values() for value in effects)
        return named <= nodes.keys() and numbered <= values.keys()
