"""What the way back knows of each tensor: its gradient, what a wrong integer in it costs, its rounding error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import Helper
from halfwise.core.fast_casts import rounded
from halfwise.core.formats import Format
from halfwise.emulation.large_tables import turns
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.weights import held_in_fp32
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.effects import Sensitivity
from halfwise.search.rounding import Rounding
from halfwise.search.tape import Tape
from halfwise.search.vjp import Array

__all__ = ["PROBES", "Gradients"]

PROBES = 4  # eight change little: most tensors have many elements to average over (benchmarks/ranking.py)


class Gradients:
    """Of one sample, over its tape; the gradients of the tensors alive take `probes` times their size."""

    def __init__(
        self,
        stepper: Stepper,
        sites: Sites,
        fp32: Assignment,
        tape: Tape,
        into: Sensitivity,
        seed: Sequence[int],
        probes: int,
        helper: Helper,
    ) -> None:
        self.helper = helper
        self.probes = probes
        self.stepper = stepper
        self.sites = sites
        self.fp32 = fp32
        self.tape = tape
        self.store = tape.store
        self.into = into
        self.rng = np.random.default_rng(seed)
        self.of: dict[ir.Value, Array] = {}
        self.flips: dict[ir.Value, float] = {}  # of integers: squared error at the outputs per wrong element
        self.roundings: dict[ir.Value, Callable[[], Rounding | None]] = {}
        self._reads: list[tuple[ir.Node, ir.Value, Callable[[], float | None]]] = []

    def add(self, value: ir.Value, gradient: Array) -> None:
        known = self.of.get(value)
        self.of[value] = gradient if known is None else known + gradient

    def signs(self, shape: tuple[int, ...]) -> Array:
        return self.random_signs(shape).astype(np.float32)

    def random_signs(self, shape: tuple[int, ...]) -> NDArray[np.int8]:
        drawn = self.rng.integers(0, 2, (self.probes, *shape), dtype=np.int8)
        drawn *= 2
        drawn -= 1
        return drawn

    def rounding(self, value: ir.Value) -> Rounding | None:
        """The rounding error of a tensor or weight, where it is finite; None where there is none."""
        return self._rounding(value)()

    def _rounding(self, value: ir.Value) -> Callable[[], Rounding | None]:
        if value not in self.roundings:
            self.roundings[value] = self._begun(value)
        return self.roundings[value]

    def _begun(self, value: ir.Value) -> Callable[[], Rounding | None]:
        if value.dtype is not ir.DataType.FLOAT:
            return lambda: None
        if value.is_initializer():
            found = self.rounding_of(self.store.read(value, Format.FP32))
            return lambda: found
        array = self.store.read(value, None)
        return self.helper.ask(partial(Rounding.to, array, self.sites.fmt), array.size)

    def read_later(self, node: ir.Node, value: ir.Value, gradient: Array) -> None:
        """What the rounding of a tensor does through one reader is measured beside what follows."""
        rounding = self._rounding(value)

        def left() -> float | None:
            found = rounding()
            with np.errstate(all="ignore"):
                return None if found is None else found.energy(gradient)

        self._reads.append((node, value, self.helper.ask(left, gradient.size)))

    def finish(self) -> None:
        """Take in what was left for later."""
        for node, value, result in self._reads:
            if (left := result()) is not None:
                self.into.add_read(node, value, left)

    def rounding_of(self, weights: Array) -> Rounding | None:
        """Of weights: where one is clamped that is no small change, and followed on the way forwards."""
        fmt = self.sites.fmt
        return Rounding.of(weights, held_in_fp32(weights, fmt), clamp=fmt.max)

    def rounded(self, value: ir.Value) -> Array:
        """A weight as the narrow format holds it; what is clamped there stays, which is no small change."""
        fmt, maker = self.sites.fmt, value.producer()
        table = maker.inputs[0] if maker is not None and turns(maker) else None
        if table is not None and table.is_initializer():
            return self.rounded(table).T
        if not value.is_initializer():
            return rounded(self.store.read(value, None), fmt)
        narrow = self.store.read(value, fmt)
        if self.stepper.largest(value) <= fmt.max:
            return narrow
        wide = self.store.read(value, Format.FP32)
        return np.where(np.abs(wide) > fmt.max, wide, narrow)
