"""The noise model against the emulator: what it predicts is what rounding does, and it names the nodes that matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfwise.core.formats import Format, round_to
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search import sensitivity, tape
from halfwise.search.choose import build_ladder, trim
from halfwise.search.gradients import PROBES
from halfwise.search.noise import Noise, noise_pieces
from halfwise.search.rounding import Rounding
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from tests.models.zoo import SHAPES, detr_head, encoder
from tests.models.zoo.graph_writer import GraphWriter

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]


def _measure(model: onnx.ModelProto, *feeds: Feeds) -> tuple[Sites, Sensitivity]:
    sites, measured = Sites(load(model)), Sensitivity()
    stepper = Stepper(Emulator())
    for feed in feeds:
        measure_sensitivity(stepper, sites, feed, measured)
    return sites, measured


def _error(sites: Sites, feeds: Feeds, keep: frozenset[Any] = frozenset()) -> float:
    """The emulated relative error, squares summed over the outputs."""
    emulator = Emulator()
    wide = emulator.session(Assignment(sites, {})).run(feeds)
    narrow = emulator.session(Assignment.all_narrow(sites, keep)).run(feeds)
    squares = [
        np.sum((narrow[k].astype(np.float64) - wide[k]) ** 2) / np.sum(np.square(wide[k], dtype=np.float64))
        for k in wide
    ]
    return math.sqrt(sum(float(s) for s in squares))


def _left(pieces: tuple[Noise, ...], keep: frozenset[Any] = frozenset()) -> float:
    return math.sqrt(sum(p.energy for p in pieces if p.needs - keep))


def _shape(name: str) -> Any:
    return SHAPES[name]()


def _by_op(pieces: tuple[Noise, ...]) -> dict[tuple[str, ...], Noise]:
    return {tuple(sorted(node.op_type for node in p.needs)): p for p in pieces}


# -- against the emulator ---------------------------------------------------------------------------------------------


def test_the_error_of_a_whole_model_is_predicted() -> None:
    zoo = encoder(layers=2, overflow=False)
    sites, measured = _measure(zoo.model, zoo.inputs[0])
    assert _left(noise_pieces(sites, measured)) == pytest.approx(_error(sites, zoo.inputs[0]), rel=0.15)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_error_of_any_set_of_fp32_nodes_is_predicted(share: float) -> None:
    zoo = encoder(layers=1, overflow=False)
    sites, measured = _measure(zoo.model, zoo.inputs[0])
    rng = np.random.default_rng(3)
    keep = frozenset(site.node for site in sites.free if rng.random() < share)
    assert _left(noise_pieces(sites, measured), keep) == pytest.approx(_error(sites, zoo.inputs[0], keep), rel=0.25)


@pytest.mark.parametrize(
    "name", ["cumulative_sum", "large_coordinates", "large_phase", "subnormal_weights", "healthy_mlp"]
)
def test_the_error_of_known_shapes_is_predicted(name: str) -> None:
    zoo = _shape(name)
    sites, measured = _measure(zoo.model, zoo.inputs[0])
    assert _left(noise_pieces(sites, measured)) == pytest.approx(_error(sites, zoo.inputs[0]), rel=0.4)


@pytest.mark.parametrize("number", [0, 1])
def test_what_overflows_in_the_branch_that_is_taken_is_named(number: int) -> None:
    zoo = _shape("if_with_norms")
    sites, measured = _measure(zoo.model, zoo.inputs[number])
    pieces = noise_pieces(sites, measured)
    fatal = {node.name or "" for piece in pieces if piece.fatal for node in piece.needs}
    other = "/else/" if zoo.inputs[number]["centre"] else "/then/"
    assert fatal and not any(other in name for name in fatal)
    keep = frozenset(node for piece in pieces if piece.fatal for node in piece.needs)
    assert _left(pieces, keep) == pytest.approx(_error(sites, zoo.inputs[number], keep), rel=0.4)


def test_the_nodes_that_carry_the_error_of_the_detr_head_are_named() -> None:
    """A rounding of a coordinate moves all its sines together: only an adjoint sees how much."""
    zoo = detr_head()
    sites, measured = _measure(zoo.model, zoo.inputs[8], zoo.inputs[10])
    pieces = noise_pieces(sites, measured)
    cost = dict.fromkeys(sites.of, 1.0)
    ladder = build_ladder(pieces, cost)
    goal = 0.0016**2
    keep = trim(pieces, ladder.nodes(ladder.reach(goal)), cost, goal)
    assert len(keep) <= 24
    assert {node.name for node in keep} >= set(zoo.known_good)
    assert max(_error(sites, feeds, keep) for feeds in zoo.inputs) <= 0.002


def test_an_operator_without_a_rule_passes_noise_on() -> None:
    writer = GraphWriter("resized")
    rng = np.random.default_rng(0)
    x = writer.op("Exp", [writer.input("x", [1, 2, 8, 8])], "/a")
    scales = writer.weight("scales", [1, 1, 2, 2])
    resized = writer.op("Resize", [x, "", scales], "/r", mode="cubic")
    writer.output(writer.op("Sin", [resized], "/s"), "y", [1, 2, 16, 16])
    feeds = {"x": rng.standard_normal((1, 2, 8, 8)).astype(np.float32)}
    sites, measured = _measure(writer.model(), feeds)
    assert _left(noise_pieces(sites, measured)) == pytest.approx(_error(sites, feeds), rel=0.3)


def test_equal_values_are_rounded_alike() -> None:
    """A mean over equal values has their whole rounding error, not a part of it."""
    writer = GraphWriter("even")
    shifted = writer.op("Add", [writer.input("x", [1, 4096]), writer.weight("one", 1.0)], "/shift")
    writer.output(writer.op("ReduceMean", [shifted], "/mean", axes=[1], keepdims=1), "y", [1, 1])
    feeds = {"x": np.full((1, 4096), 0.1003, np.float32)}
    sites, measured = _measure(writer.model(), feeds)
    found = _by_op(noise_pieces(sites, measured))["Add", "ReduceMean"]
    value = np.float32(1.1003)
    assert math.sqrt(found.energy) == pytest.approx(abs(float(np.float16(value)) - value) / value, rel=1e-3)


# -- which nodes remove what ------------------------------------------------------------------------------------------


def test_noise_is_removed_by_its_maker_and_its_reader_and_all_between() -> None:
    writer = GraphWriter("chain")
    made = writer.op("Exp", [writer.input("x", [2, 6])], "/make")
    moved = writer.op("Transpose", [made], "/move", perm=[1, 0])
    writer.output(writer.op("Sin", [moved], "/read"), "y", [6, 2])
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 6)).astype(np.float32)}
    sites, measured = _measure(writer.model(), feeds)
    pieces = _by_op(noise_pieces(sites, measured))
    assert set(pieces) == {("Exp",), ("Exp", "Sin", "Transpose"), ("Sin",)}
    final = next(value for value in sites.model.graph.outputs)
    y = Emulator().session(Assignment(sites, {})).run(feeds)[final.name or ""]
    own = np.sum((round_to(y, Format.FP16) - y) ** 2) / np.sum(y**2)
    assert pieces["Sin",].energy == pytest.approx(float(own), rel=1e-3)


def test_a_joined_tensor_shares_its_noise_among_its_parts() -> None:
    writer = GraphWriter("joined")
    x = writer.input("x", [1, 64])
    loud = writer.op("Mul", [writer.op("Exp", [x], "/loud"), writer.weight("gain", 8.0)], "/loud")
    quiet = writer.op("Tanh", [x], "/quiet")
    joined = writer.op("Concat", [loud, quiet], "/join", axis=1)
    writer.output(writer.op("Softplus", [joined], "/read"), "y", [1, 128])
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 64)).astype(np.float32)}
    sites, measured = _measure(writer.model(), feeds)
    pieces = _by_op(noise_pieces(sites, measured))
    assert pieces["Concat", "Mul", "Softplus"].energy > 30 * pieces["Concat", "Softplus", "Tanh"].energy > 0


def test_a_wrong_choice_counts_at_an_integer_output() -> None:
    writer = GraphWriter("choice")
    shifted = writer.op("Add", [writer.input("x", [64, 9]), writer.weight("base", 900.0)], "/shift")
    writer.output(writer.op("ArgMax", [shifted], "/choose", axis=1, keepdims=0), "y", [64], onnx.TensorProto.INT64)
    feeds = {"x": np.random.default_rng(4).uniform(0, 1, (64, 9)).astype(np.float32)}
    sites, measured = _measure(writer.model(), feeds)
    assert _by_op(noise_pieces(sites, measured))["Add", "ArgMax"].energy > 1e-3


# -- overflow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "readers"),
    [("layer_norm_overflow", {("Pow", "ReduceMean")}), ("healthy_mlp", set()), ("large_phase", set())],
)
def test_overflow_that_is_not_absorbed_is_fatal(name: str, readers: set[tuple[str, ...]]) -> None:
    zoo = _shape(name)
    sites, measured = _measure(zoo.model, zoo.inputs[0])
    assert {ops for ops, piece in _by_op(noise_pieces(sites, measured)).items() if piece.fatal} == readers


def test_a_denominator_that_rounds_to_zero_is_fatal() -> None:
    writer = GraphWriter("vanishing")
    small = writer.op("Mul", [writer.input("x", [1, 8]), writer.weight("tiny", 1e-9)], "/small")
    writer.output(writer.op("Div", [writer.weight("one", 1e-9), small], "/divide"), "y", [1, 8])
    sites, measured = _measure(writer.model(), {"x": np.arange(1, 9, dtype=np.float32)[None]})
    fatal = {ops for ops, piece in _by_op(noise_pieces(sites, measured)).items() if piece.fatal}
    assert ("Div", "Mul") in fatal


def test_a_weight_that_is_clamped_with_effect_is_fatal() -> None:
    writer = GraphWriter("clamped")
    writer.output(writer.op("Mul", [writer.input("x", [1, 8]), writer.weight("huge", 1e6)], "/scale"), "y", [1, 8])
    sites, measured = _measure(writer.model(), {"x": np.full((1, 8), 1e-3, np.float32)})
    (piece,) = (p for p in noise_pieces(sites, measured) if p.fatal)
    assert [node.op_type for node in piece.needs] == ["Mul"]


# -- what it costs, and that it is the same each time -----------------------------------------------------------------


def test_each_node_counts_once_forwards_and_once_per_probe_backwards() -> None:
    writer = GraphWriter("counted")
    x = writer.input("x", [4, 4])
    product = writer.op("MatMul", [writer.op("Transpose", [x], "/a", perm=[1, 0]), x], "/b")
    writer.output(writer.op("Add", [product, x], "/c"), "y", [4, 4])
    sites, stepper = Sites(load(writer.model())), Stepper(Emulator())
    feeds = {"x": np.random.default_rng(5).standard_normal((4, 4)).astype(np.float32)}
    measure_sensitivity(stepper, sites, feeds, Sensitivity())
    assert stepper.executed == 3 + 3 * PROBES


def test_the_way_forwards_alone_tells_what_overflows_and_leaves_the_energies() -> None:
    """Each branch squares an input of its own; the other sample overflows in the other branch."""
    writer = GraphWriter("branches")
    roots = [writer.op("Sqrt", [writer.op("Mul", [x, x], f"/{x}2")], f"/{x}") for x in map(_input(writer), "ab")]
    writer.output(writer.op("Add", roots, "/sum"), "y", [1, 8])
    loud, quiet = np.full((1, 8), 300.3, np.float32), np.full((1, 8), 1.1, np.float32)
    sites, stepper = Sites(load(writer.model())), Stepper(Emulator())
    first, both = Sensitivity(), Sensitivity()
    measure_sensitivity(stepper, sites, {"a": loud, "b": quiet}, first)
    measure_sensitivity(stepper, sites, {"a": loud, "b": quiet}, both)
    before = stepper.executed
    measure_sensitivity(stepper, sites, {"a": loud, "b": loud}, both, probes=0)
    assert stepper.executed - before == len(sites.all) + 2  # one more overflow, behind which two nodes are run
    assert (both.reads, both.samples) == (first.reads, 1)
    assert [v.producer() for v in both.overflows - first.overflows] == [sites.model.node_by_name["/b2/Mul"]]


def _input(writer: GraphWriter) -> Callable[[str], str]:
    return lambda name: writer.input(name, [1, 8])


def test_two_walks_agree_to_the_last_bit() -> None:
    zoo = encoder(layers=1)
    first, second = (_measure(zoo.model, zoo.inputs[0], zoo.inputs[1])[1] for _ in range(2))
    assert [[*e.values()] for e in first.reads.values()] == [[*e.values()] for e in second.reads.values()]
    assert [*first.weights.values()] == [*second.weights.values()]


def test_what_the_tape_drops_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = encoder(layers=1)
    sites, stepper = Sites(load(zoo.model)), Stepper(Emulator())
    whole = Sensitivity()
    measure_sensitivity(stepper, sites, zoo.inputs[0], whole)
    once = stepper.executed
    monkeypatch.setattr(tape, "SEGMENT_BYTES", 1 << 17)
    monkeypatch.setattr(tape, "MOST_SEGMENT_BYTES", 1 << 17)
    cut = Sensitivity()
    measure_sensitivity(stepper, sites, zoo.inputs[0], cut)
    assert cut == whole
    assert once < stepper.executed - once <= once + len(sites.all)


def test_probes_of_wide_tensors_go_back_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are drawn in each turn; together they tell what those of one turn do, of one sample."""
    zoo = encoder(layers=1)
    sites, stepper = Sites(load(zoo.model)), Stepper(Emulator())
    found, executed = [], []
    for together in (1 << 27, 1):
        monkeypatch.setattr(sensitivity, "GRADIENT_BYTES", together)
        monkeypatch.setattr(sensitivity, "MOST_GRADIENT_BYTES", together)
        found.append(Sensitivity())
        before = stepper.executed
        measure_sensitivity(stepper, sites, zoo.inputs[0], found[-1], probes=16)
        executed.append(stepper.executed - before)
    whole, parts = found
    assert (parts.samples, parts.breaks, parts.overflows) == (1, whole.breaks, whole.overflows)
    assert parts.reads.keys() == whole.reads.keys() and parts.weights.keys() == whole.weights.keys()
    totals = [sum(energy for effects in each.reads.values() for energy in effects.values()) for each in found]
    assert totals[1] == pytest.approx(totals[0], rel=0.2) and totals[1] != totals[0]
    assert sum(parts.weights.values()) == pytest.approx(sum(whole.weights.values()), rel=0.2)
    assert parts.handed_out == pytest.approx(whole.handed_out, rel=0.2)


