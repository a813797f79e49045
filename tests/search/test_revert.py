"""Stepping and putting back against running the whole model: the same numbers, for every node."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper

from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Question
from halfwise.search.revert import revert_alone
from tests.models import build
from tests.models.build import weight
from tests.models.zoo import SHAPES, detr_head, encoder

STEPPED = [
    "layer_norm_overflow",
    "two_masks_added",
    "top_k_selection",
    "if_with_norms",
    "loop_with_float_state",
    "scan_with_energy",
    "local_function",
    "partly_fp16",
    "side_tensors",
    "shared_initializers",
]


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_stepping_gives_what_the_whole_model_gives(name: str, share: float) -> None:
    zoo = SHAPES[name]()
    model = load(zoo.model)
    sites, emulator = Sites(model), Emulator()
    rng = np.random.default_rng(7)
    assignment = Assignment.all_narrow(sites, frozenset(s.node for s in sites.free if rng.random() < share))
    feed = zoo.inputs[0]
    whole = emulator.session(assignment).run({n: feed[n] for n in (spec.name for spec in model.inputs)})
    stepper, store = Stepper(emulator), Store(emulator, assignment, feed)
    steps = [step.node for step in stepper.walk(store)]
    assert len(steps) == len(model.graph) and set(steps) == set(model.graph)
    assert stepper.executed == len(sites.all)
    for value in model.graph.outputs:
        stepped = store.read(value, assignment.outward(value, model.graph))
        np.testing.assert_allclose(
            np.asarray(stepped), whole[value.name or ""], rtol=2e-3, atol=1e-5, equal_nan=True
        ) if stepped.dtype.kind == "f" else np.testing.assert_array_equal(stepped, whole[value.name or ""])


def test_only_outputs_and_inputs_are_left_after_a_walk() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    sites, emulator = Sites(load(zoo.model)), Emulator()
    store = Store(emulator, Assignment(sites, {}), zoo.inputs[0])
    values = [v for node in sites.model.graph for v in node.outputs]
    most = 0
    for _ in Stepper(emulator).walk(store):
        most = max(most, sum(value in store for value in values))
    assert most <= 5  # of 9 and more: dead tensors go at once
    assert [v.name for v in values if v in store] == list(sites.model.output_names)


def test_putting_back_is_running_the_model_without_the_node() -> None:
    zoo = detr_head()
    model = load(zoo.model)
    sites, emulator = Sites(model), Emulator()
    judge = Judge(sites, emulator, Question(Tolerance.default()), zoo.inputs[:1])
    keep = frozenset(model.node_by_name[name] for name in zoo.known_good)
    stepper = Stepper(emulator)
    loads = revert_alone(
        stepper,
        Assignment.all_narrow(sites, keep),
        keep,
        judge.feeds[0],
        lambda outputs: judge.ratio_of(judge.references[0], outputs),
    )
    assert loads.keys() == keep
    for node in keep:
        whole = judge.measure(Assignment.all_narrow(sites, keep - {node})).ratio
        assert loads[node] == pytest.approx(whole, rel=0.02), node.name
    assert stepper.executed < len(keep) * len(sites.all)  # only what lies behind a node runs again


def test_putting_back_a_harmless_node_ends_where_the_difference_ends() -> None:
    zoo = encoder(layers=1, overflow=False)
    model = load(zoo.model)
    sites, emulator = Sites(model), Emulator()
    judge = Judge(sites, emulator, Question(Tolerance.default()), zoo.inputs[:1])
    last = next(n for n in reversed(list(model.graph)) if n.op_type == "Transpose")
    loads = revert_alone(
        Stepper(emulator),
        Assignment.all_narrow(sites, frozenset({last})),
        [last],
        judge.feeds[0],
        lambda outputs: judge.ratio_of(judge.references[0], outputs),
    )
    # An isolated FP32 Transpose between FP16 nodes changes nothing: rounding commutes with it.
    assert loads[last] == judge.measure(Assignment.all_narrow(sites)).ratio


def test_a_sequence_behind_a_node_that_is_put_back() -> None:
    nodes = [
        build.node("Mul", "x big", "large"),
        build.node("Mul", "large small", "a"),
        build.node("SequenceConstruct", "a x", "s"),
    ]
    sequence = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    weights = [weight("big", np.float32(2**16)), weight("small", np.float32(2**-16))]
    given = load(build.model(nodes, [build.value("x", shape=(4, 8))], [sequence], weights))
    sites, emulator = Sites(given), Emulator()
    feed = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    judge = Judge(sites, emulator, Question(Tolerance.default()), [feed])
    keep = [given.node_by_name[name] for name in ("n_large", "n_a")]
    fp32 = Assignment.all_narrow(sites, frozenset(keep))
    loads = revert_alone(Stepper(emulator), fp32, keep, feed, partial(judge.ratio_of, judge.references[0]))
    assert loads == {each: judge.measure(Assignment.all_narrow(sites, frozenset(keep) - {each})).ratio for each in keep}
