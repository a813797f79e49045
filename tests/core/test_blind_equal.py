"""A function that calls equal outputs too far off is refused: no model could keep its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.core.measures.blind import check_equal
from tests.models.build import model, node, value

ANSWER = {"y": np.ones(3, np.float32)}


def likeness(reference: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    return float(np.mean(reference["y"] == other["y"]))


def test_a_likeness_in_place_of_an_error_is_refused_before_the_search() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", shape=(4,))], [value("y", shape=(4,))])
    feeds = [{"x": np.arange(4, dtype=np.float32)}]
    with pytest.raises(InputError, match="gives 1 for equal outputs"):
        fix(proto, feeds, metric=likeness, tolerance=["metric<=0.1"])
    assert fix(proto, feeds, metric=lambda a, b: 1 - likeness(a, b), tolerance=["metric<=0.1"]).met


def test_what_is_no_number_is_no_error_either() -> None:
    with pytest.raises(InputError, match="gives nan for equal outputs"):
        check_equal(lambda a, b: math.nan, 0.1, ANSWER)
    check_equal(lambda a, b: 0.1, 0.1, ANSWER)
    check_equal(lambda a, b: 1 / 0, 0.1, ANSWER)
