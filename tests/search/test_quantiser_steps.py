"""Steps of quantisers that FP32 takes, too: no FP32 nodes are kept for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto

from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Question
from halfwise.search.quantiser_steps import Movement, beyond_fp16, has_quantisers
from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.models.quantised import layers, quantised, samples


@pytest.mark.parametrize(("depth", "width", "step"), [(8, 16, 0.002), (6, 32, 0.03)])
def test_steps_that_few_draws_do_not_show_cost_no_fp32_nodes(depth: int, width: int, step: float) -> None:
    """Few values lie near half a step: on two inputs, moved once, FP32 may take none where FP16 takes several."""
    assert not fix(quantised(layers(depth, width), step=step), samples(width)).fp32_nodes


def test_inputs_on_which_fp32_takes_the_same_steps_ask_for_no_fp32_nodes() -> None:
    """Half a step that TF32 moves a value across; a value in the middle of a step, whose error is FP16's own."""
    nodes = [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")]
    ends = [value("x", shape=(4,))], [value("y", shape=(4,))]
    loaded, emulator = load(model(nodes, *ends, [weight("s", np.float32(0.1))], opset=19)), Emulator()
    near, far = ({"x": np.full(4, each, np.float32)} for each in (0.25, 0.2))
    feeds, question = [Feed(0, near), Feed(1, far)], Question(Tolerance.parse(["*:rel_l2<=0.01"], ["y"], ["y"]))
    session = emulator.session(Assignment(Sites(loaded), {}))
    answers = [session.run(dict(feed)) for feed in feeds]
    movement = Movement(Sites(loaded), emulator, question, feeds, answers, RunCounter())
    assert beyond_fp16(movement, (20.0, 20.0)) == (feeds[0],)
    assert not beyond_fp16(movement, (math.inf, 1.0))


@pytest.mark.parametrize("which", [True, False])
def test_quantisers_in_the_branch_that_is_taken_take_steps_too(which: bool) -> None:
    parts = [quantised(layers(2, seed=seed), step=0.05).graph for seed in (0, 1)]
    for number, part in enumerate(parts):
        for each in part.node:
            each.input[:] = [name if name == "x" else f"{name}{number}" for name in each.input]
            each.output[:] = [f"{name}{number}" for name in each.output]
        for held in (*part.initializer, *part.output):
            held.name = f"{held.name}{number}"
        del part.input[:]
    chosen = node("If", "c", "y", then_branch=parts[0], else_branch=parts[1])
    ends = [value("x", shape=(4, 16)), value("c", TensorProto.BOOL, ())], [value("y", shape=(4, 16))]
    sites = Sites(load(model([chosen], *ends, opset=19, ir_version=10)))
    assert has_quantisers(sites)
    emulator, question = Emulator(), Question(Tolerance.parse(["*:rel_l2<=0.01"], ["y"], ["y"]))
    feeds = [Feed(index, {**feed, "c": np.array(which)}) for index, feed in enumerate(samples())]
    session = emulator.session(Assignment(sites, {}))
    answers = [session.run(dict(feed)) for feed in feeds]
    assert Movement(sites, emulator, question, feeds, answers, RunCounter()).measured(0.1).ratio > 0.0


def of_layers(depth: int = 3) -> Movement:
    """The layers of a model in FP32, its answers, and two inputs."""
    sites, emulator = Sites(load(quantised(layers(depth), step=0.05))), Emulator()
    feeds = [Feed(index, feed) for index, feed in enumerate(samples())][:2]
    session = emulator.session(Assignment(sites, {}))
    question = Question(Tolerance.parse(["*:rel_l2<=0.01"], ["y"], ["y"]))
    return Movement(sites, emulator, question, feeds, [session.run(dict(feed)) for feed in feeds], RunCounter())


def test_a_large_model_moves_as_much_and_in_each_draw_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of_layers().measured(0.01, 8).ratio
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    movement = of_layers()
    once, often = movement.measured(0.01).ratio, movement.measured(0.01, 8).ratio
    assert 0.0 < once < often
    assert 0.5 * whole < often < 2.0 * whole
    assert movement.measured(0.01, 8).ratio == often  # the same draws again


def test_no_kernel_moves_a_weight() -> None:
    """What stands behind the weights' quantisers is one for TF32 and FP32."""
    held = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)
    nodes = [
        node("Transpose", "w", "t", perm=[1, 0]),
        node("QuantizeLinear", "t s", "q"),
        node("DequantizeLinear", "q s", "d"),
        node("MatMul", "x d", "y"),
    ]
    ends = [value("x", shape=(4, 16))], [value("y", shape=(4, 16))]
    sites = Sites(load(model(nodes, *ends, [weight("w", held), weight("s", np.float32(0.05))], opset=19)))
    emulator, question = Emulator(), Question(Tolerance.parse(["*:rel_l2<=0.01"], ["y"], ["y"]))
    feeds = [Feed(index, feed) for index, feed in enumerate(samples())]
    session = emulator.session(Assignment(sites, {}))
    answers = [session.run(dict(feed)) for feed in feeds]
    assert Movement(sites, emulator, question, feeds, answers, RunCounter()).measured(0.01, 2).ratio == 0.0
