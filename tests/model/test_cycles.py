"""A graph that waits for itself is refused with the nodes to look at."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.model.model import load
from tests.models.build import model, node, value, weight


def test_the_nodes_of_the_cycle_are_named_and_no_others() -> None:
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
    assert str(caught.value) == "the model: the graph has a cycle of 'n1', 'n2', 'n3'; export the model again"
