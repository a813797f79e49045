"""Masked places of an output are far larger than its answers, whose error they hid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

import halfwise
from halfwise.core.judging import judged
from halfwise.core.output_kinds import Floor, OutputKind, Reading
from halfwise.model.model import load
from halfwise.model.outputs.fillers import filler_of
from halfwise.model.outputs.kinds import facts_of, kinds_of
from tests.models.build import model, node, value, weight

Array = NDArray[Any]

FILLER = -10000.0
MASK = np.arange(512).reshape(64, 8) % 3 == 0


def answers(filler: float = FILLER) -> list[Array]:
    rng = np.random.default_rng(0)
    return [np.where(MASK, rng.standard_normal((64, 8)), filler).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("filler", [-10000.0, 1e4, -100.0, 65504.0])
def test_what_is_far_larger_than_all_others_is_no_answer(filler: float) -> None:
    assert filler_of(answers(filler)) == filler
    assert filler_of([*answers(filler), np.ones((64, 8), np.float32)]) == filler  # nothing is masked in one of them


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(1).standard_normal((64, 8)),
        np.array([1e4, 1.0, 2.0]),  # a single place
        np.array([10.0, 10.0, 2.0, -3.0]),  # not far away
        np.array([1e4, 1e4, 0.0]),  # nothing beside it
        np.full(8, 1e4),
        np.array([1e4, -1e4, 1e4, 1.0]),
        np.zeros(8),
        np.zeros((0, 8)),
        np.full(8, np.inf),
    ],
)
def test_other_values_are_answers(array: Array) -> None:
    assert filler_of([array.astype(np.float32)]) is None


def test_the_others_are_judged_by_themselves() -> None:
    (reference, *_), kind = answers(), OutputKind("y", Reading.VALUES, Floor(rms=0.1), filler=FILLER)

    def error(other: Array) -> float:
        return judged([kind], {"y": reference}, {"y": other})["y"].rel_l2

    rest = reference[MASK].astype(np.float64)
    near = error(reference + np.where(MASK, np.float32(0.07), np.float32(0)))
    assert near == pytest.approx(0.07 * np.sqrt(rest.size) / np.linalg.norm(rest), rel=1e-4)
    assert error(np.where(MASK, reference, np.float32(-9000))) == pytest.approx(0.1)
    assert error(np.where(MASK, reference, np.float32(-np.inf))) == np.inf
    assert kind.sizes(reference) == pytest.approx(np.linalg.norm(rest))
    whole = np.full_like(reference, FILLER)
    assert judged([kind], {"y": whole}, {"y": whole})["y"].rel_l2 == 0.0


def masked_logits() -> onnx.ModelProto:
    """Logits whose sum with 300 FP16 cannot hold: 7% of them is lost."""
    rng = np.random.default_rng(0)
    return model(
        [
            node("MatMul", "x w", "l", name="product"),
            node("Add", "l k", "a", name="add"),
            node("Sub", "a k", "s", name="sub"),
            node("Where", "m s fill", "y", name="where"),
        ],
        [value("x", shape=(64, 8)), value("m", TensorProto.BOOL, (64, 8))],
        [value("y", shape=(64, 8))],
        [
            weight("w", (rng.standard_normal((8, 8)) / 3).astype(np.float32)),
            weight("k", np.array(300, np.float32)),
            weight("fill", np.array(FILLER, np.float32)),
        ],
    )


def test_an_error_of_the_answers_is_found_beside_a_large_filler(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    feeds = [{"x": rng.standard_normal((64, 8)).astype(np.float32), "m": MASK} for _ in range(3)]
    found = halfwise.fix(masked_logits(), feeds, out=tmp_path)
    assert found.met
    assert {each.name for each in found.plan.nodes} >= {"add", "sub"} or found.plan.repairs
    assert "output-filled" in {each["kind"] for each in found.to_json()["messages"]}


def test_the_kind_of_such_an_output_names_its_filler() -> None:
    (kind,) = kinds_of(facts_of(load(masked_logits())), [{"y": each} for each in answers()])
    assert (kind.reading, kind.filler) == (Reading.VALUES, FILLER) and kind.floor.rms < 1.0
