"""Inputs that the search does not see: what is expected of them, and what one that misses the tolerance changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from halfwise import fix, verify
from halfwise.core.notes import NoteKind
from halfwise.emulation import emulate
from halfwise.emulation.streamed import StreamedSession
from halfwise.model.inputs.samples import Feed
from halfwise.model.inputs.synthetic import vary
from halfwise.search import run_counter
from halfwise.search.held_out import HeldOutSearch
from halfwise.search.judge import Measured
from halfwise.search.search import Search
from halfwise.search.unseen_bound import bound_for_unseen
from tests.support.messages import kinds

LOADS = st.lists(st.floats(0.0, 10.0), min_size=1, max_size=12)


@given(LOADS, st.integers(0, 20))
def test_nothing_less_than_the_worst_seen_is_expected(loads: list[float], inputs: int) -> None:
    assert max(loads) <= bound_for_unseen(loads, inputs) <= 3.0 * max(loads)


def test_more_inputs_and_less_scatter_mean_less_doubt() -> None:
    alike = [bound_for_unseen([0.5] * count) for count in (1, 2, 3, 6, 12)]
    assert alike == sorted(alike, reverse=True)
    assert bound_for_unseen([0.1, 0.5, 0.5]) > bound_for_unseen([0.5, 0.5, 0.5])
    assert bound_for_unseen([0.5], 6) < bound_for_unseen([0.5])
    assert bound_for_unseen([0.2, float("inf")]) == float("inf") and bound_for_unseen([0.0]) == 0.0


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("scatter", [0.1, 0.22, 0.4])
def test_nine_in_ten_or_more_stay_below(count: int, scatter: float) -> None:
    """Models whose inputs scatter less than usual, as usual, and nearly twice as much."""
    rng = np.random.default_rng(count)
    draws = np.exp(scatter * rng.standard_normal((2000, count + 1)))
    below = [row[-1] <= bound_for_unseen(row[:-1].tolist()) for row in draws]
    assert np.mean(below) >= (0.94 if scatter <= 0.22 else 0.88)


def cancelling() -> onnx.ModelProto:
    """(x + c) - c: harmless for a small c, and nothing is left of x in FP16 where c is large."""
    x, c, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in "xcy")
    nodes = [helper.make_node("Add", ["x", "c"], ["s"], "add"), helper.make_node("Sub", ["s", "c"], ["y"], "sub")]
    return helper.make_model(helper.make_graph(nodes, "g", [x, c], [y]), opset_imports=[helper.make_opsetid("", 17)])


def feeds(*offsets: float) -> list[Feed]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.0, 64).astype(np.float32)
    return [{"x": x * (1 + i / 100), "c": np.full(64, c, np.float32)} for i, c in enumerate(offsets)]


@pytest.mark.parametrize("hard", range(4))
def test_an_input_that_misses_is_met_wherever_it_lies(hard: int, tmp_path: Path) -> None:
    """All that was given is met in the end, whether it was given to the search or joined it."""
    samples = feeds(*(1024.0 if i == hard else 0.0 for i in range(4)))
    result = fix(cancelling(), samples, out=tmp_path, tolerance=["rel_l2<=0.01"], repairs=("none",))
    assert result.met and set(result.fp32_nodes) == {"add", "sub"}
    assert result.typed is not None
    assert verify(cancelling(), result.typed.path, samples, tolerance=["rel_l2<=0.01"]).met


@pytest.mark.parametrize("hard", range(4))
def test_of_a_large_model_the_hardest_input_is_searched_at_once(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes long, and of plain FP16 all are made before the search."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", -1)
    samples = feeds(*(1024.0 if i == hard else 0.0 for i in range(4)))
    result = fix(cancelling(), samples, tolerance=["rel_l2<=0.01"], repairs=("none",))
    assert result.met and set(result.fp32_nodes) == {"add", "sub"}
    assert NoteKind.VALIDATION_MOVED not in kinds(result.notes)
    assert (len(result.samples.search), len(result.samples.validation)) == (2, 2)


def test_of_a_large_model_all_variants_are_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each weight is read once for them. Those of the input that does worst come first, by themselves."""
    at_once = list[int]()
    answers = StreamedSession.answers

    def counted(session: StreamedSession, feeds: Sequence[Any]) -> Any:
        at_once.append(len(feeds))
        return answers(session, feeds)

    monkeypatch.setattr(emulate, "LARGE_BYTES", -1)
    monkeypatch.setattr(StreamedSession, "answers", counted)
    assert not fix(cancelling(), feeds(1.0, 2.0, 3.0, 4.0), tolerance=["rel_l2<=0.005"]).fp32_nodes
    assert at_once[:5] == [4, 4, 8, 2, 6]  # those given in FP32 and in FP16, and the variants


