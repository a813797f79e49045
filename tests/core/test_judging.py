"""Outputs as they are read: what counts in rows, in parts and in choices, on numbers made by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from halfwise.core.document import read
from halfwise.core.errors import InputError
from halfwise.core.judging import judged
from halfwise.core.metrics import compare
from halfwise.core.output_kinds import Floor, OutputKind, Part, Reading


def test_a_row_at_the_end_of_the_list_may_change() -> None:
    boxes = np.arange(160.0).reshape(1, 40, 4)
    scores = np.linspace(0.9, 0.5, 40)[None]
    kind = OutputKind("boxes", Reading.ROWS, axis=1, together=("boxes",), scored="scores")
    last, first = boxes.copy(), boxes.copy()
    last[0, -1] = 1000
    first[0, 0] = 1000
    reference = {"boxes": boxes, "scores": scores}
    assert judged([kind], reference, {"boxes": last})["boxes"].found == 1.0
    assert judged([kind], reference, {"boxes": first})["boxes"].found == pytest.approx(39 / 40)
    assert judged([kind], {"boxes": boxes}, {"boxes": last})["boxes"].found == pytest.approx(39 / 40)


def test_where_all_scores_are_about_the_same_rows_have_to_be_found_again() -> None:
    """All of them are at the end then: other rows in the place of all would be no error at all."""
    boxes = np.arange(160.0).reshape(1, 40, 4)
    scores = np.linspace(0.9, 0.899, 40)[None]
    kind = OutputKind("boxes", Reading.ROWS, axis=1, together=("boxes",), scored="scores")
    reference, half = {"boxes": boxes, "scores": scores}, boxes.copy()
    half[0, 20:] += 1000
    assert judged([kind], reference, {"boxes": boxes + 1000})["boxes"].found == 0.0
    assert judged([kind], reference, {"boxes": half})["boxes"].found == 1.0


def test_the_worst_part_counts_and_is_named() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.uniform(1, 2, (1, 50, 3)) * np.array([1e4, 1.0, 1.0])
    got = wanted * np.array([1.001, 1.0, 1.05])
    parts = (Part(0, 1), Part(1, 3))
    found = judged([OutputKind("y", Reading.PARTS, axis=2, parts=parts)], {"y": wanted}, {"y": got})["y"]
    by_hand = [np.linalg.norm(got[..., s] - wanted[..., s]) / np.linalg.norm(wanted[..., s]) for s in ([0], [1, 2])]
    assert found.rel_l2 == pytest.approx(max(by_hand))
    assert found.part == "[:, :, 1:3]"
    assert found.max_abs == compare(wanted, got).max_abs


def test_the_floor_stands_in_for_a_small_reference() -> None:
    wanted, got = np.full((1, 4), 1e-6), np.full((1, 4), 2e-6)
    near = judged([OutputKind("y", Reading.VALUES, Floor(rms=0.1))], {"y": wanted}, {"y": got})["y"]
    assert near.rel_l2 == pytest.approx(1e-5)
    assert near.unfloored == pytest.approx(1.0)
    far = judged([OutputKind("y", Reading.VALUES, Floor(rms=1e-7))], {"y": wanted}, {"y": got})["y"]
    assert (far.rel_l2, far.unfloored) == (pytest.approx(1.0), 0.0)
    zero = judged([OutputKind("y", Reading.VALUES, Floor(norm=1.0))], {"y": 0 * wanted}, {"y": got})["y"]
    assert zero.rel_l2 == pytest.approx(4e-6)


def test_only_what_was_decided_counts() -> None:
    logits = np.array([[3.0, 1.0], [1.0, 1.0 + 1e-9], [0.0, 2.0]])
    kind = OutputKind("ids", Reading.CHOICES, axis=1, decided_by=("logits",), noise=1e-7)
    reference = {"ids": logits.argmax(1), "logits": logits}
    assert judged([kind], reference, {"ids": np.array([0, 0, 1])})["ids"].exact == 1.0
    assert judged([kind], reference, {"ids": np.array([1, 0, 1])})["ids"].exact == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("stated", "mistake"),
    [
        ({"reading": "rows"}, "'together' does not name it"),
        ({"reading": "rows", "together": ["x"]}, "'together' does not name it"),
        ({"reading": "rows", "together": ["y"], "axis": -1}, "axis -1 is negative"),
        ({"reading": "parts"}, "its parts are not one behind the other from 0"),
        ({"reading": "parts", "parts": [{"start": 0, "stop": 1}, {"start": 2, "stop": 3}]}, "its parts are not one"),
        ({"reading": "choices"}, "'decided_by' names no tensor"),
    ],
)
def test_a_kind_that_lacks_what_its_reading_takes_is_refused(stated: dict[str, Any], mistake: str) -> None:
    told = f"p.json: output 'y' cannot be read as {stated['reading']}: {mistake}"
    with pytest.raises(InputError, match=re.escape(told)):
        read({"output": "y", **stated}, OutputKind, "p.json")


def test_classes_along_an_axis_that_is_not_there_are_compared_one_by_one() -> None:
    kind = OutputKind("ids", Reading.CHOICES, axis=-3, decided_by=("logits",))
    logits = np.array([[1.0, 2.0]])
    sides = [{"ids": np.array([each]), "logits": logits} for each in (0, 1)]
    assert judged([kind], *sides)["ids"].exact == 0.0
