"""Made-up inputs: from declared types and shapes where none are given, and variants of the only one given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import changed
from halfwise.core.errors import InputError
from halfwise.core.limits import LARGEST_MADE_INPUT
from halfwise.core.metrics import is_float, is_number
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.symbol_sums import size_of_sum, symbols_in
from halfwise.model.inputs.usual_values import usual_values

__all__ = [
    "USUAL",
    "OpenSizes",
    "lengths_among",
    "open_axes",
    "open_dimensions",
    "resized",
    "shapes_of",
    "synthesize",
    "vary",
]

Feed = dict[str, NDArray[Any]]

_BATCH = re.compile(r"(?i).*batch.*|n|b|bs|bsz")
_LENGTH = re.compile(r"(?i)(?!.*(past|total|max|min))(.*[^a-z]|seq)?(len|length)s?")
_VARIATION = 2.0**-7
_IN_SEQUENCE = 2  # tensors of a sequence
_ROWS = 2  # the axis of a cache's rows
_FLAGS = 32  # whole numbers within such a range are flags or classes, not quantities


@dataclass(frozen=True)
class OpenSizes:
    """How large the dimensions are that the model leaves open."""

    size: int = 16
    apart: Mapping[str, int] = field(default_factory=dict)  # those of another size
    leading: int = 1  # what leads a shape, and may be a batch
    lengths: bool = False  # whether inputs that are called a length state the largest size of the others

    def of(self, key: str) -> int:
        return self.apart.get(key, self.size)


USUAL = OpenSizes()


def open_dimensions(specs: Sequence[InputSpec]) -> tuple[str, ...]:
    """Those that `OpenSizes` speaks of."""
    return tuple(dict.fromkeys(open_axes(specs).values()))


def open_axes(specs: Sequence[InputSpec]) -> dict[tuple[str, int], str]:
    """The same by input and axis, each by its symbol or else by its place: what leads a shape or is called so is a
    batch."""
    leading = {spec.shape[0] for spec in specs if spec.shape}
    named = any(isinstance(dim, str) and _BATCH.fullmatch(dim) for dim in leading)  # then no other N is one
    named = named or leading == {1}  # nor where the batch is fixed
    symbols = _symbols(specs)

    def is_open(dim: int | str | None, axis: int) -> bool:
        if not isinstance(dim, str):
            return dim is None and axis > 0
        if symbols_in(dim, symbols):
            return False
        return dim not in leading and ("batch" not in dim.lower() if named else not _BATCH.fullmatch(dim))

    every = [(spec.name, axis, dim) for spec in specs for axis, dim in enumerate(spec.shape or ())]
    return {(name, axis): _key(dim, axis, name) for name, axis, dim in every if is_open(dim, axis)}


def lengths_among(specs: Sequence[InputSpec]) -> list[InputSpec]:
    """Inputs that say by their names how long others are."""
    return [
        spec
        for spec in specs
        if spec.dtype.kind in "iu"
        and len(spec.shape or ()) <= 1
        and not spec.sequence
        and _LENGTH.fullmatch(spec.plain_name)
    ]


def _symbols(specs: Sequence[InputSpec]) -> frozenset[str]:
    return frozenset(dim for spec in specs for dim in spec.shape or () if isinstance(dim, str))


def _key(dim: int | str | None, axis: int, name: str) -> str:
    return dim if isinstance(dim, str) else f"{name}[{axis}]"


def synthesize(
    specs: Sequence[InputSpec],
    count: int,
    *,
    rng: np.random.Generator,
    dims: Mapping[str, int],
    sizes: OpenSizes = USUAL,
) -> tuple[Feed, ...]:
    """`count` random feeds; floats normal(0, 1) in one, uniform(0, 1) in the next; integers 0 to their `most`, but for
    those whose names tell what they hold."""
    _check_size(specs, dims, sizes)
    shapes = {spec.name: shape for spec, shape in zip(specs, shapes_of(specs, dims, sizes), strict=True)}
    full = {spec.name: _longest(spec, shapes) for spec in lengths_among(specs)} if sizes.lengths else {}
    lengths = {s.name: np.full(shapes[s.name], full[s.name], s.dtype) for s in specs if s.name in full}
    feeds = []
    for index in range(count):
        told = {**usual_values(specs, shapes, index), **lengths}
        feeds.append({s.name: told[s.name] if s.name in told else _made(s, shapes[s.name], index, rng) for s in specs})
    return tuple(feeds)


def _longest(length: InputSpec, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The largest size of the input that its name begins with, as "mel" of "mel_lens"; else of all."""
    others = {name: shape for name, shape in shapes.items() if name != length.name}
    named = [shape for name, shape in others.items() if length.name.startswith(name)]
    return max((size for shape in named or others.values() for size in shape), default=1)