def test_the_last_held_out_input_judges_by_variants_once_it_has_joined() -> None:
    for offsets in ((0.0, 1024.0), (1024.0, 0.0)):
        result = fix(cancelling(), feeds(*offsets), tolerance=["rel_l2<=0.01"], repairs=("none",))
        assert set(result.fp32_nodes) == {"add", "sub"}
    assert (result.plan.inputs == "derived") == (NoteKind.VALIDATION_REPLACED in kinds(result.notes))


def test_flags_and_whole_numbers_stay_what_they_are() -> None:
    rng = np.random.default_rng(0)
    feed = {
        "mask": np.array([0, 1, 1, 0], np.float32),
        "pixels": np.arange(256, dtype=np.float32),
        "values": np.linspace(-1, 1, 50, dtype=np.float32),
    }
    varied = vary(feed, rng=rng)
    assert np.array_equal(varied["mask"], feed["mask"])
    assert np.array_equal(varied["pixels"], np.rint(varied["pixels"])) and (varied["pixels"] != feed["pixels"]).any()
    assert (varied["values"] != feed["values"]).any()


@pytest.mark.parametrize(
    ("held", "searched", "ratio"), [(0.2, 0.4, 0.2), (0.2, 2.2, 2.2), (1.9, 0.4, 1.9), (0.2, 0.999, 0.2)]
)
def test_a_larger_set_is_asked_about_what_was_searched_too(held: float, searched: float, ratio: float) -> None:
    """With one more node in FP32, errors that cancelled in a searched input no longer do."""

    def judging(ratio: float) -> Any:
        return SimpleNamespace(measure=lambda assignment: Measured((ratio, ratio / 2)))

    search = SimpleNamespace(judge=judging(searched), assignment=lambda keep: keep)
    asked = cast(HeldOutSearch, SimpleNamespace(notify=str))
    seen = HeldOutSearch._on_held_out(asked, cast(Search, search), judging(held), frozenset())
    assert seen.ratio == ratio


def hidden(*behind: onnx.NodeProto, long: int = 24) -> onnx.ModelProto:
    """A long product and a sum of 8 of which little is left, both of some noise, in front of these nodes."""
    rng = np.random.default_rng(7)
    x, c, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [256]) for name in "xcy")
    factors = rng.uniform(0.9, 1.1, (long, 256)).astype(np.float32)
    numbers = {"eight": 8.0, "part": 0.3, "more": 0.3005, "times": 2.0}
    weights = [onnx.numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(factors)]
    weights += [onnx.numpy_helper.from_array(np.float32(number), name) for name, number in numbers.items()]
    nodes = [helper.make_node("Add", ["x", "eight"], ["a"], "a"), helper.make_node("Sub", ["a", "eight"], ["p0"], "b")]
    nodes += [helper.make_node("Mul", [f"p{i}", f"w{i}"], [f"p{i + 1}"], f"mul{i}") for i in range(long)]
    graph = helper.make_graph([*nodes, *behind], "g", [x, c], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


CANCELS = (helper.make_node("Add", ["p24", "c"], ["s"], "add"), helper.make_node("Sub", ["s", "c"], ["y"], "sub"))
OPENS = (  # 2 relu((c + 0.3) - c - 0.3005), which is 0 in FP32, of no derivative
    helper.make_node("Add", ["c", "part"], ["s"], "add"),
    helper.make_node("Sub", ["s", "c"], ["t"], "sub"),
    helper.make_node("Sub", ["t", "more"], ["u"], "less"),
    helper.make_node("Relu", ["u"], ["v"], "relu"),
    helper.make_node("Mul", ["v", "times"], ["g"], "times"),
    helper.make_node("Add", ["p24", "g"], ["y"], "last"),
)


@pytest.mark.parametrize(("behind", "offset"), [(CANCELS, 32.0), (CANCELS, 64.0), (OPENS, 64.0)])
def test_where_no_runs_are_left_what_a_missed_input_needs_is_found(
    behind: tuple[onnx.NodeProto, ...], offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where c is 0, as in all inputs that are searched, plain FP16 is enough, and nothing tells of `add`."""
    monkeypatch.setattr(run_counter, "SAVING_RUNS_SMALL", 1)
    rng = np.random.default_rng(0)
    samples = [
        {"x": rng.uniform(0.5, 1.0, 256).astype(np.float32), "c": np.full(256, c, np.float32)}
        for c in (0.0, 0.0, 0.0, offset)
    ]
    result = fix(hidden(*behind), samples, tolerance=["rel_l2<=0.012"], repairs=("none",))
    assert result.met and {"add", "sub"} <= set(result.fp32_nodes)
    assert len(result.fp32_nodes) <= 6
