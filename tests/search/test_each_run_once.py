"""Nothing is run that is known already, or that cannot change what is told."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.formats import Format
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Memory, Question
from halfwise.search.noise_model import measure_noise
from halfwise.search.overflows import harmful_overflows, headroom, suspects
from halfwise.search.sets import Sets
from halfwise.search.tensor_statistics import tensor_statistics
from tests.models.build import model, node, value, weight
from tests.models.random_nets import feeds, random_net
from tests.models.zoo import SHAPES

SEED = 17  # a net that needs nodes in FP32
EMULATOR = Emulator()


def judged(numbers: list[int], memory: Memory, sites: Sites) -> Judge:
    given = [Feed(number, each) for number, each in enumerate([*feeds(SEED), *feeds(SEED + 1)])]
    return Judge(sites, EMULATOR, Question(Tolerance.default()), [given[n] for n in numbers], memory=memory)


def test_a_sample_that_another_judge_ran_is_not_run_again() -> None:
    sites, memory = Sites(load(random_net(SEED))), Memory()
    decision = Assignment.all_narrow(sites)
    first, second = judged([0, 1], memory, sites), judged([1, 2], memory, sites)
    alone, whole = judged([1, 2], Memory(), sites), judged([0, 1], Memory(), sites)
    assert first.measure_one(decision, 1) == whole.measure(decision).ratios[1]
    assert first.measure(decision).ratios == whole.measure(decision).ratios
    assert first.counter.samples == whole.counter.samples  # the one that was measured alone is not run again
    assert second.measure(decision) == alone.measure(decision)
    assert second.counter.samples == alone.counter.samples - 1


def test_what_nodes_inside_a_body_take_is_known_before_it_is_spent() -> None:
    """No walk stops inside of a body: each of its nodes takes a whole run, and none is begun beyond what is allowed."""
    zoo = SHAPES["if_with_norms"]()
    sites = Sites(load(zoo.model))
    judge = Judge(sites, EMULATOR, Question(Tolerance.default()), zoo.inputs[:2])
    keep = frozenset(site.node for site in sites.free)
    inside = [node for node in sites.model.nodes if node in keep and node.graph is not sites.model.graph]
    beside = [node for node in sites.model.nodes if node in keep and node.graph is sites.model.graph]
    for nodes in (inside, [*inside, *beside]):
        sets = Sets(sites, judge, Stepper(judge.emulator), Journal(), Format.FP32)
        before, told = judge.counter.samples, sets.alone(nodes)
        found = sets.revert_alone(keep, nodes, 0, 4.0)
        assert 0 < len(found) < len(nodes) and judge.counter.samples - before <= 4.0 + sets.alone(inside[:1])
        before = judge.counter.samples
        assert sets.revert_alone(keep, nodes, 1).keys() == set(nodes)
        assert judge.counter.samples - before <= told


def test_a_node_whose_trial_is_a_whole_run_is_not_walked_beside_another() -> None:
    """The first of a network: all that comes behind it is computed anew."""
    sites = Sites(load(random_net(SEED)))
    judge = judged([0, 1], Memory(), sites)
    keep = frozenset(site.node for site in sites.free)
    first = min(keep, key=lambda node: sites.of[node].index)
    sets = Sets(sites, judge, Stepper(judge.emulator), Journal(), Format.FP32)
    answers = len(judge.references)
    ratio = sets.revert_alone(keep, [first], 0)[first]
    assert judge.counter.samples == answers + 1
    assert ratio == judge.measure_one(sets.assignment(keep - {first}), 0)


def test_the_walk_that_ranks_tells_what_the_tensors_hold() -> None:
    sites, memory = Sites(load(random_net(SEED))), Memory()
    judge = judged([0, 1, 2], memory, sites)
    sets = Sets(sites, judge, stepper := Stepper(judge.emulator), Journal(), Format.FP32)
    measure_noise(sets, sets.measure(frozenset()), lambda _: None)
    assert len(memory.statistics) == 2
    for number, seen in memory.statistics.items():
        own = tensor_statistics(stepper, sites, judge.feeds[number])
        assert (seen.sizes, seen.tensors, seen.powers, seen.shapes) == (own.sizes, own.tensors, own.powers, own.shapes)


def squares() -> onnx.ModelProto:
    nodes = [node("Mul", "x x", "q"), node("Sqrt", "q", "r"), node("Mul", "r small", "t"), node("Add", "t x", "y")]
    return model(nodes, [value("x")], [value("y")], [weight("small", np.float32(1e-3))])


def test_what_stays_in_fp32_leaves_no_overflow_and_is_not_walked() -> None:
    sites, stepper = Sites(load(squares())), Stepper(Emulator())
    given = [{"x": np.array([1, 2, 3, top], np.float32)} for top in (300.0, 205.0)]
    seen = [tensor_statistics(stepper, sites, feed) for feed in given]
    room = headroom(sites, seen)
    (found,) = harmful_overflows(stepper, sites, given[:1], Format.FP32, room)
    kept = frozenset(node for needs in found.found for node in needs)
    assert {node.name for node in kept} == {"n_q", "n_r"}
    assert suspects(sites, seen, room, frozenset()) and not suspects(sites, seen, room, kept)
    assert all(suspects(sites, seen, room, kept - {node}) for node in kept)
    (rest,) = harmful_overflows(stepper, sites, given[:1], Format.FP32, room, kept)
    assert not rest.found


def test_a_mask_is_as_large_in_any_input() -> None:
    """Most inputs are padded nowhere: of the one that is, a number of the model tells that it is no matter of size."""
    nodes = [node("Mul", "x far", "m"), node("Mul", "x x", "q"), node("Add", "m q", "y")]
    proto = model(nodes, [value("x")], [value("y")], [weight("far", np.float32(-32768.0))])
    sites, stepper = Sites(load(proto)), Stepper(Emulator())
    for ones, known in ((1.0, True), (0.75, False)):
        given = [{"x": np.array([ones, 0, 0, ones], np.float32)}, *({"x": np.zeros(4, np.float32)},) * 2]
        room = headroom(sites, [tensor_statistics(stepper, sites, feed) for feed in given])
        louder = {value.name: times for value, times in room.louder.items()}
        assert (louder["m"] == 1.0) == known and louder["y"] > 1.0


def test_the_value_of_an_old_pad_is_no_tensor() -> None:
    nodes = [node("Pad", "x", "p", pads=[0, 1], value=1.0), node("Mul", "p p", "y")]
    sites, stepper = Sites(load(model(nodes, [value("x")], [value("y")], [], opset=10))), Stepper(Emulator())
    seen = [tensor_statistics(stepper, sites, {"x": np.full(4, size, np.float32)}) for size in (1.0, 2.0)]
    assert {each.name: times > 1.0 for each, times in headroom(sites, seen).louder.items()}["y"]


def test_behind_what_may_overflow_nothing_is_walked() -> None:
    nodes = [*squares().graph.node, *(node("Neg", name, made) for name, made in pairwise(["y", *"abcdefghijklm", "z"]))]
    weights = [weight("small", np.float32(1e-3))]
    sites = Sites(load(model(nodes, [value("x")], [value("z")], weights)))
    feed = {"x": np.array([1, 2, 3, 300.0], np.float32)}
    seen = [tensor_statistics(Stepper(Emulator()), sites, feed)]
    room, nodes_run = headroom(sites, seen), dict[bool, float]()
    kept = frozenset({sites.model.node_by_name["n_q"]})
    among = suspects(sites, seen, room, kept)
    for told in (True, False):
        stepper = Stepper(Emulator())
        (found,) = harmful_overflows(stepper, sites, [feed], Format.FP32, room, kept, among if told else None)
        assert {frozenset(each.name for each in needs) for needs in found.found} == {frozenset({"n_q", "n_r"})}
        assert found.executed == stepper.executed
        nodes_run[told] = stepper.executed
    assert nodes_run[True] < nodes_run[False]


@pytest.mark.parametrize("name", SHAPES)
def test_where_the_walk_ends_changes_nothing_of_what_is_found(name: str) -> None:
    zoo = SHAPES[name]()
    sites, stepper, feed = Sites(load(zoo.model)), Stepper(Emulator()), zoo.inputs[0]
    seen = [tensor_statistics(stepper, sites, feed)]
    room = headroom(sites, seen)
    (every,) = harmful_overflows(stepper, sites, [feed], Format.FP32, room)
    needed = sorted({node for needs in every.found for node in needs}, key=lambda node: sites.of[node].index)
    for kept in (frozenset(needed[:place]) for place in range(len(needed) + 1)):
        among = suspects(sites, seen, room, kept)
        (whole,) = harmful_overflows(stepper, sites, [feed], Format.FP32, room, kept)
        (near,) = harmful_overflows(stepper, sites, [feed], Format.FP32, room, kept, among)
        assert near.found == whole.found and near.executed <= whole.executed


def test_far_from_the_tolerance_nothing_is_made_up() -> None:
    """Three answers in FP32, three under each of two profiles, and one walk."""
    rng = np.random.default_rng(1)
    given = [{"x": _normal(rng, size)} for size in (0.9, 1.0, 1.1)]
    nodes = [node("Relu", "x", "r"), node("Mul", "r half", "y")]
    small = model(nodes, [value("x", shape=(64,))], [value("y", shape=(64,))], [weight("half", np.float32(0.3))])
    near = fix(small, given, tolerance="y:rel_l2<=0.0006")
    far = fix(small, given, tolerance="y:rel_l2<=0.05")
    assert far.cost.model_runs * 2 == 10.0
    assert near.cost.model_runs * 2 > 10.0


def _normal(rng: np.random.Generator, size: float) -> NDArray[np.float32]:
    return (rng.standard_normal(64) * size).astype(np.float32)


def test_a_set_that_the_worst_sample_refuses_is_not_run_on_the_others() -> None:
    sites = Sites(load(random_net(SEED)))
    judge = judged([0, 1, 2], Memory(), sites)
    sets = Sets(sites, judge, Stepper(judge.emulator), Journal(), Format.FP32)
    fp16 = sets.measure(frozenset())
    keep = frozenset([sites.free[0].node])
    before, index = judge.counter.samples, fp16.ratios.index(fp16.ratio)
    refused = sets.tried(keep, 1e-6)
    assert judge.counter.samples == before + 1
    assert refused.ratio == refused.bound == sets.measure_one(keep, index) > 1e-6
    taken, found = sets.tried(keep, 1e6), sets.measure(keep)
    assert judge.counter.samples == before + 3  # the other two
    assert (taken.ratio, taken.bound) == (found.ratio, found.unseen_bound)


def test_where_plain_fp16_does_alike_on_all_a_set_that_missed_tells_the_worst_sample() -> None:
    """All samples overflow in FP16 to the same; with the square in FP32 only the last is far from its tolerance."""
    nodes = [node("Mul", "x x", "q"), node("Sqrt", "q", "r"), node("Mul", "x large", "s"), node("Sub", "s x", "t")]
    nodes += [node("Sub", "s t", "u"), node("Add", "r u", "y")]
    sites = Sites(load(model(nodes, [value("x")], [value("y")], [weight("large", np.float32(64))])))
    given = [{"x": np.array([1, 2, 3, top], np.float32)} for top in (304.0, 320.0, 300.1)]
    feeds = [Feed(number, each) for number, each in enumerate(given)]
    judge = Judge(sites, EMULATOR, Question(Tolerance.default()), feeds)
    sets = Sets(sites, judge, Stepper(EMULATOR), Journal(), Format.FP32)
    named = sites.model.node_by_name
    kept = frozenset({named["n_q"], named["n_r"]})
    missed, target = sets.measure(kept), 0.1
    assert not any(map(np.isfinite, sets.measure(frozenset()).ratios))
    assert missed.ratio == missed.ratios[2] > target
    before = judge.counter.samples
    assert sets.tried(kept | {named["n_y"]}, target).ratio > target
    assert judge.counter.samples == before + 1
