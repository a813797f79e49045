"""What the tensors of a model hold over one sample in FP32: their sizes and ranges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import convert
from numpy.typing import NDArray

from halfwise.core.cores import Helper
from halfwise.core.counting import Counts, count, worst_counts
from halfwise.core.errors import InputError
from halfwise.core.powers import powers
from halfwise.emulation.branches import branch_taken, is_walked
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.model.moving import Move, movers
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges

__all__ = [
    "BESIDE",
    "StatisticsCollector",
    "TensorStatistics",
    "beside_one_another",
    "channels_of",
    "merged",
    "ranges_if_asked",
    "ranges_of",
    "tensor_statistics",
]

Array = NDArray[Any]

_SAME = movers(Move.SHAPE | Move.ORDER)  # they give the values of their first input, all of them
_CHANNELS = 1 << 16  # more are no channels
BESIDE = 2  # samples that go through a model together: each has its live tensors


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """Sizes of all tensors, and what the FP32 ones held."""

    sizes: Mapping[ir.Value, int]
    tensors: Mapping[ir.Value, Counts]
    powers: Mapping[ir.Value, Mapping[int, int]] = field(default_factory=dict)  # of some values of each, by exponent
    shapes: Mapping[ir.Value, tuple[int, ...]] = field(default_factory=dict)
    channels: Mapping[ir.Value, Array] = field(default_factory=dict)  # of graph inputs

    def over(self, values: Iterable[ir.Value | None]) -> tuple[float, float]:
        """The largest finite magnitude and the smallest that is not zero; zeros where there is nothing."""
        found = [self.tensors[value] for value in values if value is not None and value in self.tensors]
        lows = [counts.min_abs for counts in found if counts.min_abs]
        return max((counts.max_abs for counts in found), default=0.0), min(lows, default=0.0)

    def ranges(self) -> dict[str, Counts]:
        """What the FP32 tensors held, by name."""
        return {value.name or "": counts for value, counts in self.tensors.items()}


_Walk = tuple[TensorStatistics, Mapping[str, Array]]  # with what was answered


def tensor_statistics(
    stepper: Stepper, sites: Sites, feed: Mapping[str, Array], seen: TensorStatistics | None = None
) -> TensorStatistics:
    """What one sample's tensors hold in FP32; a walk that was kept is not walked again. `seen` are kept as they are."""
    key = _key(stepper, sites, feed)
    return _kept(stepper, sites, key, lambda: seen or _walked(stepper, sites, [feed])[0][0])


def beside_one_another(stepper: Stepper, sites: Sites, feeds: Sequence[Mapping[str, Array]]) -> Iterator[_Walk]:
    """The same of several samples of a large model, whose weights are read once for several; and what it answers."""
    for start in range(0, len(feeds), BESIDE):
        together = _Together(stepper, sites, feeds[start : start + BESIDE])
        yield from map(together.of, range(len(together.feeds)))


@dataclass(frozen=True, eq=False)
class _Together:
    """Samples that are walked when one of them is asked for of which nothing was kept."""

    stepper: Stepper
    sites: Sites
    feeds: Sequence[Mapping[str, Array]]
    walked: list[_Walk] = field(default_factory=list)

    def of(self, number: int) -> _Walk:
        key, kept = _key(self.stepper, self.sites, self.feeds[number]), self.stepper.emulator.kept
        found, of_answer = _kept(self.stepper, self.sites, key, lambda: self._walk(number)[0]), f"{key}-answer"
        if not self.walked:
            return found, (kept.answer(of_answer) if key else None) or {}
        kept.keep(of_answer if key else "", self.walked[number][1])
        return found, self.walked[number][1]

    def _walk(self, number: int) -> _Walk:
        if not self.walked:
            self.walked.extend(_walked(self.stepper, self.sites, self.feeds))
        return self.walked[number]


def _kept(stepper: Stepper, sites: Sites, key: str, walk: Callable[[], TensorStatistics]) -> TensorStatistics:
    kept, values = stepper.emulator.kept, _values(sites)
    return kept.document(key, lambda: _told(walk(), values), partial(_read, values)) if key else walk()


