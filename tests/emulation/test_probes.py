"""Probes tell how a machine rounds: a machine drawn at random, computed in NumPy, is told from its results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from halfwise.emulation.probes import FORMS, PROBES, Form
from halfwise.emulation.probes.judge import judged
from halfwise.emulation.profiles.hypotheses import hypotheses_of
from halfwise.emulation.profiles.learned import shared
from tests.support.simulated_gpu import RULES, drawn, simulated

SEED = 7
MANY_NUMBERS = set(
    "Cos Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mish Mul Reciprocal Selu Sigmoid Sin Softplus Sqrt "
    "Sub".split()
)  # all of FP16, eight hypotheses: `python -m benchmarks.probes` has them


def size(form: Form) -> int:
    return sum(0 if each is None else int(each.size) for each in form.arrays())


def smallest() -> Iterator[tuple[Form, str]]:
    """Of every rule the smallest form that its draws tell apart, with a hypothesis drawn at random."""
    choice = drawn(SEED)
    for rule in sorted(set(RULES) - MANY_NUMBERS):
        forms = sorted((form for form in PROBES if form.rule == rule), key=size)
        yield next(form for form in forms if simulated(form, "wide") is not None and size(form) > 1000), choice[rule]


def seen(form: Form, hypothesis: str) -> list[np.ndarray]:
    made = simulated(form, hypothesis)
    assert made is not None
    with np.errstate(over="ignore"):
        return [made.astype(np.float16)]


@pytest.mark.parametrize(("form", "hypothesis"), smallest(), ids=lambda each: getattr(each, "rule", each))
def test_what_was_drawn_is_told(form: Form, hypothesis: str) -> None:
    told = judged(form, [seen(form, hypothesis)] * 2, {})
    assert (told.status != "loose", hypothesis in told.hypotheses, told.repeats) == (True, True, True)


@pytest.mark.parametrize("terms", [32, 16, 8, 4])
def test_the_block_of_an_fp16_sum_is_told_from_sums_that_fp32_adds_exactly(terms: int) -> None:
    names = [f"exact matmul {size}" for size in ("64x64x64", "24x45x11", "1x256x256")]
    forms = [form for form in PROBES if form.name in names]
    told = [judged(form, [seen(form, f"fp16-sums-{terms}")], {}) for form in forms]
    assert shared(told) == (f"fp16-sums-{terms}",)


def test_what_no_hypothesis_explains_is_loose_and_says_by_how_much() -> None:
    form = next(form for form in PROBES if form.name == "softmax over 10")
    exact = seen(form, "wide")[0]
    told = judged(form, [[exact * np.float16(1.01)], [exact]], {})
    assert told.status == "loose" and not told.repeats
    nearest, worse = told.hypotheses[0], told.hypotheses[-1]
    assert 0.005 < told.evidence[nearest].difference < 0.02 < told.error * 10
    assert told.evidence[worse].error >= told.evidence[nearest].error


def test_probes_have_names_of_their_own_and_every_rule_has_hypotheses() -> None:
    assert len({form.name for form in PROBES}) == len(PROBES) > len(FORMS)
    assert all(hypotheses_of(form.rule) for form in PROBES)
    assert {form.rule for form in PROBES} > {"conversion", "fusion:attention", "MatMul", "LSTM"}
