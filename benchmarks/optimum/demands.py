"""What `fix` asks of a set of FP32 nodes, asked in the same way of every other set.

- the ratio to expect of an input that was not given, from all that were, and from these and those that vary them,
  under `strict`: at most 1;
- the ratio of every given input under `wide`: at most 1;
- the ratio of every input that was held out, or that varies one: at most 0.9;
- the same of inputs that vary these once more and had no part in any choice, as `fix` asks of exchanged nodes: of many
  sets one fits the inputs known by chance;
- no value infinite inside that is finite in FP32 and does not vanish again.

Where the tool's own answer misses one of them, no other set has to do better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.optimum.graphs import Problem
from benchmarks.optimum.switched import Switched
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.samples import load_samples
from halfwise.model.inputs.split import split
from halfwise.precision.sites import Sites
from halfwise.search.held_inputs import HELD_OUT_TARGET
from halfwise.search.overflows import harmful_overflows, headroom
from halfwise.search.references import References
from halfwise.search.run_counter import RunCounter
from halfwise.search.tensor_statistics import tensor_statistics
from halfwise.search.unseen_bound import bound_for_unseen
from halfwise.search.variants import in_order, of_few, varied

__all__ = ["Demands"]

_SLACK = 1e-9


class Demands:
    """`kept`: the FP32 nodes of the tool's answer. A set is told by the nodes in FP16, as bits. `fresh`: whether inputs
    that had no part in any choice are asked."""

    def __init__(
        self,
        posed: Problem,
        sites: Sites,
        switched: Switched,
        tolerance: float,
        kept: Sequence[str],
        fresh: bool = False,
    ) -> None:
        emulator = Emulator()
        references = References(sites, emulator, RunCounter())
        samples = load_samples(sites.model.inputs, list(posed.feeds))
        samples = split(samples, references.of(samples.all))
        variants = of_few(samples, references)
        self.tolerance = tolerance
        self.strict, self.wide = switched, Switched(posed, sites, wide=True)
        self.held_out = Switched(posed, sites, feeds=(*samples.validation, *variants))
        self.varied = len(variants)
        known = (*samples.all, *variants)
        others = varied(in_order(samples), known, references, seed=len(known))
        self.others = Switched(posed, sites, feeds=others)
        start = switched.mask(kept)
        leasts = (1.0, HELD_OUT_TARGET, 1.0, 1.0, *((1.0,) if fresh else ()))
        self.limits = [max(least, self._seen(level, start)) for level, least in enumerate(leasts)]
        stepper = Stepper(emulator)
        feeds = [widen_feeds(feed) for feed in samples.search]
        room = headroom(sites, [tensor_statistics(stepper, sites, feed) for feed in feeds])
        lost = {needs for each in harmful_overflows(stepper, sites, feeds, Format.FP32, room) for needs in each.found}
        names = {name: 1 << place for place, name in enumerate(switched.names)}
        masks = [sum(names[node.name or ""] for node in needs) for needs in lost]
        self.finite = sum({1 << place for mask in masks if not mask & start for place in _places(mask)})

    def holds(self, narrow: int) -> bool:
        """Cheap ones first."""
        if narrow & self.finite:
            return False
        return all(self._seen(level, narrow) <= limit * (1 + _SLACK) for level, limit in enumerate(self.limits))

    def _seen(self, level: int, narrow: int) -> float:
        if level == 0:
            return self.strict.bound(narrow, self.tolerance)
        asked = (self.held_out, self.wide, self.held_out, self.others)[level - 1]
        ratios: NDArray[np.float64] = asked.errors(narrow) / self.tolerance
        if level == 3:
            known = self.strict.errors(narrow) / self.tolerance
            return bound_for_unseen([*known, *ratios[len(ratios) - self.varied :]])
        worst = float(ratios.max())
        return max(bound_for_unseen(list(ratios)), worst / HELD_OUT_TARGET) if asked is self.others else worst


def _places(mask: int) -> list[int]:
    return [place for place in range(mask.bit_length()) if mask >> place & 1]
