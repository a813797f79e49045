"""Inputs that chose the FP32 nodes may keep the tolerance by luck: plain FP16 and the estimate of rounding tell."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.notes import NoteKind
from halfwise.search import held_out
from halfwise.search.judge import Measured
from halfwise.search.luck import luck
from halfwise.search.noise import Noise
from halfwise.search.noise_model import NoiseModel
from halfwise.search.search import Solution
from halfwise.verbs.fix.result import FixResult
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds

A, B = (ir.Node("", "Mul", [], name=name) for name in "ab")
PLAIN = Measured((2.0, 2.4, 1.8, 2.2))


def solution(*keep: ir.Node, energies: dict[ir.Node, float]) -> Solution:
    pieces = tuple(Noise(frozenset({each}), energy, False) for each, energy in energies.items())
    return Solution(frozenset(keep), (), PLAIN, PLAIN, NoiseModel(pieces, dict.fromkeys(energies, 1.0), frozenset()))


def found(times: float) -> Measured:
    """So many times what is expected of 16% of the squares."""
    return Measured(tuple(0.4 * times * ratio for ratio in reversed(PLAIN.ratios)))


@pytest.mark.parametrize(
    ("measured", "told"), [(1 / 1.5, 1.5), (1 / 2.75, 2.75), (1 / 1.2, 1.0), (1.0, 1.0), (2.0, 1.0), (1 / 3.2, 1.0)]
)
def test_luck_is_what_the_estimate_expects_over_what_was_measured(measured: float, told: float) -> None:
    """Not where it is less than an estimate may be off, or more than luck may be."""
    assert luck(solution(A, energies={A: 0.84, B: 0.16}), PLAIN, found(measured)) == pytest.approx(told)


@pytest.mark.parametrize(
    ("chosen", "plain"),
    [
        (solution(energies={A: 0.84, B: 0.16}), PLAIN),  # no node was chosen
        (replace(solution(A, energies={A: 0.84, B: 0.16}), noise=None), PLAIN),
        (solution(A, energies={A: 0.84, B: 0.16}), Measured((2.0, math.inf, 1.8, 2.2))),
        (solution(A, energies={A: 0.84, B: 0.16}), Measured((2.0, 0.0, 1.8, 2.2))),
        (solution(A, B, energies={A: 0.84, B: 0.16}), PLAIN),  # the estimate leaves nothing
        (solution(A, energies={B: 0.16}), PLAIN),  # it does not know what was chosen
    ],
)
def test_none_is_told_where_nothing_is_known(chosen: Solution, plain: Measured) -> None:
    assert luck(chosen, plain, found(0.5)) == 1.0


def stairs() -> onnx.ModelProto:
    """A sum near 1,000, which FP16 rounds to halves, and a product behind it that it rounds at the last bit."""
    nodes = [node("Add", "x far", "h"), node("Sub", "h far", "d"), node("Mul", "d c", "y")]
    weights = [weight("far", np.float32(1000.3)), weight("c", np.float32(1.1))]
    return model(nodes, [value("x", shape=(64,))], [value("y", shape=(64,))], weights)


def fixed(tolerance: float) -> FixResult:
    given: list[dict[str, NDArray[np.float32]]] = [
        {"x": np.random.default_rng(seed).standard_normal(64).astype(np.float32)} for seed in range(6)
    ]
    return fix(stairs(), given, repairs="none", tolerance=f"y:rel_l2<={tolerance}")


@pytest.mark.parametrize(("times", "told"), [(1.0, False), (2.0, True)])
def test_inputs_that_keep_the_tolerance_by_luck_are_told(
    times: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerance = 1.4 * fixed(1e-2).verdict.value
    before = fixed(tolerance)
    assert before.met and before.fp32_nodes and before.promise is not None and before.promise.carried
    asked = list[tuple[Measured, Measured]]()

    def told_luck(chosen: Solution, plain: Measured, found: Measured) -> float:
        asked.append((plain, found))
        return times

    monkeypatch.setattr(held_out, "luck", told_luck)
    result = fixed(tolerance)
    plain, found = asked[-1]
    assert len(plain.ratios) == len(found.ratios) == 6  # of all inputs, in FP16 and as chosen
    assert min(plain.ratios) > 1.0 >= found.ratio
    assert result.met and result.fp32_nodes == before.fp32_nodes and result.promise is not None
    assert result.promise.carried is not told
    assert result.promise.bound == pytest.approx(times * before.promise.bound)
    assert (NoteKind.UNSEEN_LUCK in kinds(result.notes)) is told
