"""Plans are edited by hand: parameters that are not the rule's end in one line that names the repair."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from halfwise import InputError, fix
from halfwise.model.model import Model, load
from halfwise.precision.plan_document import RepairRecord
from halfwise.repair.planned import reapplied
from tests.models.zoo import SHAPES
from tests.support.says import Says

NAMES = ("layer_norm_overflow", "mask_minus_1e9", "subnormal_weights", "log_sum_exp_by_hand", "l2_norm_of_padding")
VALUES: tuple[Any, ...] = (None, "nosuch", 5, -1.5, [], {}, [["x"]], {"x": 3})


def edits(parameters: Any) -> list[Any]:
    """The same with one key gone, or with one value of another kind, at any depth."""
    found: list[Any] = []
    if isinstance(parameters, dict):
        for key, value in parameters.items():
            found.append({name: each for name, each in parameters.items() if name != key})
            found += [{**parameters, key: other} for other in (*VALUES, *edits(value))]
    elif isinstance(parameters, list):
        for index, value in enumerate(parameters):
            found += [[*parameters[:index], other, *parameters[index + 1 :]] for other in (*VALUES, *edits(value))]
    return found


def planned(name: str) -> tuple[Model, tuple[RepairRecord, ...]]:
    shape = SHAPES[name]()
    return load(shape.model), fix(shape.model, shape.inputs[:4]).plan.repairs


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_plan_holds_for_a_rule_is_applied_or_refused(name: str) -> None:
    model, repairs = planned(name)
    assert repairs
    refused = 0
    for index, entry in enumerate(repairs[:2]):
        for parameters in edits(json.loads(json.dumps(dict(entry.parameters)))):
            edited = msgspec.structs.replace(entry, parameters=parameters)
            try:
                reapplied(model, [*repairs[:index], edited, *repairs[index + 1 :]])
            except InputError as error:
                refused += 1
                assert f"the plan's repair {entry.rule}" in str(error) and "run fix without --plan" in str(error)
    assert refused or not any(entry.parameters for entry in repairs)


def test_another_rule_s_parameters_are_refused(says: Says) -> None:
    model, (entry, *_) = planned("layer_norm_overflow")
    other = msgspec.structs.replace(entry, rule="HW401", parameters={})
    with says.raises(InputError):
        reapplied(model, [other])


def test_the_same_repair_twice_is_refused(says: Says) -> None:
    model, repairs = planned("layer_norm_overflow")
    with says.raises(InputError):
        reapplied(model, [*repairs, *repairs])
