"""Whether a measure sees anything: one that calls an answer in another order perfect does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import halfwise
from halfwise.core.english import say
from halfwise.core.measures.blind import blind_notes, sees_nothing
from halfwise.core.measures.boxes import Boxes
from tests.support.says import Says

measures = halfwise.measures


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_measure_that_calls_outputs_in_another_order_perfect_sees_nothing() -> None:
    joints = {"points": random(7).uniform(0, 1, (1, 17, 2))}
    assert sees_nothing(measures.Keypoints(), joints)
    assert not sees_nothing(measures.Keypoints(radius=0.01), joints)
    faces = {"boxes": random(8).uniform(0, 1, (1, 9, 4)), "scores": np.linspace(0.15, 0.1, 9)[None]}
    assert sees_nothing(Boxes(), faces) and not sees_nothing(Boxes(threshold=0.12), faces)
    assert not sees_nothing(measures.Text(), {"y": np.full((1, 4), 7)})  # no other order of it
    matches = {"matches": np.array([[0, 30], [60, 90], [120, 150]]), "scores": np.array([0.9, 0.5, 0.1])}
    assert not sees_nothing(measures.Keypoints(), matches)


def test_the_best_of_three_is_seen_where_it_is_the_one_in_the_middle() -> None:
    def best(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return float(one["y"].argmax() != other["y"].argmax())

    assert not sees_nothing(best, {"y": np.array([0.1, 0.8, 0.2])})


def test_a_function_that_takes_no_other_answer_is_not_called_blind() -> None:
    def careful(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        if (one["y"] != other["y"]).any():
            raise ArithmeticError
        return 0.0

    assert not sees_nothing(careful, {"y": np.arange(4.0)})


def test_what_is_said_of_a_blind_measure(says: Says) -> None:
    def own(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return 0.0

    assert blind_notes(own, [False, False]) == ()
    for metric, blind in ((measures.Keypoints(), [True, True]), (own, [True]), (measures.Mask(), [True, False])):
        (note,) = blind_notes(metric, blind)
        says(say(note))


def test_a_function_that_writes_into_what_it_is_given_changes_no_answer() -> None:
    def careless(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        for each in (one, other):
            each["y"][:] = 0.0
        return 0.0

    answer = {"y": np.arange(4.0)}
    assert sees_nothing(careless, answer) and answer["y"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_no_box_above_the_threshold_is_nothing_to_count_though_places_taken_for_scores_would_be() -> None:
    """One output with everything, as YOLO has it: in another order its places are scores."""
    rng = random(4)
    raw = np.concatenate([rng.uniform(20, 300, (1, 4, 50)), rng.uniform(0, 0.2, (1, 18, 50))], axis=1)
    assert sees_nothing(Boxes(), {"output0": raw})
    raw[0, 7, 3] = 0.9
    assert not sees_nothing(Boxes(), {"output0": raw})
    joints = np.concatenate([rng.uniform(0, 400, (1, 17, 2)), np.full((1, 17, 1), 0.2)], axis=2)
    assert sees_nothing(measures.Keypoints(threshold=0.3), {"k": joints})
    assert not sees_nothing(measures.Keypoints(threshold=0.1), {"k": joints})
