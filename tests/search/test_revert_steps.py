"""Nodes of a stream are reverted where it matters: in its first step, its last, and the hardest that was seen."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.core.formats import Format
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.rollout import Rollout, Trajectory, carried
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Question
from halfwise.search.sets import Sets
from tests.models.build import f32, model, node, value, weight

STEPS = 6
ROLLOUT = Rollout(STEPS, (("sum_out", "sum_in"),))


def difference() -> Model:
    """What is left of x after 1 is taken away: where x is near 1, FP16 has few of its digits."""
    turned = [node("Neg", f"x{turn or ''}", f"x{turn + 1}") for turn in range(8)]
    nodes = [node("Add", "sum_in x", "sum_out"), *turned, node("Mul", "x8 one", "m"), node("Sub", "m one", "y")]
    floats = {name: value(name, shape=(1, 8)) for name in ("x", "sum_in", "sum_out", "y")}
    return load(
        model(nodes, [floats["x"], floats["sum_in"]], [floats["y"], floats["sum_out"]], [weight("one", f32(1.0))])
    )


def sets_of(hard: int, journal: Journal | None = None) -> Sets:
    """Of one stream whose step `hard` is near 1."""
    loaded, emulator, rng = difference(), Emulator(), np.random.default_rng(0)
    sites = Sites(loaded)
    session = emulator.session(Assignment(sites, {}))
    given = [
        {"x": (rng.uniform(0.001, 0.003, (1, 8)) + (1 if step == hard else 3)).astype(np.float32),
         "sum_in": np.zeros((1, 8), np.float32)}
        for step in range(STEPS)
    ]  # fmt: skip
    steps, answers = zip(*carried(ROLLOUT, given, session.run), strict=True)
    stream = Trajectory(0, steps[-1], steps=steps, rollout=ROLLOUT)
    tolerance = Tolerance((Bound.of("y", "rel_l2", 0.01), Bound.of("sum_out", "rel_l2", 1.0)))
    judge = Judge(sites, emulator, Question(tolerance), [stream], [answers[-1]], trajectories=[answers])
    return Sets(sites, judge, Stepper(emulator), journal or Journal(), Format.FP32)


@pytest.mark.parametrize("hard", range(STEPS))
def test_the_hardest_step_tells_what_a_node_is_needed_for(hard: int) -> None:
    sets = sets_of(hard)
    every = frozenset(site.node for site in sets.sites.free)
    late = [node for node in sets.sites.model.graph if node.op_type in ("Mul", "Sub")]
    product = late[0]
    assert sets.measure(frozenset()).ratio > 1.0
    whole = sets.judge.measure(sets.assignment(every - {product})).ratio
    assert whole > 1.0
    assert sets.revert_alone(every, late, 0)[product] == pytest.approx(whole, rel=1e-3)


def test_it_is_known_after_an_interruption() -> None:
    journal = Journal()
    sets_of(2, journal).measure(frozenset())
    sets = sets_of(2, journal)
    every = frozenset(site.node for site in sets.sites.free)
    late = [node for node in sets.sites.model.graph if node.op_type in ("Mul", "Sub")]
    sets.measure(frozenset())
    assert sets.judge.counter.samples == 0.0
    assert sets.revert_alone(every, late, 0)[late[0]] > 1.0
