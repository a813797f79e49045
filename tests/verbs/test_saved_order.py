"""Saved outputs of the right model in another order than the samples are told from an engine that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import verify
from halfwise.core.notes import Note, NoteKind
from halfwise.verbs.saved_order import Mark, mark_of, order_note
from tests.models.build import f32, model, node, value, weight

PRODUCT = model(
    [node("MatMul", "x w", "y")],
    [value("x", shape=[1, 8])],
    [value("y", shape=[1, 8])],
    [weight("w", np.eye(8, dtype=np.float32) * 3)],
)


def told(folder: Path, order: list[int], worse: float = 0.0) -> tuple[bool, list[Note]]:
    """The verdict on what was saved of samples in this order, wrong by a part of itself, and its notes."""
    onnx.save(PRODUCT, folder / "m.onnx")
    (folder / "samples").mkdir()
    random = np.random.default_rng(1)
    feeds = [f32(*random.normal(size=8)).reshape(1, 8) for _ in order]
    for at, feed in enumerate(feeds):
        np.savez(folder / "samples" / f"{at}.npz", x=feed)
    saved = folder / "saved"
    saved.mkdir()
    for place, at in enumerate(order):
        wrong: NDArray[Any] = 3 * feeds[at] * (1 + worse * random.normal(size=8))
        np.savez(saved / f"out{place}.npz", y=wrong.astype(np.float32))
    result = verify(folder / "m.onnx", saved, folder / "samples")
    return result.met, [each for each in result.notes if each.kind is NoteKind.SAVED_IN_OTHER_ORDER]


def test_the_order_of_names_as_text(tmp_path: Path) -> None:
    order = sorted(range(12), key=str)
    met, notes = told(tmp_path, order)
    assert not met and [json.loads(json.dumps(each.to_json()))["values"] for each in notes] == [
        {"output": 3, "sample": 11}
    ]


def test_a_wrong_engine_in_another_order_is_told_so_too(tmp_path: Path) -> None:
    met, notes = told(tmp_path, [1, 0, 2], worse=0.03)
    assert not met and [each.values for each in notes] == [{"output": 1, "sample": 2}]


@pytest.mark.parametrize(("order", "worse"), [([0, 1, 2, 3], 0.0), ([0, 1, 2, 3], 0.05), ([0, 1, 1, 3], 0.0)])
def test_the_same_order_or_another_set_is_none(tmp_path: Path, order: list[int], worse: float) -> None:
    met, notes = told(tmp_path, order, worse)
    assert met is (order == [0, 1, 2, 3] and not worse) and not notes


def test_answers_that_hardly_differ_are_not_taken_for_one_another(tmp_path: Path) -> None:
    met, notes = told(tmp_path, [0, 1], worse=3.0)
    assert not met and not notes


def test_answers_that_are_not_finite_belong_to_no_sample() -> None:
    def mark(*numbers: float) -> Mark:
        return mark_of({"y": [f32(*numbers)]}, ["y"])

    first, second, broken = mark(1, 2), mark(3, -4), mark(float("nan"), 2)
    assert order_note([(first, second), (second, first)]) is not None
    assert order_note([(first, second), (second, broken)]) is None
    assert order_note([(first, broken), (second, broken)]) is None
