"""The work of a job grows as its model does: calls are counted, which no busy machine stretches."""

from __future__ import annotations

import cProfile
import pstats

from halfwise.verbs.fix.fix import fix
from tests.models.zoo import transformer


def _calls_per_node(layers: int) -> float:
    """Of all functions, in one job; a step over all pairs of nodes makes as many more of them as there are nodes."""
    zoo = transformer(layers)
    profile = cProfile.Profile()
    profile.runcall(fix, zoo.model, zoo.inputs, tolerance=[f"*:rel_l2<={zoo.tolerance}"])
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls / len(zoo.model.graph.node)


def test_a_model_four_times_as_deep_makes_four_times_the_calls() -> None:
    fix(transformer(1).model, transformer(1).inputs)  # imports, and what is kept between jobs
    assert _calls_per_node(8) < 1.02 * _calls_per_node(2)
