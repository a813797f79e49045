"""A graph that waits for itself is refused with the nodes to look at."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.model.model import load
from tests.models.build import model, node, value, weight
from tests.support.says import Says


def test_the_nodes_of_the_cycle_are_named_and_no_others(says: Says) -> None:
    """Neither what leads into it nor what comes after."""
    given = model(
        [
            *(node("Relu", "x", "a"), node("Add", "a d", "b"), node("Mul", "b w", "c")),
            *(node("Abs", "c", "d"), node("Neg", "d", "y")),
        ],
        [value("x", shape=(4,))],
        [value("y", shape=(4,))],
        [weight("w", np.ones(4, np.float32))],
    )
    for at, each in enumerate(given.graph.node):
        each.name = f"n{at}"
    with pytest.raises(InputError) as caught:
        load(given)
    says(caught.value)
