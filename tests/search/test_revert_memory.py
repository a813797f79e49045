"""Trials side by side in one walk, on tensors so large that not all of them may be held at once."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search import revert
from tests.models.build import model, node, value, weight

NODES, SIZE = 24, 1 << 14


class Watched(Stepper):
    """Counts the tensors made that are alive at once."""

    def __init__(self) -> None:
        super().__init__(Emulator())
        self.alive, self.most = 0, 0

    def run(self, *given: Any, **named: Any) -> Mapping[ir.Value, Any]:
        made = super().run(*given, **named)
        for array in made.values():
            self.alive += 1
            weakref.finalize(array, self._gone)
        self.most = max(self.most, self.alive)
        return made

    def _gone(self) -> None:
        self.alive -= 1


def test_trials_for_which_there_is_no_room_wait_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["x", *(f"t{number}" for number in range(NODES - 1)), "y"]
    chain = [node("Mul", f"{one} by", two) for one, two in pairwise(names)]
    shapes = [value("x", shape=(SIZE,))], [value("y", shape=(SIZE,))]
    sites = Sites(load(model(chain, *shapes, [weight("by", np.float32(1.003))])))
    keep = frozenset(site.node for site in sites.free)
    feed = {"x": np.random.default_rng(3).standard_normal(SIZE).astype(np.float32)}
    found, most = [], []
    for room in (1 << 30, 4 * SIZE * 4):
        monkeypatch.setattr(revert, "ROOM", room)
        stepper = Watched()
        base = Assignment.all_narrow(sites, keep)
        sums = revert.revert_alone(stepper, base, keep, feed, lambda outputs: float(np.sum(outputs["y"])))
        found.append({each.name: total for each, total in sums.items()})
        most.append(stepper.most)
    assert found[0] == found[1] and len(found[0]) == NODES
    assert most[0] > NODES and most[1] < NODES / 2
