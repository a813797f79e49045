"""Streams that choose between near equals: what is met on those given is asked of other streams of their tokens."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.notes import NoteKind
from halfwise.model.inputs.other_streams import other_streams
from halfwise.model.inputs.rollout import Rollout, Trajectory, trajectory
from halfwise.search.variants import JUDGED
from halfwise.verbs.fix.result import FixResult
from tests.models.build import model, node, value, weight

Array = NDArray[Any]
WORDS, ROWS, STEPS = 200, 6, 8
KEPT = np.float32(0.7)
ASKED = {"rollout": STEPS, "feedback": "state=past", "repairs": "none"}


def words() -> Array:
    rng = np.random.default_rng(0)
    return rng.uniform(0.2, 0.8, (WORDS, 1)).astype(np.float32) + rng.normal(0, 4e-3, (WORDS, ROWS)).astype(np.float32)


def router(last: str = "ArgMax") -> onnx.ModelProto:
    """Each token moves scores, the largest of which chooses a row."""
    nodes = [
        node("Gather", "words ids", "e"),
        node("Mul", "past kept", "faded"),
        node("Add", "faded e", "state"),
        *(
            [node("ArgMax", "state", "i", axis=1, keepdims=0), node("Gather", "table i", "y")]
            if last == "ArgMax"
            else [node("MatMul", "state table", "y")]
        ),
    ]
    table = np.random.default_rng(1).standard_normal((ROWS, ROWS)).astype(np.float32)
    weights = [weight("words", words()), weight("kept", KEPT), weight("table", table)]
    states = (1, ROWS)
    ids, past = value("ids", onnx.TensorProto.INT64, (1,)), value("past", shape=states)
    return model(nodes, [ids, past], [value("y", shape=states), value("state", shape=states)], weights)


def lead(state: Array) -> float:
    return float(np.diff(np.sort(state))[-1])


def clear_streams(count: int) -> list[dict[str, Array]]:
    """In each step the largest score leads by more than FP16 rounds."""
    table, made = words(), list[dict[str, Array]]()
    rng = np.random.default_rng(4)
    for _ in range(count):
        state = np.zeros(ROWS, np.float32)
        for _ in range(STEPS):
            token = next(t for t in rng.permutation(WORDS) if lead(state * KEPT + table[t]) > 0.004)
            state = state * KEPT + table[token]
            made.append({"ids": np.array([token]), "past": np.zeros((1, ROWS), np.float32)})
    return made


def told(result: FixResult) -> list[Any]:
    return [note for note in result.notes if note.kind is NoteKind.UNSEEN_STREAMS]


@pytest.mark.parametrize(
    "asked", [{"tolerance": ["y:rel_l2<=0.01", "state:rel_l2<=0.1"]}, {"metric": "logits:output=y"}]
)
def test_other_streams_of_the_same_tokens_are_told_where_a_choice_turns(asked: dict[str, Any]) -> None:
    result = fix(router(), clear_streams(4), **ASKED, **asked)
    assert result.met and not result.fp32_nodes
    assert result.promise is not None and not result.promise.carried
    (note,) = told(result)
    assert note.subject == "n_i" and note.values["op"] == "ArgMax" and note.values["steps"] == STEPS
    assert 1 <= note.values["count"] <= note.values["inputs"]
    assert JUDGED <= note.values["inputs"] < JUDGED + 4  # it is known then


def test_a_function_of_the_user_s_is_asked_about_no_other_stream() -> None:
    asked = []

    def difference(right: Any, other: Any) -> float:
        asked.append(right)
        return float(np.abs(right["y"] - other["y"]).max())

    result = fix(router(), clear_streams(4), **ASKED, metric=difference, tolerance="metric<=0.01")
    assert result.met and result.promise is not None and result.promise.carried and not told(result)


def test_a_model_that_chooses_nothing_runs_no_other_stream() -> None:
    plain = fix(router("MatMul"), clear_streams(4), **ASKED, tolerance="*:rel_l2<=0.01")
    assert plain.met and plain.promise is not None and plain.promise.carried
    assert plain.cost.model_runs < 12


# -- the streams ------------------------------------------------------------------------------------------------------


def given(count: int = 2, steps: int = STEPS) -> list[Trajectory]:
    rng, found, number = np.random.default_rng(2), list[Trajectory](), 0
    for _ in range(count):
        window = [
            {
                "ids": rng.integers(0, 50, (1, 1)),
                "position": np.array([[place]]),
                "mask": np.ones((1, place + 1), np.int64),
                "sound": rng.uniform(0.5, 1.0, (1, 3)).astype(np.float32),
                "past": np.zeros((1, 2), np.float32),
            }
            for place in range(steps)
        ]
        found.append(
            trajectory(Rollout(steps, (("state", "past"),)), window, lambda _: {"state": np.ones((1, 2))}, number)[0]
        )
        number = found[-1].id + 1
    return found


def row(steps: Any, name: str) -> list[Any]:
    return [item for step in steps for item in step[name].ravel().tolist()]


def test_tokens_are_joined_from_two_pieces_and_all_else_stays_in_its_step() -> None:
    streams = given()
    text = [token for each in streams for token in row(each.steps, "ids")]
    pairs = {*zip(text, text[1:] + text[:1], strict=True)}
    made = list(other_streams(streams, ("ids", "position"), 20, rng=np.random.default_rng(0)))
    assert len({tuple(row(each, "ids")) for each in made}) > 15
    for index, each in enumerate(made):
        source = streams[index % 2].steps
        tokens = row(each, "ids")
        assert sum(pair not in pairs for pair in pairwise(tokens)) <= 1
        assert row(each, "position") == list(range(STEPS))
        for step, before in zip(each, source, strict=True):
            assert step["mask"] is before["mask"] and step["past"] is before["past"]
            assert step["ids"].shape == (1, 1) and step["ids"].dtype == before["ids"].dtype
            off = np.abs(step["sound"] / before["sound"] - 1)
            assert 0 < off.max() < 0.01


def test_a_stream_that_cannot_be_another_is_none() -> None:
    alike = Rollout(2, (("state", "past"),))
    step = {"ids": np.array([[7]]), "past": np.zeros((1, 2), np.float32)}
    found, _ = trajectory(alike, [step, step], lambda _: {"state": np.zeros((1, 2), np.float32)}, 0)
    assert not list(other_streams([found], ("ids",), 9, rng=np.random.default_rng(0)))


def test_steps_of_several_tokens_keep_their_lengths() -> None:
    steps = [{"ids": np.arange(5)[None] * 3 % 7}, {"ids": np.array([[9]])}, {"ids": np.array([[11]])}]
    found, _ = trajectory(Rollout(3, ()), steps, lambda _: {}, 0)
    made = list(other_streams([found], ("ids",), 6, rng=np.random.default_rng(0)))
    assert made and all([step["ids"].shape[1] for step in each] == [5, 1, 1] for each in made)
    assert {token for each in made for token in row(each, "ids")} <= {0, 3, 6, 2, 5, 9, 11}