def _key(stepper: Stepper, sites: Sites, feed: Mapping[str, Array]) -> str:
    return stepper.emulator.walk_key(Assignment(sites, {}), feed, "statistics", sites.fmt.value)


def _read(values: Sequence[ir.Value], told: Any) -> TensorStatistics:
    sizes, tensors, spread, channels = ({values[int(index)]: each for index, each in part.items()} for part in told)
    return TensorStatistics(
        {value: int(size) for value, size in sizes.items()},
        {value: convert(counts, Counts) for value, counts in tensors.items()},
        {value: {int(power): int(many) for power, many in powers.items()} for value, powers in spread.items()},
        channels={value: np.array(high) for value, high in channels.items()},
    )


def merged(found: Sequence[TensorStatistics]) -> TensorStatistics:
    """Of the steps of one stream, in order: what is worst of each tensor, in the shapes of the last."""
    *before, last = found
    tensors, powers, channels = dict(last.tensors), dict(last.powers), dict(last.channels)
    for each in before:
        for value, counts in each.tensors.items():
            tensors[value] = worst_counts(counts, tensors[value]) if value in tensors else counts
        for value, many in each.powers.items():
            powers[value] = Counter(powers.get(value, {})) + Counter(many)
        for value, high in each.channels.items():
            channels[value] = np.maximum(channels.get(value, 0.0), high)
    return TensorStatistics(last.sizes, tensors, powers, last.shapes, channels)


def _values(sites: Sites) -> list[ir.Value]:
    model = sites.model
    return [*model.graph.inputs, *(value for node in model.nodes for value in node.outputs)]


def _told(found: TensorStatistics, values: Sequence[ir.Value]) -> list[Any]:
    """For JSON, by the numbers of the values."""
    numbers = {value: number for number, value in enumerate(values)}
    return [
        {numbers[value]: size for value, size in found.sizes.items()},
        {numbers[value]: vars(counts) for value, counts in found.tensors.items()},
        {numbers[value]: powers for value, powers in found.powers.items()},
        {numbers[value]: high.tolist() for value, high in found.channels.items()},
    ]


def _walked(stepper: Stepper, sites: Sites, feeds: Sequence[Mapping[str, Array]]) -> list[_Walk]:
    """As far as the model can be run node by node."""
    beside = list[Store]()
    stores = [Store(stepper.emulator, Assignment(sites, {}), feed, beside) for feed in feeds]
    with Helper() as helper:
        seen = [StatisticsCollector(stepper, sites, store, helper) for store in stores]
        for steps in zip_longest(*(_steps(stepper, store) for store in stores)):
            first = steps[0], seen[0]
            for step, each in zip(steps, seen, strict=True):
                if step is not None:
                    each.take(step, first if each is not seen[0] else None)
        found: list[_Walk] = [
            (each.statistics, _answer(sites, store)) for each, store in zip(seen, stores, strict=True)
        ]
    beside.clear()  # or each holds the others, and all they hold
    return found


def _answer(sites: Sites, store: Store) -> dict[str, Array]:
    """Nothing where the walk came to no end."""
    judged = sites.model.judged_values
    whole = all(value in store for value in judged)
    return {value.name or "": store.read(value, None) for value in judged} if whole else {}


def _steps(stepper: Stepper, store: Store) -> Iterator[Step]:
    with suppress(InputError):
        yield from stepper.walk(store, branches=True)


