"""The diagnosis: shares lie with the node that makes the rounding, sum to one, and are there only after a search."""

from __future__ import annotations

import math

import pytest

from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.stepper import Stepper
from halfwise.search.sensitivity import sensitivity_by_output
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from tests.models.report_models import healthy_result, overflow_result
from tests.models.zoo import detr_head, norm_log_head


@pytest.fixture(scope="module")
def boxes() -> FixResult:
    zoo = detr_head()
    return fix(zoo.model, zoo.inputs[:4], tolerance=["*:rel_l2<=0.002"], repairs=("none",))


def test_the_parts_make_a_whole_and_the_large_ones_are_what_is_kept(boxes: FixResult) -> None:
    assert math.isclose(sum(boxes.shares.values()), 1.0)
    worst = sorted(boxes.shares, key=lambda name: -boxes.shares[name])[:2]
    assert all("position" in name for name in worst)  # the large coordinates
    assert set(worst) <= set(boxes.fp32_nodes)
    assert sum(boxes.shares.get(name, 0.0) for name in boxes.fp32_nodes) > 0.5


def test_a_break_is_laid_to_the_node_that_makes_the_infinity() -> None:
    found = overflow_result().measured.diagnosis
    assert found is not None and {"/log_sum_exp/Exp", "/area/ReduceSum"} <= found.breaking
    assert "/log_sum_exp/Log" not in found.breaking


def test_of_a_repaired_model_the_one_as_given_is_diagnosed() -> None:
    zoo = norm_log_head()
    result = fix(zoo.model, zoo.inputs[:4])
    assert result.measured.diagnosis is not None and result.plan.repairs
    assert {site.name for site in result.measured.diagnosis.sites.all} >= set(result.shares)
    assert "/log_sum_exp/Exp" in result.measured.diagnosis.breaking
    assert "/log_sum_exp/Exp" not in {site.name for site in result.sites.all}
    assert result.measured.diagnosis.ranges["/area/ReduceSum_output_0"].max_abs > 65_504


def test_where_nothing_was_searched_there_is_none() -> None:
    assert healthy_result().measured.diagnosis is None and healthy_result().shares == {}


def test_all_outputs_share_the_walk_forwards() -> None:
    result = overflow_result()
    executed = list[float]()
    feed, outputs = widen_feeds(result.samples.search[0]), list(result.fixed)[:2]
    for names in ([outputs[0]], [outputs[1]], outputs):
        stepper = Stepper(Emulator())
        assert [name for name, _ in sensitivity_by_output(stepper, result.sites, feed, names)] == names
        executed.append(stepper.executed)
    assert executed[2] <= executed[0] + executed[1] - len(result.sites.all)
