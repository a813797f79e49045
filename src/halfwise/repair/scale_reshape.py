"""What a Reshape makes of the axes of a tensor: in row-major order both shapes are cut into the same factors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from halfwise.repair.extents import Size, Sizes
from halfwise.repair.scale_layout import Layout

__all__ = ["Cut", "cut"]

_MOST = 1 << 18  # unknowns of a tensor whose channels are repeated
_REST = -1  # axes along which nothing is told apart

_Axes = list[tuple[Size | None, int]]


@dataclass(frozen=True)
class _Factor:
    """A part of an axis of the one shape, and of an axis of the other."""

    size: Size
    source: int
    target: int


@dataclass(frozen=True)
class Cut:
    """Factors in order, `told` those that tell unknowns apart; of the axes that those are parts of, all factors. Along
    the targets in `repeated` what they tell comes an unknown number of times: only they are there."""

    sizes: tuple[int, ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    told: frozenset[int]
    repeated: frozenset[int]


def cut(layout: Layout, before: Sizes, after: Sizes) -> Cut:
    """What becomes of a layout's axes. Open dimensions beside them are the same in both shapes, or all others are."""
    found, rest = _matched(_apart(layout, before), [(size, axis) for axis, size in enumerate(after)])
    first, rest = _matched(rest[0][::-1], rest[1][::-1])
    found = [] if _contradict(*rest) else [*first[::-1], *found]
    parts = {axis: _product(each for each in found if each.source == axis) for axis in layout.axes}
    told = {place for place, each in enumerate(found) if parts.get(each.source) == Size(layout.size(each.source))}
    opened = set[int]()
    for target, size in enumerate(after):
        mine = {place for place, each in enumerate(found) if each.target == target}
        here, others = mine & told, mine - told
        if _product(found[place] for place in mine) != size or not here:
            told -= mine
        elif others and not _repeats(found, told, mine):
            open_one = any(found[place].size.names for place in others) and max(others) < min(here)
            opened |= {target} if open_one else set()
            told -= set() if open_one else mine
    sources, targets = ({getattr(found[place], end) for place in told} for end in ("source", "target"))
    places = [place for place, each in enumerate(found) if each.source in sources or each.target in targets - opened]
    kept = [found[place] for place in places]
    return Cut(
        tuple(each.size.number for each in kept),
        tuple(each.source for each in kept),
        tuple(each.target for each in kept),
        frozenset(index for index, place in enumerate(places) if place in told),
        frozenset(opened),
    )


def _contradict(before: _Axes, after: _Axes) -> bool:
    """Whether what is left cannot be as many elements: names of dimensions are wrong then."""
    counts = [math.prod((size for size, _ in left if size is not None), start=Size(1)) for left in (before, after)]
    known = all(size is not None for size, _ in (*before, *after))
    return known and counts[0] != counts[1] and (counts[0].over(counts[1]) or counts[1].over(counts[0])) is not None


def _repeats(found: Sequence[_Factor], told: set[int], mine: set[int]) -> bool:
    """Whether an axis may have unknowns again and again: it takes up axes as a whole, and not too many."""
    split = {found[place].source for place in mine & told} & {found[place].source for place in told - mine}
    many = _product(found[place] for place in told | mine).whole
    return not split and many is not None and many <= _MOST


def _apart(layout: Layout, sizes: Sizes) -> _Axes:
    """The axes with unknowns one by one, what is between them together."""
    made: _Axes = []
    for axis, size in enumerate(sizes):
        own = Size(layout.size(axis))
        times = size if axis not in layout.axes else size and size.over(own) if axis in layout.repeated else Size(1)
        if made and made[-1][1] == _REST:
            last = made.pop()[0]
            times = last * times if last is not None and times is not None else None
        made.append((times, _REST))
        if axis in layout.axes:
            made.append((own, axis))
    return made


def _matched(before: _Axes, after: _Axes) -> tuple[list[_Factor], tuple[_Axes, _Axes]]:
    """Factors from the end on, as far as one size divides the other; and what is left of both."""
    before, after, found = list(before), list(after), list[_Factor]()
    while before and after:
        (one, source), (other, target) = before[-1], after[-1]
        if one == Size(1) or other == Size(1):
            (before if one == Size(1) else after).pop()
            continue
        if one is None or other is None or not one.number or not other.number:
            break
        if (left := one.over(other)) is not None:
            before[-1], shared = (left, source), other
            after.pop()
        elif (left := other.over(one)) is not None:
            after[-1], shared = (left, target), one
            before.pop()
        else:
            break
        found.insert(0, _Factor(shared, source, target))
    return found, (before, after)


def _product(factors: Iterable[_Factor]) -> Size:
    return math.prod((each.size for each in factors), start=Size(1))
