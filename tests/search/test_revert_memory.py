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


def chain() -> Sites:
    names = ["x", *(f"t{number}" for number in range(NODES - 1)), "y"]
    nodes = [node("Mul", f"{one} by", two) for one, two in pairwise(names)]
    shapes = [value("x", shape=(SIZE,))], [value("y", shape=(SIZE,))]
    return Sites(load(model(nodes, *shapes, [weight("by", np.full(SIZE, 1.003, np.float32))])))


def reverted(sites: Sites) -> tuple[dict[str | None, float], int]:
    """What the output adds up to with each node reverted, and the most tensors made that were alive at once."""
    keep, stepper = frozenset(site.node for site in sites.free), Watched()
    feed = {"x": np.random.default_rng(3).standard_normal(SIZE).astype(np.float32)}
    base = Assignment.all_narrow(sites, keep)
    sums = revert.revert_alone(stepper, base, keep, feed, lambda outputs: float(np.sum(outputs["y"])))
    return {each.name: total for each, total in sums.items()}, stepper.most


def test_trials_for_which_there_is_no_room_wait_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = chain()
    together, many = reverted(sites)
    monkeypatch.setattr(revert, "ROOM", 4 * SIZE * 4)
    apart, few = reverted(sites)
    assert together == apart and len(together) == NODES
    assert many > NODES and few < NODES / 2


def test_a_model_of_more_weights_has_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its walks take longer, and it takes more memory as it is."""
    monkeypatch.setattr(revert, "ROOM", 0)
    monkeypatch.setattr(revert, "WEIGHTS_TO_ROOM", 1 / NODES)
    assert reverted(chain())[1] > NODES
