"""A part of the corpus of models, some of every kind that needs no other packages, through the whole of `fix`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.thousand.corpus import corpus
from benchmarks.thousand.graph import Graph, Made, keep, kept_feeds, sampled
from benchmarks.thousand.judging import worst_error
from benchmarks.thousand.table import GOOD
from benchmarks.thousand.trial import LEVELS, try_graph
from halfwise.core.output_kinds import Floor, OutputKind, Part, Reading
from tests.models.build import model, node, value

COUNT = 40
KINDS = {"onnx node", "onnx simple", "onnx pytorch-operator", "onnx pytorch-converted", "by hand", "opsets",
         "optimised on disk", "quantised", "typed FP16"}  # fmt: skip


def test_models_are_fixed_valid_and_right_at_every_level(tmp_path: Path) -> None:
    """By ONNX's checker, by ONNX Runtime at each level of optimisation, and by a judge that shares no code."""
    chosen = sampled(corpus(made_from_code=False), COUNT)
    assert {graph.kind for graph in chosen} == KINDS
    rows = [try_graph(graph, tmp_path / graph.name, "onnx") for graph in chosen]
    asked = [row for row in rows if row.end not in ("not made", "not run in FP32")]
    assert len(asked) > 0.7 * len(rows)
    assert {row.name: (row.end, row.cause) for row in asked if row.end not in GOOD} == {}
    for row in asked:
        if row.end == "met, confirmed":
            assert row.strict is not None and row.strict <= 0.015 and len(row.levels) == len(LEVELS)
            assert all(not isinstance(level, str) and level <= 0.015 for level in row.levels)


@pytest.mark.parametrize("name", ["noise", ""])
def test_random_nodes_draw_alike_where_a_model_is_judged(name: str, tmp_path: Path) -> None:
    """In the emulation, in the judge, and at every level of the runtime; with a name and without."""
    steps = [
        node("Tanh", "x", "t"),
        node("RandomNormalLike", "t", "n", name=name, dtype=1),
        node("Add", "t n", "a"),
        node("Mul", "a x", "y"),
    ]
    graph = model(steps, [value("x", shape=(4, 64))], [value("y", shape=(4, 64))])
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((4, 64)).astype(np.float32)} for _ in range(3)]
    row = try_graph(Graph("noise", "by hand", lambda: Made(graph, feeds)), tmp_path / "noise", "onnx")
    assert row.end == "met, confirmed", row


# -- the judge ---------------------------------------------------------------------------------------------------------


def test_rows_may_change_places_and_one_of_few_may_be_another() -> None:
    kinds = [OutputKind(name, Reading.ROWS, axis=1, together=("score", "place")) for name in ("score", "place")]
    score = np.array([[5.0, 4.0, 3.0, 2.0]], np.float32)
    place = np.array([[[1.0, 2.0], [30.0, 4.0], [5.0, 60.0], [70.0, 80.0]]], np.float32)
    given = {"score": score, "place": place}
    swapped = {"score": score[:, [0, 2, 1, 3]] * 1.001, "place": place[:, [0, 2, 1, 3]]}
    assert worst_error(given, swapped, ()) > 0.1
    assert worst_error(given, swapped, kinds) == pytest.approx(1e-3, rel=1e-2)
    other = {"score": score, "place": place + np.array([[[0.0, 0.0]] * 3 + [[-60.0, 0.0]]], np.float32)}
    assert worst_error(given, other, kinds) == 0  # one of twenty
    assert worst_error(given, {"score": score, "place": place[:, ::-1]}, kinds) == np.inf


def test_of_rows_tied_for_the_last_place_any_may_be_taken() -> None:
    kinds = [
        OutputKind(name, Reading.ROWS, axis=1, together=("score", "place"), scored="score")
        for name in ("score", "place")
    ]
    score = np.array([[9.0, 1.0, 1.0, 1.0]], np.float32)
    place = np.array([[[50.0], [2.0], [40.0], [70.0]]], np.float32)
    given = {"score": score, "place": place}
    others = place.copy()
    others[0, 1:, 0] = 20.0, 60.0, 90.0
    assert worst_error(given, {"score": score, "place": others}, kinds) == 0
    others[0, 0, 0], others[0, 1, 0] = 30.0, 50.0
    assert worst_error({**given, "score": score[:, ::-1]}, {"score": score[:, ::-1], "place": others}, kinds) == np.inf


def test_slices_in_units_of_their_own_and_floors() -> None:
    wanted = {"y": np.array([[1000.0, 0.001]], np.float32)}
    got = {"y": np.array([[1000.0, 0.002]], np.float32)}
    parts = (Part(0, 1), Part(1, 2))
    assert worst_error(wanted, got, ()) < 1e-5
    assert worst_error(wanted, got, [OutputKind("y", Reading.PARTS, axis=1, parts=parts)]) == pytest.approx(1.0)
    floor = OutputKind("y", Reading.VALUES, floor=Floor(norm=1e6))
    assert worst_error(wanted, got, [floor]) == pytest.approx(1e-9, rel=1e-3)
    assert worst_error({"s": [wanted["y"]]}, {"s": [got["y"], got["y"]]}, ()) == np.inf


def test_what_is_kept_of_a_graph_comes_back(tmp_path: Path) -> None:
    graph = model([node("Neg", "x", "y")], [value("x")], [value("y")])
    feed = {"x": np.ones(4, np.float32), "s": [np.zeros(2), np.ones(3)], "o": None}
    keep(Made(graph, [feed]), tmp_path)
    (found,) = kept_feeds(tmp_path)
    assert set(found) == {"x", "s"} and [len(each) for each in found["s"]] == [2, 3]