def test_an_outputs_own_rounding_is_told_exactly() -> None:
    """Values that are equal are wrong alike, which changes nothing of their squares."""
    writer = GraphWriter("outputs")
    x = writer.input("x", [64, 2])
    writer.output(writer.op("Relu", [x], "/relu"), "y", [64, 2])
    feed = {"x": np.where(np.arange(128).reshape(64, 2) % 3, 0.1, 7.3).astype(np.float32)}
    sites, measured = _measure(writer.model(), feed)
    error = np.linalg.norm(round_to(feed["x"], Format.FP16).astype(np.float64) - feed["x"])
    told = measured.handed_out[sites.model.graph.outputs[0]]
    assert math.sqrt(told) == pytest.approx(error / np.linalg.norm(feed["x"].astype(np.float64)), rel=1e-5)


@pytest.mark.parametrize("segment", [tape.SEGMENT_BYTES, 1 << 17], ids=["one segment", "several"])
def test_a_short_way_back_that_is_not_enough_is_a_part_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, segment: int
) -> None:
    zoo = encoder(layers=1)
    monkeypatch.setattr(tape, "SEGMENT_BYTES", segment)
    monkeypatch.setattr(tape, "MOST_SEGMENT_BYTES", segment)
    sites, stepper = Sites(load(zoo.model)), Stepper(Emulator())
    answers = {"forwards": None, "in full": None, "not enough": False, "enough": True}
    found, cost = dict[str, Sensitivity](), dict[str, float]()
    for how, answer in answers.items():
        before, found[how] = stepper.executed, Sensitivity()
        enough = None if answer is None else answer.__bool__
        probes = PROBES if how != "forwards" else 0
        measure_sensitivity(stepper, sites, zoo.inputs[0], found[how], probes=probes, enough=enough)
        cost[how] = stepper.executed - before
    whole, parts = found["in full"], found["not enough"]
    assert (parts.samples, parts.breaks, parts.overflows) == (1, whole.breaks, whole.overflows)
    assert parts.reads.keys() == whole.reads.keys() == found["enough"].reads.keys()
    assert sum(parts.weights.values()) == pytest.approx(sum(whole.weights.values()), rel=0.3)
    assert parts.handed_out == pytest.approx(whole.handed_out) == found["enough"].handed_out
    assert cost["not enough"] < cost["in full"] + cost["enough"] - cost["forwards"]


