"""Which unknown power of two scales which part of a tensor: a block of unknowns along some of its axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.repair.scale_atoms import Floats, Ints
from halfwise.repair.scale_blocks import blocks

__all__ = ["Layout", "blocks_along", "common"]


@dataclass(frozen=True)
class Layout:
    """One unknown for each place along `axes`, in row-major order: along none of them a single one. The axes grow, and
    the tensor has as many elements along each as `sizes` tells, more than 1; along `repeated` ones it is an unknown
    number of times as long, and the unknowns come again and again.

    `cap` says how large a magnitude can be there at most, whatever the input, as far as that is known.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    atoms: Ints
    cap: Floats
    repeated: frozenset[int] = frozenset()

    @classmethod
    def along(cls, axis: int | None, atoms: Ints, cap: Floats) -> Layout:
        """One unknown a channel along an axis, or a single one where that is None."""
        axes, sizes = ((), ()) if axis is None else ((axis,), (len(atoms),))
        return cls.over(axes, sizes, atoms, cap)

    @classmethod
    def over(
        cls, axes: Sequence[int], sizes: Sequence[int], atoms: Ints, cap: Floats, repeated: frozenset[int] = frozenset()
    ) -> Layout:
        """Of axes in any order; those of one element are left out."""
        turned = sorted(range(len(axes)), key=axes.__getitem__)
        caps = cap if len(cap) == len(atoms) else np.broadcast_to(cap, len(atoms))
        if turned != [*range(len(axes))]:
            atoms = atoms.reshape(sizes).transpose(turned).reshape(-1)
            caps = caps.reshape(sizes).transpose(turned).reshape(-1)
        kept = [place for place in turned if sizes[place] != 1]
        own = tuple(axes[place] for place in kept)
        return cls(own, tuple(sizes[place] for place in kept), atoms, caps, repeated.intersection(own))

    @property
    def first(self) -> Ints:
        return self.atoms[:1]

    def size(self, axis: int) -> int:
        """Along an axis; 1 where all along it have one unknown."""
        return self.sizes[self.axes.index(axis)] if axis in self.axes else 1

    def at(self, axes: Sequence[int]) -> Layout:
        """The same along other axes."""
        repeated = frozenset(new for axis, new in zip(self.axes, axes, strict=True) if axis in self.repeated)
        return Layout.over(axes, self.sizes, self.atoms, self.cap, repeated)

    def moved(self, by: int) -> Layout:
        return self.at([axis + by for axis in self.axes])

    def taken(self, axis: int, chosen: Ints) -> Layout:
        """These places along an axis, which is not open."""
        place = self.axes.index(axis)
        sizes = [len(chosen) if axis == each else size for each, size in zip(self.axes, self.sizes, strict=True)]
        atoms, cap = self.atoms.reshape(self.sizes), self.cap.reshape(self.sizes)
        parts = atoms.take(chosen, place).reshape(-1), cap.take(chosen, place).reshape(-1)
        return Layout.over(self.axes, sizes, *parts, self.repeated)

    def spread(self, axes: Sequence[int], sizes: Sequence[int]) -> Layout:
        """Along more axes, in growing order; along those that are new, all have one unknown."""
        here = [self.size(axis) for axis in axes]
        if here == [*sizes]:
            return self
        atoms, cap = np.broadcast_to(self.atoms.reshape(here), sizes), np.broadcast_to(self.cap.reshape(here), sizes)
        return Layout.over(axes, sizes, atoms.reshape(-1), cap.reshape(-1), self.repeated)

    def block(self, array: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
        """Numbers of this layout, in the shape that broadcasts along these axes."""
        return np.reshape(array, [self.size(axis) for axis in axes])

    def shape(self, rank: int) -> tuple[int, ...]:
        """What spreads the unknowns over a tensor of this rank, from their first axis on."""
        return tuple(self.size(axis) for axis in range(self.axes[0], rank)) if self.axes else ()


def blocks_along(array: NDArray[Any], layout: Layout, rank: int) -> tuple[Floats, Floats]:
    """Mean square and largest magnitude of what a constant brings to each part of a tensor of this rank."""
    places = [axis - rank + array.ndim for axis in layout.axes]
    square, peak, _ = blocks(array, tuple(place for place in places if place >= 0))
    shape = [array.shape[place] if place >= 0 else 1 for place in places]
    square, peak = (np.broadcast_to(np.reshape(each, shape), layout.sizes).reshape(-1) for each in (square, peak))
    return square.copy(), peak.copy()


def common(
    layouts: Iterable[Layout], dims: Sequence[int | None] | None, but: int | None = None
) -> tuple[list[int], list[int]]:
    """The axes, `but` one, that tensors may keep which are to have the same unknowns, and their sizes in the result."""
    given = [layout for layout in layouts if set(layout.axes) - {but}]
    shared = set.intersection(*(set(layout.axes) - {but} for layout in given)) if given else set()
    longest = {axis: max(layout.size(axis) for layout in given) for axis in sorted(shared)}
    kept = {axis: size for axis, size in longest.items() if dims is None or dims[axis] in (None, size)}
    return list(kept), list(kept.values())
