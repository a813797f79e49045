"""Why a node stays in FP32, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.precision.plan import PlannedNode
from halfwise.report.story import tell
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import SHAPES


@pytest.mark.parametrize(
    ("ratio", "told"), [(1.004, "just above the allowed one"), (1.06, "1.1 times the allowed one")]
)
def test_an_error_at_the_allowed_one_is_not_told_as_1_time(ratio: float, told: str) -> None:
    zoo = SHAPES["large_coordinates"]()
    result = fix(zoo.model, zoo.inputs, tolerance=[f"*:rel_l2<={zoo.tolerance}"], repairs=("none",))
    planned = replace(result.plan.nodes[0], numbers={**result.plan.nodes[0].numbers, "error_without": ratio})
    assert tell(planned, None, {}).measured.endswith(f"the error is {told}.")


def test_a_cast_of_large_whole_numbers_is_told_by_its_result() -> None:
    """Sums of a product of quantised data, whose range nobody looks at; the node was said to compute values."""
    planned = PlannedNode("c", "Cast", Format.FP32, Reason.OVERFLOW, (), numbers={"max_abs": 88588.0})
    assert tell(planned, None, {}).cause.startswith("The result reaches 88,588, beyond")