def test_the_tape_keeps_no_more_than_a_segment_and_what_crosses_its_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "SEGMENT_BYTES", 10 * 4000)
    monkeypatch.setattr(tape, "MOST_SEGMENT_BYTES", 10 * 4000)
    writer = GraphWriter("long")
    x = writer.input("x", [1000])
    for step in range(40):
        x = writer.op("Sin", [x], f"/{step}")
    writer.output(x, "y", [1000])
    sites, stepper = Sites(load(writer.model())), Stepper(Emulator())
    fp32 = Assignment(sites, {})
    feeds = {"x": np.ones(1000, np.float32)}
    recorded = tape.Tape(stepper, fp32, feeds)
    live = Store(stepper.emulator, fp32, feeds)
    values = [value for node in sites.model.graph for value in node.outputs]
    for step in stepper.walk(live):
        recorded.record(step, live)
        assert sum(value in recorded.store for value in values) <= 10 + 4
    assert [node.name for node in recorded.rewind()] == [f"/{i}/Sin" for i in reversed(range(40))]


# -- roundings --------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.3, 1.7, 2.3, 1e4 + 3, 5e-6]), min_size=2, max_size=60), st.integers(0, 99))
def test_the_energy_of_a_rounding_sums_equal_values_first(values: list[float], seed: int) -> None:
    array = np.array(values, np.float32)
    rounding = Rounding.to(array, Format.FP16)
    assert rounding is not None
    gradient = np.random.default_rng(seed).standard_normal((3, array.size)).astype(np.float32)
    error = round_to(array, Format.FP16).astype(np.float64) - array
    wanted = sum(np.sum(gradient[:, array == v] * error[array == v], axis=1) ** 2 for v in np.unique(array))
    assert rounding.energy(gradient) == pytest.approx(float(np.mean(wanted)), rel=1e-4, abs=1e-30)


def test_exact_values_have_no_rounding() -> None:
    assert Rounding.to(np.array([1.0, 0.5, -2048.0, 0.0], np.float32), Format.FP16) is None


def test_where_the_result_is_not_finite_there_is_no_small_error() -> None:
    rounding = Rounding.to(np.array([1e6, 0.1, np.inf, np.nan], np.float32), Format.FP16)
    assert rounding is not None
    assert np.count_nonzero(rounding.error) == 1


def test_how_far_a_walk_is_is_told_forwards_and_back() -> None:
    zoo, told = encoder(layers=1, overflow=False), list[tuple[int, int]]()
    sites = Sites(load(zoo.model))
    stepper = Stepper(Emulator(walked=lambda done, total: told.append((done, total))))
    measure_sensitivity(stepper, sites, zoo.inputs[0], Sensitivity())
    once = [(number, len(sites.all)) for number in range(len(sites.all))]
    assert told == [*once, *once]
