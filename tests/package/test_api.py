"""The Python functions with arguments of the wrong kind, and with one text where many are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import halfwise
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from tests.models.zoo import SHAPES
from tests.support.says import Says

HEALTHY = SHAPES["healthy_mlp"]()


@pytest.mark.parametrize(
    "options",
    [
        {"tolerance": [3]},
        {"tolerance": 2},
        {"inputs": 5},
        {"repairs": "nope"},
        {"target": 5},
        {"io_types": "fp12"},
        {"io_types": 16},
        {"plan": 5},
        {"plan": "none.json"},
        {"margin": "a"},
        {"margin": float("nan")},
        {"out": 5},
        {"out": ""},
        {"layers": 5},
        {"keep": 5},
        {"force": [5]},
        {"io_formats": [5]},
        {"repairs": 5},
        {"device": "tpu"},
        {"time_limit_s": -1},
        {"time_limit_s": float("inf")},
        {"time_limit_s": "5"},
    ],
)
def test_what_is_not_an_answer_is_refused_in_one_line(options: dict[str, Any], says: Says) -> None:
    with pytest.raises(InputError) as caught:
        halfwise.fix(HEALTHY.model, **{"inputs": HEALTHY.inputs[:2], **options})
    says(caught.value)
    assert "\n" not in str(caught.value)


def test_one_text_is_as_good_as_a_list_of_one() -> None:
    result = halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], tolerance="rel_l2<=0.5", repairs="none")
    assert result.met and result.plan.tolerance.bounds[0].value == 0.5


def test_one_selector_is_as_good_as_a_list_of_one() -> None:
    op = next(node.op_type for node in HEALTHY.model.graph.node if node.op_type != "Constant")
    wide = halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], keep=f"op:{op}")
    assert (
        wide.fp32_nodes
        and wide.fp32_nodes == halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], keep=[f"op:{op}"]).fp32_nodes
    )
    assert not halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], force=f"op:{op}").fp32_nodes
    with pytest.raises(InputError, match="hwc8"):  # the whole word, and not its first letter
        halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], io_formats="hwc8", target="trt-10.9", io_types="fp16")


def test_a_format_is_given_by_its_name() -> None:
    result = halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], io_types="fp16")
    assert result.plan.io_types is Format.FP16


def test_a_plan_is_given_by_its_file(tmp_path: Path) -> None:
    first = halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], out=tmp_path)
    for path in (first.plan_path, str(first.plan_path)):
        again = halfwise.fix(HEALTHY.model, HEALTHY.inputs[:2], plan=path)
        assert again.plan.nodes == first.plan.nodes and again.plan.target == first.plan.target


def test_what_the_package_shows_is_its_interface() -> None:
    assert [name for name in dir(halfwise) if not name.startswith("_")] == sorted(halfwise.__all__)