def _check_size(specs: Sequence[InputSpec], dims: Mapping[str, int], sizes: OpenSizes) -> None:
    for spec, shape in zip(specs, shapes_of(specs, dims, sizes), strict=True):
        if (size := math.prod(shape) * spec.dtype.itemsize) > LARGEST_MADE_INPUT:
            raise InputError(
                f"input {spec.name!r} has {size} bytes, and inputs are generated up to {LARGEST_MADE_INPUT}; "
                "give real inputs with --inputs"
            )


def _made(spec: InputSpec, shape: tuple[int, ...], index: int, rng: np.random.Generator) -> Any:
    """What is optional is there."""
    if spec.sequence:
        return [_random(spec, shape, index, rng) for _ in range(_IN_SEQUENCE)]
    return _random(spec, shape, index, rng)


def _random(spec: InputSpec, shape: tuple[int, ...], index: int, rng: np.random.Generator) -> NDArray[Any]:
    if is_float(spec.dtype):
        values = rng.random(shape) if index % 2 else rng.standard_normal(shape)
        return np.asarray(values).astype(spec.dtype)
    if is_number(spec.dtype):
        return np.asarray(rng.integers(0, 1 if spec.dtype == np.bool_ else spec.most, shape, endpoint=True)).astype(
            spec.dtype
        )
    kind = "text" if spec.dtype.kind in "OUS" else str(spec.dtype)
    raise InputError(f"input {spec.name!r} is {kind}, which cannot be generated; give real inputs with --inputs")


def shapes_of(specs: Sequence[InputSpec], dims: Mapping[str, int], sizes: OpenSizes) -> list[tuple[int, ...]]:
    """A shape for each input: one value for one symbol, 1 for what is called a batch and, usually, for what leads."""
    symbols = _symbols(specs)
    opened = set(open_dimensions(specs))

    def size_of(dim: int | str | None, axis: int, name: str) -> int:
        if isinstance(dim, int):
            return dim
        key = _key(dim, axis, name)
        parts = symbols_in(key, symbols)
        if parts and key not in dims:
            return size_of_sum(key, {part: size_of(part, axis, name) for part in parts}) or sizes.size
        if key in opened:
            return dims.get(key, sizes.of(key))
        return dims.get(key, 1 if _BATCH.fullmatch(key) else sizes.leading)

    for name, size in dims.items():
        if name not in symbols:
            there = f"the model's open dimensions are {', '.join(map(repr, sorted(symbols)))}"
            raise InputError(
                f"there is no dimension {name!r} to set; {there if symbols else 'the model has no open dimension'}"
            )
        if size < 1:
            raise InputError(f"dimension {name!r} must be at least 1, not {size}")

    shapes = []
    for spec in specs:
        if spec.shape is None:
            raise InputError(f"input {spec.name!r} declares no shape; give real inputs with --inputs")
        sized = [size_of(dim, axis, spec.name) for axis, dim in enumerate(spec.shape)]
        if spec.room and len(sized) > _ROWS and not isinstance(spec.shape[_ROWS], int):
            sized[_ROWS] = max(sized[_ROWS], spec.room)
        shapes.append(tuple(sized))
    return shapes


def vary(feed: Mapping[str, NDArray[Any]], *, rng: np.random.Generator) -> Feed:
    """The same feed with every float value moved by at most 2^-7 of itself; all else is unchanged.

    An input stays within its own least and largest value: a mask at the edge of its type must not become infinite,
    and an index stored as a float must not leave its table. Whole numbers stay whole, and flags what they are.
    """
    return {name: changed(held, partial(_varied, rng=rng)) for name, held in feed.items()}


def _varied(values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if not is_float(values.dtype):
        return values
    wide = values.astype(np.float64)
    finite = np.isfinite(wide)
    if not finite.any():
        return values
    low, high = wide[finite].min(), wide[finite].max()
    whole = bool((wide[finite] == np.rint(wide[finite])).all())
    if whole and high - low <= _FLAGS:
        return values
    with np.errstate(over="ignore"):
        moved = np.clip(wide * (1.0 + _VARIATION * rng.uniform(-1.0, 1.0, wide.shape)), low, high)
    if whole:
        moved = np.rint(moved)
    return np.asarray(np.where(finite, moved, wide)).astype(values.dtype)


def resized(values: NDArray[Any], factor: float, limits: tuple[float, float]) -> NDArray[Any]:
    """The same values times a factor, within limits. Whole numbers stay whole, and flags what they are."""
    wide = values.astype(np.float64)
    finite = np.isfinite(wide)
    whole = bool((wide[finite] == np.rint(wide[finite])).all())
    if whole and float(np.ptp(wide[finite])) <= _FLAGS:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.clip(wide * factor, *limits)
        moved = np.rint(moved) if whole else moved
        made = np.where(finite, moved, wide).astype(values.dtype)
    return made if np.isfinite(made[finite]).all() else values
