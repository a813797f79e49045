"""The Python functions with arguments of the wrong kind, and with one text where many are taken."""

from __future__ import annotations

from typing import Any

import pytest

import halfwise
from halfwise.core.errors import InputError
from tests.models.zoo import SHAPES

HEALTHY = SHAPES["healthy_mlp"]()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": [3]}, "tolerance 3: write 'OUTPUT:METRIC<=VALUE'"),
        ({"tolerance": 0.01}, "tolerance 0.01: write 'OUTPUT:METRIC<=VALUE'"),
        ({"inputs": 5}, "inputs are of type int: give paths, or mappings from names to arrays"),
        ({"repairs": "nope"}, "there is no rule 'nope'"),
        ({"target": 5}, "target 5 is not a text"),
    ],
)
def test_what_is_not_an_answer_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        halfwise.fix(HEALTHY.model, **{"inputs": HEALTHY.inputs[:2], **options})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_one_text_is_as_good_as_a_list_of_one() -> None:
    result = halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], tolerance="rel_l2<=0.5", repairs="none")
    assert result.met and result.plan.tolerance.bounds[0].value == 0.5


def test_what_the_package_shows_is_its_interface() -> None:
    assert [name for name in dir(halfwise) if not name.startswith("_")] == sorted(halfwise.__all__)
