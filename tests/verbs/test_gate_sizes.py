"""Errors of a retrained model are relative to its own outputs, not to those of the model that the plan was made for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import halfwise
from halfwise import gate
from halfwise.core.errors import InputError
from halfwise.core.output_kinds import Floor, OutputKind, Part, Reading
from halfwise.model.model import load
from halfwise.model.outputs.kinds import sized_anew
from tests.models.build import model, node, value, weight
from tests.support.gates import statuses

RNG = np.random.default_rng(0)
FEEDS = [{"x": RNG.normal(size=(4, 8)).astype(np.float32)} for _ in range(6)]


def scaling(scale: float, folder: Path, name: str) -> Path:
    """One result of the size of `scale`; at 2e-7 FP16 has hardly a digit of it."""
    path = folder / name
    given = [weight("w", np.full(8, scale, np.float32))]
    onnx.save(model([node("Mul", "x w", "y")], [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], given), path)
    return path


def test_small_outputs_of_new_weights_are_judged_by_their_own_size(tmp_path: Path) -> None:
    fixed = halfwise.fix(scaling(100.0, tmp_path, "m.onnx"), FEEDS, repairs=("none",))
    assert fixed.plan.tolerance.kinds[0].floor.rms > 1  # a tenth of what is usual
    assert gate(fixed.plan, scaling(100.0, tmp_path, "same.onnx"), FEEDS).holds
    assert gate(fixed.plan, scaling(90.0, tmp_path, "near.onnx"), FEEDS).holds
    result = gate(fixed.plan, scaling(2e-7, tmp_path, "small.onnx"), FEEDS)
    assert (result.change, statuses(result)["tolerance"]) == ("weights", "fail")
    assert result.result is not None and result.result.verdict.ratio > 1


def test_a_plan_beside_an_original_asks_for_it_with_other_weights_too(tmp_path: Path) -> None:
    original = scaling(100.0, tmp_path, "m.onnx")
    plan = halfwise.fix(scaling(100.0, tmp_path, "typed.onnx"), FEEDS, reference=original).plan
    near = scaling(90.0, tmp_path, "near.onnx")
    for ask in (lambda: gate(plan, near, FEEDS), lambda: halfwise.fix(near, FEEDS, plan=plan)):
        with pytest.raises(InputError, match="--reference"):
            ask()
    made = halfwise.fix(near, FEEDS, plan=plan, reference=scaling(90.0, tmp_path, "other.onnx"))
    assert made.met and made.plan.reference_sha256 == load(tmp_path / "other.onnx").sha256
    alone = halfwise.fix(original, FEEDS).plan
    with pytest.raises(InputError, match="leave --reference out"):
        halfwise.fix(near, FEEDS, plan=alone, reference=original)


def test_readings_stay_and_sizes_are_those_of_the_answers() -> None:
    answers = [{"y": np.array([[3.0, 4000.0]], np.float32)}, {"y": np.array([[5.0, 2000.0]], np.float32)}]
    one, certain = Floor(rms=9.0), Floor(norm=1.0)
    kinds = (
        OutputKind("y", Reading.PARTS, one, 1, (Part(0, 1, one), Part(1, 2, one))),
        OutputKind("y", Reading.VALUES, one, filler=4000.0),
        OutputKind("y", Reading.VALUES, certain),
        OutputKind("gone", Reading.VALUES, one),
    )
    parts, filled, *others = sized_anew(kinds, answers)
    assert [part.floor.rms for part in parts.parts] == [pytest.approx(0.1 * 17**0.5, rel=1e-4), pytest.approx(316.23)]
    squares = (9.0, (25.0 + 2000.0**2) / 2)
    assert filled.floor.rms == pytest.approx(0.1 * (sum(squares) / 2) ** 0.5, rel=1e-4)
    assert tuple(others) == kinds[2:]
