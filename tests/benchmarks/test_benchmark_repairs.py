"""The benchmark of repairs: what it says of a tool, and of a model that was fine before."""

from __future__ import annotations

import math

import pytest

from benchmarks import repairs
from benchmarks.contest import Entry
from benchmarks.peers.task import Answer
from benchmarks.strict import Census, Errors
from tests.models.zoo import SHAPES


def test_options_are_understood() -> None:
    options = repairs.parser().parse_args(["--tables", "harmless", "--repeats", "1"])
    assert (options.tables, options.repeats) == (["harmless"], 1)
    with pytest.raises(SystemExit):
        repairs.parser().parse_args(["--tables", "none"])


def test_what_is_said_of_a_tool() -> None:
    case = repairs._case("healthy", SHAPES["healthy_mlp"]())
    made = {
        "3": Entry("a", Answer(), 1, Errors(0.001, 1.0), Census(4, 3)),
        "0, missed 50 times": Entry("a", Answer(), 1, Errors(0.5, 1.0), Census(0, 0)),
        "0, missed (not finite)": Entry("a", Answer(), 1, Errors(math.inf, 1.0), Census(0, 0)),
        "no model (gave up)": Entry("a", Answer(problem="gave up"), 1),
    }
    for said, entry in made.items():
        assert repairs._said(entry, case) == said


def test_a_model_that_is_fine_stays_as_it_is_and_one_that_is_not_is_left_out() -> None:
    healthy = repairs._compare(repairs._case("healthy", SHAPES["healthy_mlp"]()))
    assert healthy is not None
    assert (healthy.ratio, healthy.places, healthy.every) == (1.0, 0, None)
    assert repairs._compare(repairs._case("sick", SHAPES["layer_norm_overflow"]())) is None
