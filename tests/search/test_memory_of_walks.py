"""A walk over a model leaves no memory behind: not in sessions, not in cycles, not among what is free."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import numpy as np
import pytest

from halfwise.core.freed_memory import own_bytes
from halfwise.emulation import emulate
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from tests.models.zoo import encoder
from tests.models.zoo.graph_writer import GraphWriter
from tests.support.own_process import in_own_process


def _chain(size: int, *ops: str) -> Sites:
    writer = GraphWriter("chain")
    x = writer.input("x", [size])
    for number, op in enumerate(ops):
        x = writer.op(op, [x], f"/{number}")
    writer.output(x, "y", [size])
    return Sites(load(writer.model()))


def test_what_a_walk_back_made_is_gone_with_it() -> None:
    size = 1 << 18
    sites = _chain(size, *["Sigmoid"] * 8)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        measure_sensitivity(Stepper(Emulator()), sites, {"x": np.ones(size, np.float32)}, Sensitivity())
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 2 * 4 * size


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_sessions_hold_none_of_the_tensors_that_they_made() -> None:
    few, many = (in_own_process(grown_by_a_walk, nodes) for nodes in (4, 12))
    assert few < 5 and many < few + 1


def grown_by_a_walk(nodes: int) -> float:
    """By how many of its tensors."""
    size, ops = 1 << 22, "Neg Abs Sqrt Floor Ceil Sign Relu Exp Sigmoid Tanh Erf Softplus".split()
    sites, stepper = _chain(size, *ops[:nodes]), Stepper(Emulator())
    before = own_bytes()
    for _ in stepper.walk(Store(stepper.emulator, Assignment(sites, {}), {"x": np.ones(size, np.float32)})):
        pass
    return (own_bytes() - before) / (4 * size)


def test_what_rests_holds_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of segments, and not of single nodes; a walk makes them again."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    made = encoder()
    gc.collect()  # of what other tests left
    sites, stepper = Sites(load(made.model)), Stepper(Emulator())
    assignment, before = Assignment.all_narrow(sites), _sessions()
    answers = []
    for _ in range(2):
        answers.append(stepper.emulator.session(assignment).run(made.inputs[0]))
        for _ in stepper.walk(Store(stepper.emulator, assignment, made.inputs[0])):
            pass
        assert _sessions() > before
        stepper.rest()
        assert _sessions() == before
    assert all(np.array_equal(answers[0][name], answers[1][name]) for name in answers[0])


def _sessions() -> int:
    return sum(isinstance(each, Session) for each in gc.get_objects())
