"""Choices between near equals: how many the noise is to change, against changes that were counted."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from halfwise.core.choosing import Changes, changes_expected, clearly_chosen
from halfwise.core.evaluation import evaluate
from halfwise.core.formats import Format
from halfwise.core.output_kinds import NO_AXIS, OutputKind, Reading
from halfwise.core.tolerance import Tolerance

CLASSES = OutputKind("ids", Reading.COUNTED, axis=1, decided_by=("logits",))


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_as_many_as_are_counted_when_the_noise_is_drawn_often(noise: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3000, 5))
    chosen = logits.argmax(1)
    moved = [logits + noise * rng.standard_normal(logits.shape) for _ in range(60)]
    counted = np.mean([np.count_nonzero(each.argmax(1) != chosen) for each in moved])
    told = changes_expected([CLASSES], {"logits": logits}, {"logits": moved[0]}, {})["ids"]
    assert told.places == 3000
    assert told.expected == pytest.approx(counted, rel=0.15)


def test_a_threshold_is_a_choice_of_two() -> None:
    rng = np.random.default_rng(1)
    scores, kind = rng.random(4000), OutputKind("mask", Reading.COUNTED, axis=NO_AXIS, decided_by=("s",), threshold=0.5)
    moved = [scores + 0.01 * rng.standard_normal(4000) for _ in range(60)]
    counted = np.mean([np.count_nonzero((each > 0.5) != (scores > 0.5)) for each in moved])
    assert changes_expected([kind], {"s": scores}, {"s": moved[0]}, {})["mask"].expected == pytest.approx(
        counted, rel=0.2
    )


@pytest.mark.parametrize(("places", "exact"), [(100, 1.0), (1024, 0.999), (5000, 0.999), (4_000_000, 0.999)])
def test_what_is_bearable_is_more_than_allowed_in_one_of_twenty_inputs(places: int, exact: float) -> None:
    expected = Changes(0.0, places).bearable(exact)
    counts = np.random.default_rng(2).poisson(expected, 100_000)
    assert np.mean(counts > round((1 - exact) * places)) == pytest.approx(0.05, abs=0.004)


def test_what_a_choice_reads_counts_not_what_is_held() -> None:
    logits = np.array([[1.0, 1.0001], [1.0, 3.0]], np.float32)
    told = [changes_expected([CLASSES], {"logits": logits}, {"logits": logits}, read)["ids"] for read in
            ({}, {"logits": Format.FP16})]  # fmt: skip
    assert told[0].expected == 0.0 and 0.05 < told[1].expected <= 0.5


def test_what_fp32_itself_did_not_decide_is_not_expected_to_change_either() -> None:
    logits = np.array([[1.0, 1.0 + 1e-9], [1.0, 3.0]])
    kind = OutputKind("ids", Reading.CHOICES, axis=1, decided_by=("logits",), noise=1e-7)
    moved = logits + np.array([[1e-3, 0.0]])
    assert changes_expected([kind], {"logits": logits}, {"logits": moved}, {})["ids"].expected < 1e-9


def test_a_bound_of_the_users_counts_every_difference_and_still_knows_what_decides() -> None:
    kind = OutputKind("ids", Reading.CHOICES, axis=1, decided_by=("logits",), noise=1e-7, inner=("logits",))
    read = {
        text: Tolerance.parse([text], ["ids"], [], kinds=[kind]).kinds for text in ("*:exact>=0.99", "ids:cosine>=0.9")
    }
    assert [each.reading for each in read["*:exact>=0.99"]] == [Reading.COUNTED]
    assert read["ids:cosine>=0.9"] == ()


def test_a_few_differences_seen_tell_less_than_those_to_expect() -> None:
    """Counts of 0, 1 or 2 scatter far; what is expected of them is known better, and stands in for them."""
    rng = np.random.default_rng(3)
    logits = [rng.standard_normal((2000, 5)) for _ in range(4)]
    moved = [each + 1e-3 * rng.standard_normal(each.shape) for each in logits]
    kind = replace(CLASSES, reading=Reading.CHOICES, inner=("logits",))
    tolerance = Tolerance.parse(["ids:exact>=0.99"], ["ids"], [], kinds=[kind])
    answers = [[{"ids": each.argmax(1), "logits": each} for each in side] for side in (logits, moved)]
    found = evaluate(*answers, tolerance)
    assert max(found.smooth) == 0.0 < max(found.ratios)
    assert all(0.0 < chance < 0.3 for chance in found.chances)


@pytest.mark.parametrize("shapes", [((2, 3), (2, 4)), ((4,), (3,)), ((2, 3), (3, 2, 1, 5))])
@pytest.mark.parametrize("reading", [Reading.CHOICES, Reading.COUNTED])
def test_tensors_that_no_comparison_takes_together_tell_nothing(
    shapes: tuple[tuple[int, ...], ...], reading: Reading
) -> None:
    """A plan that somebody changed may name them."""
    kind = OutputKind("mask", reading, axis=NO_AXIS, decided_by=("a", "b"))
    outputs = {name: np.ones(shape) for name, shape in zip("ab", shapes, strict=True)}
    assert changes_expected([kind], outputs, outputs, {}) == {} and clearly_chosen(kind, outputs) is None