class StatisticsCollector:
    """Looks at the tensors of a walk in FP32 as they are made."""

    def __init__(self, stepper: Stepper, sites: Sites, store: Store, helper: Helper) -> None:
        self._stepper, self._sites, self._store, self._helper = stepper, sites, store, helper
        self._sizes: dict[ir.Value, int] = {}
        self._inside: dict[ir.Value, Counts] = {}
        self._looked_at: dict[ir.Value, Callable[[], tuple[Counts, Mapping[int, int]]]] = {}
        self._shapes: dict[ir.Value, tuple[int, ...]] = {}
        given = {value: store.read(value, None) for value in sites.model.graph.inputs if value in store}
        self._channels = {v: high for v, each in given.items() if (high := channels_of(v, each)) is not None}
        self._see(given)

    def take(self, step: Step, first: tuple[Step | None, StatisticsCollector] | None = None) -> None:
        """`first`: the same step of another sample; what is made of weights alone both hold, and it is looked at
        once."""
        moved = step.node.inputs[0] if step.node.op_type in _SAME and not step.node.domain else None
        if first is not None and first[0] is not None:
            made, known = first[0].outputs, first[1]._looked_at
            same = [value for value, array in step.outputs.items() if made.get(value) is array and value in known]
            self._looked_at.update((value, known[value]) for value in same)
        self._see(step.outputs, moved)
        if is_walked(branch_taken(step.node, self._store), self._store):  # in steps of their own
            return
        inside = self._stepper.observe(step.node, self._store, self._sites.fmt)
        self._sizes.update((value, counts.count) for value, counts in inside.items())
        self._inside.update(inside)

    @property
    def statistics(self) -> TensorStatistics:
        found = {value: result() for value, result in self._looked_at.items()}
        tensors = {value: counts for value, (counts, _) in found.items()} | self._inside
        powers = {value: each for value, (_, each) in found.items()}
        return TensorStatistics(self._sizes, tensors, powers, self._shapes, self._channels)

    def _see(self, arrays: Mapping[ir.Value, Array], moved: ir.Value | None = None) -> None:
        """`moved`: what holds the same values."""
        for value, array in arrays.items():
            if isinstance(array, np.ndarray):
                self._sizes[value], self._shapes[value] = array.size, array.shape
                if value in self._looked_at:
                    continue
                if moved in self._looked_at:
                    self._looked_at[value] = self._looked_at[moved]
                elif array.dtype == np.float32:
                    self._looked_at[value] = self._helper.ask(partial(_look_at, array), array.size)


def channels_of(value: ir.Value, array: Any) -> Array | None:
    """The largest finite magnitude in each channel of an input, which are along the axes whose sizes the model states;
    None where it states all or none."""
    dims = value.shape or ()
    open_axes = tuple(axis for axis, size in enumerate(dims) if not isinstance(size, int))
    if not open_axes or not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != len(dims):
        return None
    sizes = [size for size in dims if isinstance(size, int)]
    if not 1 < math.prod(sizes) <= _CHANNELS:
        return None
    high: Array = np.abs(array).max(axis=open_axes, keepdims=True, initial=0.0, where=np.isfinite(array))
    return high


def _look_at(array: Array) -> tuple[Counts, Mapping[int, int]]:
    return count(array), powers(array)


class _Asked(Mapping[str, Any]):
    """One part of ranges, which are made when anything of them is read."""

    def __init__(self, made: Callable[[], Ranges], part: str) -> None:
        self._made, self._part = made, part

    @property
    def _known(self) -> Mapping[str, Any]:
        known: Mapping[str, Any] = getattr(self._made(), self._part)
        return known

    def __getitem__(self, name: str) -> Any:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def ranges_if_asked(statistics: Callable[[], Iterable[TensorStatistics]]) -> Ranges:
    """What tensors held; nothing is walked for it where no rule asks."""
    made = cache(lambda: ranges_of(statistics()))
    return Ranges(_Asked(made, "high"), _Asked(made, "low"), _Asked(made, "size"), _Asked(made, "channels"))


def ranges_of(statistics: Iterable[TensorStatistics]) -> Ranges:
    """What tensors held, over several samples."""
    high: dict[str, float] = {}
    low: dict[str, float] = {}
    size: dict[str, int] = {}
    channels: dict[str, Array] = {}
    for each in statistics:
        for value, counts in each.tensors.items():
            name = value.name or ""
            size[name] = counts.count
            high[name] = max(high.get(name, 0.0), counts.max_abs)
            if counts.min_abs:
                low[name] = min(low.get(name, math.inf), counts.min_abs)
        for value, highs in each.channels.items():
            channels[value.name or ""] = np.maximum(channels.get(value.name or "", 0.0), highs)
    return Ranges(high, low, size, channels)
