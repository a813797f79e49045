"""What is met has to hold on inputs that nobody gave: near ties, values near the edges of FP16, and few inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.search.held_out import HeldOutSearch
from halfwise.search.near_choices import TRIALS, wavering
from halfwise.search.run_counter import RunCounter
from halfwise.search.unseen_bound import bound_alone, bound_for_unseen, inputs_wanted
from halfwise.verbs.fix.result import FixResult
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds

Feeds = list[dict[str, NDArray[Any]]]


def answer(result: FixResult, feed: dict[str, NDArray[Any]]) -> NDArray[Any]:
    formats = {result.sites.model.node_by_name[each.name]: each.format for each in result.plan.nodes}
    return Emulator().session(Assignment.excepting(result.sites, formats)).run(feed)["y"]


def squares() -> onnx.ModelProto:
    """The largest input of four is 200 to 230 in every sample given, and 256 is where squares overflow."""
    nodes = [node("Mul", "x x", "q"), node("Sqrt", "q", "r"), node("Mul", "r small", "t"), node("Add", "t x", "y")]
    return model(nodes, [value("x")], [value("y")], [weight("small", np.float32(1e-3))])


def test_what_a_little_louder_input_would_overflow_is_healed() -> None:
    given = [{"x": np.array([1, 2, 3, top], np.float32)} for top in (230.0, 205.0, 200.0, 221.0)]
    result = fix(squares(), given, repairs="none")
    assert "n_q" in result.fp32_nodes
    assert not {NoteKind.OVERFLOW_HEALED, NoteKind.VARIANT_MOVED}.isdisjoint(kinds(result.notes))
    louder = {"x": np.array([1, 2, 3, 290], np.float32)}
    assert np.isfinite(answer(result, louder)).all()


def test_what_is_the_same_in_all_inputs_grows_in_none() -> None:
    given = [{"x": np.array([1, 2, 3 + shift, 230], np.float32)} for shift in range(4)]
    assert fix(squares(), given, repairs="none").fp32_nodes == ()


def logit() -> onnx.ModelProto:
    nodes = [node("Sub", "one p", "rest"), node("Div", "p rest", "odds"), node("Log", "odds", "y")]
    return model(nodes, [value("p", shape=(256,))], [value("y", shape=(256,))], [weight("one", np.float32(1))])


def test_a_difference_that_rounding_may_make_zero_is_healed_before_it_is() -> None:
    """FP16 takes 1 - p for zero from p = 0.9998 on; the largest given is below that, in every sample by another bit."""
    rng = np.random.default_rng(3)
    given = [
        {"p": np.r_[rng.uniform(0.3, 0.6, 255), 1.0 - near].astype(np.float32)} for near in (8e-4, 6e-4, 2e-3, 1e-3)
    ]
    result = fix(logit(), given, repairs="none", tolerance="y:rel_l2<=0.02")
    nearer = {"p": np.r_[given[0]["p"][:-1], np.float32(0.9999)]}
    assert result.met and np.isfinite(answer(result, nearer)).all()


def selector() -> tuple[onnx.ModelProto, Feeds]:
    """One of 24 scores is the largest, by a little more than FP16 rounds, in each of 16 rows."""
    rng = np.random.default_rng(0)
    nodes = [node("Mul", "x five", "s"), node("ArgMax", "s", "i", axis=1, keepdims=0), node("Gather", "table i", "y")]
    table = rng.standard_normal((24, 8)).astype(np.float32)
    made = model(nodes, [value("x", shape=(16, 24))], [value("y", shape=(16, 8))],
                 [weight("five", np.float32(5.1)), weight("table", table)])  # fmt: skip
    given = []
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(0.1, 0.5, (16, 24)).astype(np.float32)
        x[:, 17], x[:, 3] = 0.9, 0.895
        given.append({"x": x})
    return made, given


def test_near_ties_are_looked_for_around_the_inputs_given() -> None:
    made, given = selector()
    result = fix(made, given, tolerance="y:rel_l2<=0.01", repairs="none")
    assert NoteKind.VARIANT_MOVED in kinds(result.notes)
    assert len(result.samples.all) == 4  # the verdict is on what was given


def router() -> tuple[onnx.ModelProto, Feeds]:
    """What 16 tokens add up to chooses a row: in many texts two scores are about equal, and in none of those given."""
    rng = np.random.default_rng(0)
    words = rng.uniform(0.2, 0.8, (200, 1)).astype(np.float32) + rng.normal(0, 1e-3, (200, 6)).astype(np.float32)
    nodes = [node("Gather", "words ids", "e"), node("ReduceSum", "e axis", "s", keepdims=0),
             node("ArgMax", "s", "i", axis=1, keepdims=0), node("Gather", "table i", "y")]  # fmt: skip
    made = model(nodes, [value("ids", onnx.TensorProto.INT64, (1, 16))], [value("y", shape=(1, 8))],
                 [weight("words", words), weight("axis", np.array([1])),
                  weight("table", rng.standard_normal((6, 8)).astype(np.float32))])  # fmt: skip
    texts = [np.random.default_rng(seed).integers(0, 200, (1, 16)) for seed in range(400)]
    clear = [ids for ids in texts if np.diff(np.sort(words[ids[0]].sum(axis=0)))[-1] > 0.008]
    return made, [{"ids": ids} for ids in clear[:4]]


def test_near_ties_of_tokens_are_looked_for_in_texts_joined_from_those_given() -> None:
    made, given = router()
    result = fix(made, given, tolerance="y:rel_l2<=0.01", repairs="none")
    assert result.met and result.fp32_nodes
    assert NoteKind.VARIANT_MOVED in kinds(result.notes)


def test_near_ties_are_looked_for_where_all_runs_went_into_saving_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunCounter, "within", lambda *_: False)
    monkeypatch.setattr(HeldOutSearch, "_affords_variants", lambda *_: False)
    for made, given in (router(), selector()):
        result = fix(made, given, tolerance="y:rel_l2<=0.01", repairs="none")
        assert result.met and result.promise is not None and not result.promise.carried


def difference() -> tuple[onnx.ModelProto, Feeds]:
    """Two rounded numbers are subtracted: they lie far enough apart in each input given, and not a step away."""
    nodes = [node("Mul", "x c", "h"), node("MatMul", "h d", "y")]
    made = model(nodes, [value("x", shape=(1, 2))], [value("y", shape=(1, 1))],
                 [weight("c", np.float32(1.1)), weight("d", np.array([[1], [-1]], np.float32))])  # fmt: skip
    return made, [{"x": np.array([[size, size * 0.98]], np.float32)} for size in (1.03, 1.13, 1.27, 1.4)]


def test_a_promise_near_the_tolerance_is_asked_of_other_inputs_where_all_runs_are_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RunCounter, "within", lambda *_: False)
    monkeypatch.setattr(HeldOutSearch, "_affords_variants", lambda *_: False)
    made, given = difference()
    asked = {"force": "op:*", "repairs": "none"}
    worst = fix(made, given, tolerance="y:rel_l2<=1", **asked).verdict.value
    near = fix(made, given, tolerance=f"y:rel_l2<={2.4 * worst}", **asked).promise
    far = fix(made, given, tolerance=f"y:rel_l2<={50 * worst}", **asked).promise
    assert near is not None and not near.carried
    assert far is not None and far.carried


@pytest.mark.parametrize("spread", [0.8, 1.5])
def test_ratios_that_scatter_more_than_usual_speak_for_themselves(spread: float) -> None:
    ratios = [float(np.exp(-1.5 + spread * step)) for step in (-1, -0.5, 0.5, 1)]
    assert bound_alone(ratios) >= bound_for_unseen(ratios)
    alike = [0.5, 0.52, 0.48, 0.51]
    assert bound_alone(alike) == bound_for_unseen(alike)


def test_how_many_inputs_would_tell_is_the_first_number_with_which_they_would() -> None:
    ratios = [0.55, 0.8, 0.7, 0.62]
    assert bound_alone(ratios) > 1.0
    wanted = inputs_wanted(ratios)
    assert wanted > 4 and bound_alone(ratios, wanted) <= 1.0
    assert inputs_wanted([0.05, 0.9, 0.2, 0.95, 0.1]) == 0


def test_inputs_that_cannot_carry_the_promise_are_told_how_many_would() -> None:
    """The tolerance is a little wider than the worst error given, and no node may leave FP16."""
    nodes, factors = [node("Mul", "x c", "h"), node("Mul", "h d", "y")], {"c": 1.1, "d": 0.7}
    weights = [weight(name, np.float32(factor)) for name, factor in factors.items()]
    made = model(nodes, [value("x", shape=(64,))], [value("y", shape=(64,))], weights)
    given = [{"x": np.random.default_rng(seed).standard_normal(64).astype(np.float32)} for seed in range(4)]
    asked = {"force": "op:*", "repairs": "none"}
    worst = fix(made, given, tolerance="y:rel_l2<=1", **asked).verdict.value
    result = fix(made, given, tolerance=f"y:rel_l2<={1.02 * worst}", **asked)
    assert result.met
    told = [note for note in result.notes if note.kind in (NoteKind.UNSEEN_MAY_MISS, NoteKind.UNSEEN_SCATTERS)]
    assert result.promise is not None and not result.promise.carried
    assert len(told) == 1 and told[0].values["bound"] > 1
    assert NoteKind.UNSEEN_MAY_MISS not in kinds(fix(made, given, tolerance=f"y:rel_l2<={3 * worst}", **asked).notes)


def steps(compared: str) -> onnx.ModelProto:
    """Steps of a thing that FP16 rounds, or of one that it does not."""
    nodes = [node("Mul", "x k", "h"), node("Round", compared, "s"), node("Add", "s h", "y")]
    shape = (1, 120)
    return model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], [weight("k", np.float32(3.1))])


def far_from_half(seed: int) -> dict[str, NDArray[Any]]:
    """Numbers whose product with 3.1 lies far from where it would be rounded to another."""
    h = np.random.default_rng(seed).uniform(-4.0, 4.0, 240)
    kept = h[np.abs(h - np.floor(h) - 0.5) > 0.01][:120]
    return {"x": (kept / 3.1).astype(np.float32)[None]}


def test_a_choice_that_turns_for_inputs_near_those_given_is_told() -> None:
    given = [far_from_half(seed) for seed in range(4)]
    made = fix(steps("h"), given, tolerance="y:max_abs<=0.5")
    assert made.met and made.promise is not None and not made.promise.carried
    (told,) = (note for note in made.notes if note.kind is NoteKind.UNSEEN_CHOICES)
    assert told.subject == "n_s" and told.values["op"] == "Round"
    assert 1 <= told.values["count"] <= told.values["inputs"] == TRIALS - len(given)
    assert 1.9 < told.values["bound"] < 2.2  # a step of 1 where 0.5 is allowed, and a rounding


def test_nothing_is_looked_at_where_what_is_compared_has_no_error() -> None:
    """The input is not rounded: it stays FP32, as does the node that it goes to."""
    sites = Sites(load(steps("x")))
    feed = Feed(0, far_from_half(0))
    emulator, runs = Emulator(), RunCounter()
    rounding = next(each for each in sites.all if each.op == "Round").node
    exact = Decision(sites, {each.node: Format.FP32 for each in sites.all}, Format.FP32)
    assert wavering(exact, emulator, feed, runs) is None
    sites = Sites(load(steps("h")))
    found = wavering(Decision(sites, {}, Format.FP32), emulator, feed, runs)
    assert found is not None and found.op_type == rounding.op_type
    every = Decision(sites, {each.node: Format.FP32 for each in sites.all}, Format.FP32)
    assert wavering(every, emulator, feed, runs) is None and runs.samples == 4
