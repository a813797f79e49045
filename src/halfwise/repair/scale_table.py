"""What a choice of powers of two is made from, in flat arrays: each class finds what it touches without a walk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.patterns.norms import find_norms
from halfwise.repair.distinct import distinct, numbered
from halfwise.repair.scale_atoms import PINNED, TYPICAL, Floats, Heard, Ints, Weights
from halfwise.repair.scale_flow import ScaleFlow
from halfwise.repair.scale_lines import LargeTable, Pools, Side
from halfwise.repair.scale_loudness import LoudColumns

__all__ = ["Pools", "Table"]

_NONE = -1
_DIGITS = 9


@dataclass(frozen=True)
class _Sides:
    """What blocks ask of classes, by class: a block's scale grows with `times` the class's number."""

    of: Ints
    entry: Ints
    times: Floats


class _Touched:
    """Which of some constants each class scales."""

    def __init__(self, count: int, scaled: Sequence[Ints]) -> None:
        classes = [distinct(each) for each in scaled]
        by_class = np.concatenate([np.zeros(0, np.int64), *classes])
        order = np.argsort(by_class, kind="stable")
        self._number = np.repeat(np.arange(len(classes)), [len(each) for each in classes])[order]
        self._first = np.searchsorted(by_class[order], np.arange(count + 1))

    def numbers(self, batch: Ints) -> Ints:
        return distinct(self._number[_ranges(self._first[batch], self._first[batch + 1])[0]])


class Table:
    """Of a walk: `units`, which are the unknowns of one class that are the same multiple of its number, with the
    loudest and the quietest that their tensors show; and the constants, their blocks pooled by unit."""

    def __init__(self, flow: ScaleFlow) -> None:
        self._classes = classes = flow.classes
        every, kind = numbered(np.round(classes.times, _DIGITS))
        kind = np.where(classes.labels == PINNED, 0, kind)
        units, unit = numbered(classes.labels * len(every) + kind)
        self._unit = unit
        self._label, self.times = units // len(every), every[units % len(every)]
        self._first_unit = np.searchsorted(self._label, np.arange(classes.count + 1))
        self.loud, self.quiet = self._activations(flow)
        pooled = [pool for index, weights in enumerate(flow.weights) for pool in self._pooled(index, weights)]
        parts = [np.concatenate([np.zeros(0), *(pool[i] for pool in pooled)]) for i in range(6)]
        constant, self._row, self._column = (part.astype(np.int64) for part in parts[:3])
        self._square, self._count, self._peak = parts[3:]
        self._soft = np.array([weights.soft for weights in flow.weights], bool)[constant]
        sides = self._sides(constant)
        self._side_entry, self._side_times = sides.entry, sides.times
        keys = np.stack([sides.of.astype(np.float64), constant[sides.entry].astype(np.float64), sides.times])
        self._side_group = np.cumsum((np.diff(keys, axis=1, prepend=np.nan) != 0).any(axis=0))
        self._first_side = np.searchsorted(sides.of, np.arange(classes.count + 1))
        self._large = [self._dense(weights) for weights in flow.weights if weights.large and not self._is_line(weights)]
        both = [np.concatenate([each.rows.classes, each.columns.classes]) for each in self._large]
        self._large_of = _Touched(classes.count, both)
        self._heard = [self._loud_columns(weights) for weights in flow.weights if weights.heard is not None]
        self._heard_of = _Touched(classes.count, [each.classes for each in self._heard])
        self.stages = self._stages(flow)

    def units_of(self, batch: Ints) -> tuple[Ints, Ints]:
        """The units of these classes, and the place of each one's class in the batch."""
        return _ranges(self._first_unit[batch], self._first_unit[batch + 1])

    def pools_of(self, batch: Ints, power: Ints, *, together: bool = False) -> tuple[Pools, Ints]:
        """What the constants that these classes scale are under these powers; and the place of each in the batch. Where
        all move `together`, blocks between two of them keep their size, and are left out."""
        place = np.full(self._classes.count, _NONE)
        place[batch] = np.arange(len(batch))
        sides, local = _ranges(self._first_side[batch], self._first_side[batch + 1])
        entry = self._side_entry[sides]
        if together:
            ends = [place[self._label[units[entry]]] != _NONE for units in (self._row, self._column)]
            alone = ~(ends[0] & ends[1] & (self._column[entry] != _NONE))
            sides, local, entry = sides[alone], local[alone], entry[alone]
        row, column = self._row[entry], self._column[entry]
        scale = self.times[row] * power[self._label[row]]
        there = column != _NONE
        scale[there] -= self.times[column[there]] * power[self._label[column[there]]]
        group = self._side_group[sides]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        nothing = np.zeros(0)
        found = [(Pools(nothing, np.zeros(0, bool), nothing, nothing, nothing), np.zeros(0, np.int64))]
        if len(starts):
            with np.errstate(over="ignore"):
                total = np.add.reduceat(self._square[entry] * 4.0**scale, starts)
                top = np.maximum.reduceat(self._peak[entry] * 2.0**scale, starts)
            blocks = np.add.reduceat(self._count[entry], starts)
            first = sides[starts]
            pools = Pools(self._side_times[first], self._soft[entry[starts]], total, blocks, top)
            found.append((pools, local[starts]))
        found += [each for large in self._readers(batch) for each in large.pools(place, power, together=together)]
        return Pools.joined([pools for pools, _ in found]), np.concatenate([places for _, places in found])

    def heard_by(
        self, batch: Ints, power: Ints, above: float, *, columns: bool, together: bool = False
    ) -> list[tuple[Ints, Floats, Floats]]:
        """What columns of unlike loudness ask of these classes, where it is much: of rows, and of the columns."""
        place = np.full(self._classes.count, _NONE)
        place[batch] = np.arange(len(batch))
        found = (self._heard[number] for number in self._heard_of.numbers(batch))
        return [ask for each in found for ask in each.asks(place, power, above, columns=columns, together=together)]

    def neighbours(self, batch: Ints) -> Ints:
        """The classes that share a constant with these, themselves among them."""
        entry = self._side_entry[_ranges(self._first_side[batch], self._first_side[batch + 1])[0]]
        units = np.concatenate([self._row[entry], self._column[entry]])
        among = np.zeros(self._classes.count, bool)
        among[batch] = True
        also = [large.neighbours(among) for large in self._readers(batch)]
        found: Ints = np.setdiff1d(np.concatenate([self._label[units[units != _NONE]], *also]), [PINNED])
        return found

    def _readers(self, batch: Ints) -> list[LargeTable]:
        """The large constants that these classes scale."""
        return [self._large[number] for number in self._large_of.numbers(batch)]

    # -- made once ----------------------------------------------------------------------------------------------------

    def _activations(self, flow: ScaleFlow) -> tuple[Floats, Floats]:
        loud, quiet = np.zeros(len(self.times)), np.full(len(self.times), np.inf)
        inside = _inside(flow)
        for value, layout in flow.layouts.items():
            if value in inside:
                continue
            units = self._unit[layout.atoms]
            np.maximum.at(loud, units, layout.cap)
            low = flow.ranges.low.get(value.name or "", 0.0)
            if low > 0:
                np.minimum.at(quiet, units, np.full(len(layout.cap), low))
        return loud, quiet

    def _stages(self, flow: ScaleFlow) -> list[Ints]:
        labels, hard = self._classes.labels, [weights for weights in flow.weights if not weights.soft]
        stages = [distinct(labels[weights.rows]) for weights in hard]
        stages += [distinct(labels[weights.columns]) for weights in flow.weights if weights.columns is not None]
        stages += [distinct(labels[atoms]) for _, atoms in flow.terms]
        return [stage[stage != PINNED] for stage in stages]

    def _pooled(self, index: int, weights: Weights) -> Iterator[tuple[NDArray[np.generic], ...]]:
        """The blocks of one constant by the units of their row and column."""
        if weights.large is not None:
            yield from self._line(index, weights) if self._is_line(weights) else ()
            return
        rows = self._unit[weights.rows]
        square = weights.square if weights.square.ndim == 2 else weights.square.reshape(len(rows), -1)
        peak = np.broadcast_to(weights.peak, square.shape)
        columns = None if weights.columns is None else self._unit[weights.columns]
        if columns is not None and columns.shape[0] != 1 and square.shape[1] > 1:
            columns = np.broadcast_to(columns, square.shape)
            for row in range(len(rows)):  # of a grouped convolution: each row reads channels of its own
                yield from self._product(index, rows[row : row + 1], columns[row], square[[row]], peak[[row]])
        elif columns is not None and columns.shape[0] != 1:
            keys, inverse = numbered(rows * len(self.times) + columns.reshape(-1))
            total, count, top = (part.reshape(-1) for part in _summed(square, peak, inverse, len(keys)))
            yield (np.full(len(keys), index), *np.divmod(keys, len(self.times)), total, count, top)
        else:
            yield from self._product(index, rows, None if columns is None else columns[0], square, peak)

    def _crossing(self, weights: Weights) -> tuple[Ints, Ints]:
        """The units of a large constant's rows and columns."""
        assert weights.columns is not None
        return self._unit[weights.rows], self._unit[weights.columns].reshape(-1)

    def _is_line(self, weights: Weights) -> bool:
        """Whether all rows or all columns of a large constant are one unit: sums over them are all it takes."""
        return any((units == units[0]).all() for units in self._crossing(weights))

    def _dense(self, weights: Weights) -> LargeTable:
        assert weights.large is not None
        return LargeTable(weights.large, *self._both(weights))

    def _loud_columns(self, weights: Weights) -> LoudColumns:
        """A row is as loud as what it is added to: a bias, a residual stream."""
        assert weights.heard is not None
        units = self._unit[weights.rows]
        beside = np.where(self._label[units] == PINNED, 0.0, TYPICAL * self.loud[units])
        made = np.maximum(weights.heard.made, np.where(np.isfinite(beside), beside, 0.0) ** 2)
        return LoudColumns.of(Heard(made, weights.heard.read), *self._both(weights))

    def _both(self, weights: Weights) -> tuple[Side, Side]:
        rows, columns = (Side(self._label[units], self.times[units]) for units in self._crossing(weights))
        return rows, columns

    def _line(self, index: int, weights: Weights) -> Iterator[tuple[NDArray[np.generic], ...]]:
        rows, columns = self._crossing(weights)
        assert weights.large is not None
        by_row = bool((columns == columns[0]).all())
        mine, other = (rows, columns) if by_row else (columns, rows)
        lines = (weights.large.rows if by_row else weights.large.columns)(np.zeros(len(other)))
        keys, inverse = numbered(mine)
        top = np.zeros(len(keys))
        np.maximum.at(top, inverse, lines.peak)
        alone = np.full(len(keys), other[0])
        sums = np.bincount(inverse, lines.square), np.bincount(inverse) * float(len(other))
        yield (np.full(len(keys), index), *((keys, alone) if by_row else (alone, keys)), *sums, top)

    def _product(
        self, index: int, rows: Ints, columns: Ints | None, square: Floats, peak: Floats
    ) -> Iterator[tuple[NDArray[np.generic], ...]]:
        row_units, row_of = numbered(rows)
        total, count, top = _summed(square, peak, row_of, len(row_units))
        if columns is None:
            column_units = np.array([_NONE])
            total, count, top = total.sum(1, keepdims=True), count.sum(1, keepdims=True), top.max(1, keepdims=True)
        else:
            column_units, column_of = numbered(np.broadcast_to(columns, square.shape[1]))
            total, _, top = _summed(total.T, top.T, column_of, len(column_units))
            count = _summed(count.T, count.T, column_of, len(column_units))[0].T
            total, top = total.T, top.T
        row, column = np.meshgrid(row_units, column_units, indexing="ij")
        parts = (row, column, total, count, top)
        yield (np.full(row.size, index), *(part.reshape(-1) for part in parts))

    def _sides(self, constant: Ints) -> _Sides:
        """Every block asks its row's class, and its column's where that is another one, for something."""
        entries = np.arange(len(self._row))
        coupled = self._column != _NONE
        row_class, column_class = self._label[self._row], np.where(coupled, self._label[self._column], PINNED)
        same = coupled & (row_class == column_class)
        times = self.times[self._row] - np.where(same, self.times[self._column], 0.0)
        both = coupled & ~same
        of, entry = np.concatenate([row_class, column_class[both]]), np.concatenate([entries, entries[both]])
        times = np.concatenate([times, -self.times[self._column[both]]])
        asks = (of != PINNED) & (np.abs(times) > 10.0**-_DIGITS)
        of, entry, times = of[asks], entry[asks], times[asks]
        order = np.lexsort((times, constant[entry], of))
        return _Sides(of[order], entry[order], times[order])


def _inside(flow: ScaleFlow) -> set[ir.Value]:
    """The squares within norms, with all up to the root: they have a rule of their own, or a kernel in FP32."""
    by_name, found = flow.model.node_by_name, set[ir.Value]()
    for pattern in find_norms(flow.view):
        names = list(pattern.details["statistics"])
        for name in names[names.index(pattern.anchor) :] if pattern.anchor in names else ():
            found.update(by_name[name].outputs)
    return found


def _ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """All of each range, one behind the other; and the number of the range that each is of."""
    sizes = ends - starts
    local = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) - before[local] + starts[local], local


def _summed(square: Floats, peak: Floats, groups: Ints, count: int) -> tuple[Floats, Floats, Floats]:
    """Rows of one group together: sums, numbers, largest."""
    if count == len(groups):  # each row is a group of its own, in some order
        order = np.argsort(groups)
        return square[order], np.ones(square.shape), peak[order]
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(count))
    sizes = np.diff(np.append(starts, len(groups))).astype(np.float64)
    total, top = np.add.reduceat(square[order], starts, axis=0), np.maximum.reduceat(peak[order], starts, axis=0)
    return total, np.broadcast_to(sizes[:, None], total.shape), top
