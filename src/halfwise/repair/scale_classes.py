"""Solves which powers of two hang on one another: k = 2 l behind a square, k = l / 2 behind a root, k = l + m behind a
product. What is left to choose is one whole number a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from halfwise.repair.distinct import distinct, numbered
from halfwise.repair.scale_atoms import PINNED, Atoms, Floats, Ints, Products, Tie

__all__ = ["Classes", "solve"]

_ROUNDS = 64  # of products that wait for one another
_CONSTANTS = 4  # in a row
_SAME = 1e-9
_STEPS = 48  # a class whose number would have to be a multiple of more than that stays as it is

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Classes:
    """Every unknown is `times` the number of its class; the class 0 is the pinned. `kept` says of each root whether
    its result carries what the root leaves of the power; else the power is taken back right behind it."""

    labels: Ints
    times: Floats
    kept: tuple[bool, ...]

    @cached_property
    def count(self) -> int:
        return int(self.labels.max()) + 1

    @cached_property
    def steps(self) -> Ints:
        """What the number of each class has to be a multiple of, so that every unknown is whole."""
        steps = np.ones(self.count, np.int64)
        for times in distinct(self.times[np.abs(self.times - np.rint(self.times)) > _SAME]):
            denominator = Fraction(float(times)).limit_denominator(1000).denominator
            labels = distinct(self.labels[self.times == times])
            steps[labels] = np.lcm(steps[labels], denominator)
        return steps


def solve(atoms: Atoms) -> Classes:
    """Roots follow what they read where nothing behind them is pinned by that; the louder factor of a product that
    nothing decides is free, the other one is pinned."""
    forest = _Forest(atoms.count)
    forest.merge(atoms.ties())
    products, follows = atoms.products(), list(atoms.follows)
    kept = [False] * len(follows)
    waiting = np.ones(len(products.made), bool)
    for _ in range(_ROUNDS):
        known = [
            _pinned(follow.made) for follow in follows if forest.free(follow.made) and not forest.free(follow.read)
        ]
        if forest.merge([*known, *_decided(forest, products, waiting)]):
            continue
        open_roots = [i for i, follow in enumerate(follows) if not kept[i] and forest.free(follow.made, follow.read)]
        if open_roots:
            forest.merge([(follows[i].made, follows[i].read, np.full(1, follows[i].ratio)) for i in open_roots])
            for index in open_roots:
                kept[index] = True
            continue
        if not waiting.any():
            break
        forest.merge(_as_it_stands(forest, products, waiting, atoms) or _guessed(forest, products, waiting))
    forest.merge([_pinned(side[waiting]) for side in (products.made, products.left, products.right)])
    # What is behind a root that is not kept sees its value as it is.
    forest.merge([_pinned(follow.made) for follow, is_kept in zip(follows, kept, strict=True) if not is_kept])
    classes = forest.classes(kept)
    wild = np.flatnonzero(classes.steps > _STEPS)
    if len(wild):
        forest.merge([_pinned(np.flatnonzero(np.isin(classes.labels, wild)))])
        classes = forest.classes(kept)
    return classes


def _as_it_stands(forest: _Forest, products: Products, waiting: Bools, atoms: Atoms) -> list[Tie]:
    """Of x and what constants make of 1 / x, as of a norm: they stay as they are, and the product has no power, unless
    that is tied to what has to be scaled."""
    read, ratios = atoms.stands()
    ties: list[Tie] = []
    quiet = waiting & ~np.isin(forest.label[products.made], forest.label[atoms.loud()])
    left, right, sign = products.left[quiet], products.right[quiet], products.sign[quiet]
    for one, other in ((left, right), (right, left)):
        at, ratio = one, np.ones(len(one))
        for _ in range(_CONSTANTS):
            at, ratio = read[at], ratio * ratios[at]
            cancels = np.abs(ratio * forest.times[at] + sign * forest.times[other]) < _SAME
            found = cancels & (at != PINNED) & (forest.label[at] == forest.label[other])
            found &= forest.label[one] != forest.label[at]
            if found.any():
                ties.append((one[found], at[found], ratio[found]))
                break
    return ties


def _guessed(forest: _Forest, products: Products, waiting: Bools) -> list[Tie]:
    """What divides is scaled as what it divides is; of two factors the second one stays as it is."""
    left, right, sign = products.left[waiting], products.right[waiting], products.sign[waiting]
    divides = sign * forest.times[left] * forest.times[right] < 0
    stays = _one_each(forest, left[~divides], right[~divides])
    return [(left[divides], right[divides], -sign[divides]), _pinned(stays)]


def _one_each(forest: _Forest, left: Ints, right: Ints) -> Ints:
    """The second factor of each product; the other one where the second is free in another product, as a gate that
    several layers share: one that stays everywhere. What that decides of others is seen when it holds."""
    of_left, of_right = forest.label[left], forest.label[right]
    both = np.isin(of_left, of_right) | np.isin(of_right, of_left)
    staying, free, found = set[int](), set[int](), [right[~both]]
    for index in np.flatnonzero(both):
        one, other = int(of_left[index]), int(of_right[index])
        if one in staying or other in staying or {one, other} <= free:
            continue
        stays = one if other in free else other
        staying.add(stays)
        free |= {one, other} - {stays}
        found.append((left if stays == one else right)[index : index + 1])
    return np.concatenate(found)


def _pinned(atoms: Ints) -> Tie:
    return atoms, np.full(1, PINNED), np.ones(1)


def _decided(forest: _Forest, products: Products, waiting: Bools) -> list[Tie]:
    """The ties that follow from what is known of the products that still wait; those no longer wait."""
    index = np.flatnonzero(waiting)
    made, left, right = (part[index] for part in (products.made, products.left, products.right))
    sign = products.sign[index]
    in_made, in_left, in_right = (forest.label[part] for part in (made, left, right))
    t_made, t_left, t_right = (forest.times[part] for part in (made, left, right))
    ones, zero = np.ones(len(index)), np.zeros(len(index), np.int64)
    done = np.zeros(len(index), bool)
    ties: list[Tie] = []

    def tie(where: Bools, one: Ints, other: Ints, ratio: Floats) -> None:
        where = where & ~done
        done[where] = True
        nothing = where & (np.abs(ratio) < _SAME)
        something = where & ~nothing
        if nothing.any():
            ties.append((one[nothing], zero[nothing], ones[nothing]))
        if something.any():
            ties.append((one[something], other[something], ratio[something]))

    with np.errstate(divide="ignore", invalid="ignore"):
        tie(in_left == PINNED, made, right, sign)
        tie(in_right == PINNED, made, left, ones)
        tie(in_left == in_right, made, left, 1.0 + sign * t_right / t_left)
        tie(in_made == PINNED, left, right, -sign)
        tie(in_made == in_left, right, left, sign * (t_made / t_left - 1.0))
        tie(in_made == in_right, left, right, t_made / t_right - sign)
    waiting[index[done]] = False
    return ties


class _Forest:
    """Classes of unknowns that are multiples of one another; every unknown points at the smallest of its class."""

    def __init__(self, count: int) -> None:
        self.label: Ints = np.arange(count, dtype=np.int64)
        self.times: Floats = np.ones(count)

    def classes(self, kept: Sequence[bool]) -> Classes:
        return Classes(numbered(self.label)[1], self.times.copy(), tuple(kept))

    def free(self, *sides: Ints) -> bool:
        return all((self.label[side] != PINNED).all() for side in sides)

    def merge(self, ties: Sequence[Tie]) -> bool:
        """Make these hold: one = ratio * other. Classes in which they contradict are pinned."""
        spread = [np.broadcast_arrays(*tie) for tie in ties]
        if not spread or not sum(one.size for one, _, _ in spread):
            return False
        left, right, ratio = (np.concatenate([each[i].reshape(-1) for each in spread]) for i in range(3))
        while True:
            at, to = self.label[left], self.label[right]
            differ = at != to
            if not differ.any():
                break
            self._hook(at[differ], to[differ], (ratio * self.times[right] / self.times[left])[differ])
        wrong = np.abs(self.times[left] - ratio * self.times[right]) > _SAME * np.abs(self.times[left])
        bad = distinct(self.label[left[wrong]])
        bad = bad[bad != PINNED]
        if len(bad):
            self.label[np.isin(self.label, bad)] = PINNED
        return True

    def _hook(self, at: Ints, to: Ints, ratio: Floats) -> None:
        """Every larger one of two labels points at the smallest that it meets: at = ratio * to."""
        high, low = np.maximum(at, to), np.minimum(at, to)
        factor = np.where(at > to, ratio, 1.0 / ratio)
        order = np.argsort(-low, kind="stable")  # of several the last is written
        parent, times = np.arange(len(self.label), dtype=np.int64), np.ones(len(self.label))
        parent[high[order]], times[high[order]] = low[order], factor[order]
        while True:
            above = parent[parent]
            if np.array_equal(above, parent):
                break
            times, parent = times * times[parent], above
        self.times[:] = self.times * times[self.label]
        self.label[:] = parent[self.label]
