"""The arithmetic of the HTML report's numbers and pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from halfwise.core.counting import count
from halfwise.core.reasons import Reason
from halfwise.core.wording import counted
from halfwise.model.model import load
from halfwise.report import numbers
from halfwise.report.axis import HIGH, LOW, ZONES, bar, place
from halfwise.report.html.bars import columns
from halfwise.report.html.culprits import culprits
from halfwise.report.html.curve import curve
from halfwise.report.html.graph import graph_data
from halfwise.report.html.histogram import weigh
from halfwise.report.html.meter import meter
from halfwise.report.html.names import Names
from halfwise.report.html.panel import with_details
from halfwise.report.html.places import Places
from halfwise.report.text import safe
from halfwise.verbs.fix.fix import fix
from tests.models.report_models import (
    healthy_result,
    overflow_result,
    plan_of,
    repaired_result,
)
from tests.models.zoo import SHAPES
from tests.support.pages import shown

# -- its arithmetic ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (845_956.3, "845,956"),
        (0.00102, "0.00102"),
        (6.1e-5, "6.1e−5"),
        (1e-12, "1e−12"),
        (-1e9, "−1e9"),
        (3.4028e38, "3.4e38"),
        (21.325, "21.3"),
        (999.9, "1,000"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_have_sensible_digits(value: float, text: str) -> None:
    assert numbers.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0%"), (1e-9, "<0.01%"), (0.00044, "0.044%"), (0.5, "50%"), (0.99999, ">99.99%"), (1, "100%")],
)
def test_a_share_is_never_rounded_to_none_or_all(value: float, text: str) -> None:
    assert numbers.percent(value) == text


def test_units() -> None:
    assert numbers.byte_size(999) == "999 bytes" and numbers.byte_size(1_234_567) == "1.23 MB"
    assert numbers.seconds(0.0591) == "59 ms" and numbers.seconds(4.44) == "4.4 s" and numbers.seconds(600) == "10 min"
    assert counted(1, "node") == "1 node" and counted(1200, "node") == "1,200 nodes"
    assert numbers.factor(8.24) == "8.2 times" and numbers.factor(985.3) == "985 times"


def test_the_zones_fill_the_axis_and_end_where_fp16_does() -> None:
    assert ZONES[0].start == 0 and ZONES[-1].end == 1
    assert all(a.end == b.start for a, b in pairwise(ZONES))
    assert [z.start for z in ZONES[1:]] == [place(2.0**-24), place(2.0**-14), place(65504.0)]


@given(st.floats(1e-45, 3e38), st.floats(1e-45, 3e38))
def test_places_on_the_axis_keep_the_order(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0 <= place(low) <= place(high) <= 1
    drawn = bar(low, high)
    assert drawn is not None
    assert (drawn.below, drawn.above) == (low < 2.0**LOW, high > 2.0**HIGH)


def test_what_is_all_zero_has_no_bar() -> None:
    assert bar(0.0, 0.0) is None


@given(st.lists(st.tuples(st.just("x"), st.floats(0, 1e9) | st.just(math.inf)), min_size=1, max_size=4))
def test_a_meter_puts_what_is_within_left_of_the_line(loads: list[tuple[str, float]]) -> None:
    drawn = meter(loads)
    for mark, (_, error) in zip(drawn.marks, loads, strict=True):
        assert 0 <= mark.place <= 1 and mark.clear == (error <= 1)
        assert mark.place <= drawn.allowed if error <= 1 else mark.place >= drawn.allowed
    assert (drawn.infinite is not None) == any(math.isinf(error) for _, error in loads)


def test_the_curve_has_every_measured_point_and_the_plan() -> None:
    result = overflow_result()
    drawn = curve(result)
    assert drawn is not None
    assert {p.nodes for p in drawn.points} == {p.nodes for p in result.curve if p.measured is not None}
    assert drawn.chosen.nodes == len(result.plan.nodes) and drawn.chosen.ratio == result.verdict.ratio
    assert {(p.nodes, p.cost) for p in drawn.points} == {(p.nodes, p.cost) for p in result.curve}
    by_cost = sorted(drawn.points, key=lambda p: p.cost)
    assert [p.x for p in by_cost] == sorted(p.x for p in drawn.points) and by_cost[-1].cost > by_cost[-1].nodes
    as_many = [p.cost for p in result.curve if p.nodes == drawn.chosen.nodes]  # none where a second search added some
    assert not as_many or pytest.approx(drawn.chosen.cost) in as_many
    assert by_cost[0].label == f"{by_cost[0].nodes:,}"
    assert all(p.y < drawn.allowed for p in drawn.points if not p.clear)
    assert all(p.y >= drawn.allowed for p in drawn.points if p.clear)
    without_curve = replace(result, measured=replace(result.measured, curve=()))
    assert curve(healthy_result()) is None and curve(without_curve) is None  # shown where it was asked for


@given(st.lists(st.floats(width=32), min_size=1, max_size=200))
def test_the_histogram_agrees_with_the_counts_of_formats(values: list[float]) -> None:
    array = np.array(values, np.float32)
    weight = numpy_helper.from_array(array, "w")
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [array.size])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [array.size])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", inputs, outputs, [weight])
    found = weigh(load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    expected, total = count(array), found.total
    assert (total.count, total.subnormal, total.underflow, total.overflow, total.nonfinite) == (
        expected.count, expected.subnormal, expected.underflow, expected.overflow, expected.nonfinite
    )  # fmt: skip
    assert found.zeros == np.count_nonzero(array == 0)
    assert sum(found.bins.values()) + found.zeros + total.nonfinite == array.size
    assert bool(found.worst) == bool(total.affected)
    finite = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    for exponent, many in found.bins.items():
        if exponent > -127:
            assert many == np.count_nonzero((finite >= 2.0**exponent) & (finite < 2.0 ** (exponent + 1)))
    drawn = columns(found)
    assert all(0 <= c.x < 1 and 0 < c.height <= 1 for c in drawn.bars)


def test_every_result_that_ran_has_its_histogram() -> None:
    """Its letters are logarithms of counts, from the first power of two on."""
    result, names = overflow_result(), Names()
    data = with_details(graph_data(result, names), result, weigh(result.model), names)
    assert set(data["results"]) == {
        site.index for site in result.sites.all if any(v.name in result.measured.powers for v in site.node.outputs)
    }
    for places in data["results"].values():
        for at in places:
            name, _, count, first, code = data["bins"][at]
            ranges = result.measured.ranges[names.table[name]]
            assert 0 < count <= ranges.count and len(code.strip("0")) == len(code)
            assert 2.0**first >= ranges.min_abs / 2 and 2.0 ** (first + len(code) - 1) <= ranges.max_abs


def test_the_graph_has_a_cast_on_each_edge_where_the_format_changes() -> None:
    result = overflow_result()
    names = Names()
    data = graph_data(result, names)
    kept = {node.name for node in result.plan.nodes}
    states = {names.table[name]: state for name, _, state in data["nodes"]}
    assert {name for name, state in states.items() if state == 1} == kept
    position = {names.table[name]: at for at, (name, _, _) in enumerate(data["nodes"])}
    casts = {(a, b): kind for a, b, kind, _ in data["edges"]}
    for site in result.sites.all:
        for value in site.node.inputs:
            maker = value.producer() if value is not None else None
            if maker is None:
                continue
            ends = ((maker.name or "") in kept, site.name in kept)
            kind = casts[position[maker.name or ""], position[site.name]]
            assert kind == {(False, True): 2, (True, False): 1}.get(ends, 0)


def test_a_node_inside_control_flow_hangs_on_its_holder() -> None:
    zoo = SHAPES["if_with_norms"]()
    result = fix(zoo.model, zoo.inputs[:2], plan=plan_of({}))
    data = graph_data(result, Names())
    holds = [(a, b) for a, b, kind, _ in data["edges"] if kind == 3]
    assert holds
    for holder, inner in holds:
        assert result.sites.all[holder].op == "If" and result.sites.all[inner].nested


def test_what_breaks_is_drawn_where_shares_were_not_measured() -> None:
    result = overflow_result()
    diagnosis = replace(result.measured.diagnosis, shares={})
    page = shown(replace(result, measured=replace(result.measured, diagnosis=diagnosis)))
    drawn = {page.data["names"][row[1]] for row in page.data["shares"]}
    assert drawn == {safe(name) for name in diagnosis.breaking}
    assert "was not measured" in page.text and "scale is logarithmic" not in page.text


def test_what_overflows_is_no_rounding_where_shares_were_not_measured() -> None:
    result = repaired_result()
    diagnosis = replace(result.measured.diagnosis, shares={}, breaking=frozenset())
    bare = replace(result, measured=replace(result.measured, diagnosis=diagnosis))
    names = Names()
    before, now = ({c.name: c.why for c in culprits(each, names, Places(each))} for each in (result, bare))
    breaking, told = ({name for name, why in each.items() if why is Reason.OVERFLOW} for each in (before, now))
    assert told and told <= breaking
