"""What a tolerance means: how it is written, what it covers, and the one number that drives a search."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from halfwise.core.errors import InputError
from halfwise.core.metrics import ERRORS, LIKENESSES, Metrics
from halfwise.core.tolerance import Bound, Tolerance
from tests.support.says import Says

PERFECT = Metrics(0.0, 0.0, 0.0, 1.0, math.inf, 1.0, 1.0)
OUTPUTS = ("boxes", "scores", "labels")
FLOATS = ("boxes", "scores")
NAMES = "rel_l2, max_abs, rms (<=), cosine, psnr, topk, exact, found (>=), or metric (<=, with --metric)"


def perfect(**changed: Metrics) -> dict[str, Metrics]:
    return {name: changed.get(name, PERFECT) for name in OUTPUTS}


def off(**fields: float) -> Metrics:
    return replace(PERFECT, **fields)


def bounds(*texts: str, user_metric: bool = False) -> dict[str, float]:
    return Tolerance.parse(texts, OUTPUTS, FLOATS, user_metric=user_metric).to_json()


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("boxes:rel_l2<=0.002", Bound("boxes", "rel_l2", "<=", 0.002)),
        ("*:rel_l2<=0.002", Bound("*", "rel_l2", "<=", 0.002)),
        ("rel_l2<=2e-3", Bound("*", "rel_l2", "<=", 0.002)),
        (" boxes : cosine >= 0.99 ", Bound("boxes", "cosine", ">=", 0.99)),
        ("/head/Add:0:max_abs<=1", Bound("/head/Add:0", "max_abs", "<=", 1.0)),
        ("a<=b:psnr>=40", Bound("a<=b", "psnr", ">=", 40.0)),
        ("rel_l2:rms<=0", Bound("rel_l2", "rms", "<=", 0.0)),
        ("metric<=0.05", Bound("*", "metric", "<=", 0.05)),
    ],
)
def test_a_bound_as_written(text: str, bound: Bound) -> None:
    assert Bound.parse(text) == bound


@pytest.mark.parametrize(
    "text",
    [
        "boxes",
        "rel_l2<0.1",
        "boxes<=0.1",
        "boxes:iou>=0.1",
        "boxes:rel_l2<=1%",
        "rel_l2<=",
        "rel_l2<=nan",
        "psnr>=inf",
        "a:rms<=-1",
        "a:cosine>=1.5",
        "rel_l2>=0.1",
        "cosine<=0.1",
        "boxes:metric<=0.1",
    ],
)
def test_what_is_wrong_with_a_bound(text: str, says: Says) -> None:
    with pytest.raises(InputError) as caught:
        Bound.parse(text)
    says(caught.value)


@pytest.mark.parametrize(
    ("texts", "user_metric"),
    [(["box:rel_l2<=0.1"], False), (["rms<=1", "*:rms<=2"], False), ([], True), (["metric<=1"], False)],
)
def test_what_is_wrong_with_a_tolerance(texts: list[str], user_metric: bool, says: Says) -> None:
    with pytest.raises(InputError) as caught:
        Tolerance.parse(texts, OUTPUTS, FLOATS, user_metric=user_metric)
    says(caught.value)


def test_many_outputs_are_not_all_listed() -> None:
    with pytest.raises(InputError, match=r"'o19' and 5 more$"):
        Tolerance.parse(["x:rms<=1"], [f"o{i}" for i in range(25)], [])


# -- what the default still covers ------------------------------------------------------------------------------------


def test_the_default() -> None:
    assert Tolerance.default().to_json() == {"*:rel_l2": 0.01, "*:exact": 0.999}
    assert bounds() == Tolerance.default().to_json()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["rel_l2<=0.002"], {"*:rel_l2": 0.002, "*:exact": 0.999}),
        (["cosine>=0.99"], {"*:cosine": 0.99, "*:exact": 0.999}),
        (["exact>=1"], {"*:exact": 1.0, "*:rel_l2": 0.01}),
        (["boxes:max_abs<=0.5"], {"boxes:max_abs": 0.5, "scores:rel_l2": 0.01, "*:exact": 0.999}),
        (["labels:max_abs<=1"], {"labels:max_abs": 1.0, "*:rel_l2": 0.01}),
        (["rel_l2<=0.002", "boxes:rel_l2<=0.1"], {"*:rel_l2": 0.002, "boxes:rel_l2": 0.1, "*:exact": 0.999}),
    ],
)
def test_a_bound_replaces_the_default_where_it_speaks(texts: list[str], expected: dict[str, float]) -> None:
    assert bounds(*texts) == expected


@pytest.mark.parametrize("stated", [0.02, "0.02", "2%", " 2e-2 ", "rel_l2=0.02"])
def test_a_number_alone_is_a_relative_error(stated: Any) -> None:
    assert Tolerance.parse([stated], ["y"], ["y"]).to_json() == {"*:rel_l2": 0.02, "*:exact": 0.999}
    assert Tolerance.parse(stated, ["y"], ["y"]) == Tolerance.parse([stated], ["y"], ["y"])


@pytest.mark.parametrize("stated", ["2", 2, -0.1, "nan", True])
def test_a_number_that_is_no_relative_error_is_refused(stated: Any) -> None:
    with pytest.raises(InputError, match="max_abs"):
        Tolerance.parse([stated], ["y"], ["y"])


def test_a_plain_equals_sign_is_read_in_the_metrics_direction() -> None:
    assert [Bound.parse(text).op for text in ("boxes:max_abs=0.5", "cosine=0.99")] == ["<=", ">="]


def test_the_users_metric_replaces_every_default() -> None:
    assert bounds("metric<=0.1", user_metric=True) == {"*:metric": 0.1}
    assert bounds("metric<=0.1", "boxes:rms<=1", user_metric=True) == {"*:metric": 0.1, "boxes:rms": 1.0}


# -- load and verdict -------------------------------------------------------------------------------------------------


def test_perfect_outputs_have_no_load() -> None:
    assert Tolerance.default().ratio(perfect(), FLOATS) == 0.0


@pytest.mark.parametrize(
    ("text", "value", "load"),
    [
        ("rel_l2<=0.01", 0.005, 0.5),
        ("rel_l2<=0.01", 0.03, 3.0),
        ("rel_l2<=0.01", math.inf, math.inf),
        ("rel_l2<=0.01", math.nan, math.inf),
        ("max_abs<=0", 0.0, 0.0),
        ("max_abs<=0", 1e-9, math.inf),
        ("cosine>=0.99", 0.98, 2.0),
        ("topk>=0.9", 0.95, 0.5),
        ("exact>=1", 1.0, 0.0),
        ("exact>=1", 0.999, math.inf),
        ("exact>=0", 0.0, 0.0),
        ("psnr>=40", 20.0, 10.0),
        ("psnr>=40", 60.0, 0.1),
        ("psnr>=40", math.inf, 0.0),
        ("psnr>=40", -math.inf, math.inf),
        ("psnr>=40", -1e9, math.inf),
        ("metric<=0.5", 1.0, 2.0),
        ("metric<=0.5", -1.0, 0.0),
    ],
)
def test_the_load_of_a_value(text: str, value: float, load: float) -> None:
    assert Bound.parse(text).ratio(value) == pytest.approx(load)


METRIC_RANGES = {
    **{name: (st.floats(0, 1e9), st.floats(0, 1e9)) for name in (*ERRORS, "metric")},
    "cosine": (st.floats(-1, 1), st.floats(-1, 1)),
    "topk": (st.floats(0, 1), st.floats(0, 1)),
    "exact": (st.floats(0, 1), st.floats(0, 1)),
    "psnr": (st.floats(-300, 300), st.floats(-300, 300)),
}
cases = st.sampled_from(sorted(METRIC_RANGES)).flatmap(
    lambda name: st.tuples(st.just(name), METRIC_RANGES[name][0], METRIC_RANGES[name][1], METRIC_RANGES[name][1])
)


@given(cases)
def test_load_is_at_most_1_where_the_bound_holds_and_grows_as_the_value_gets_worse(
    case: tuple[str, float, float, float],
) -> None:
    metric, allowed, first, second = case
    bound = Bound.of("*", metric, allowed)
    better, worse = sorted((first, second), reverse=metric in LIKENESSES)
    assert bound.ratio(better) <= bound.ratio(worse)
    for value in (first, second, allowed, math.nextafter(allowed, math.inf), math.nextafter(allowed, -math.inf)):
        holds = value >= allowed if metric in LIKENESSES else value <= allowed
        assert (bound.ratio(value) <= 1.0) == holds


def test_every_float_output_is_held_to_a_bound_on_star() -> None:
    tolerance = Tolerance.parse(["rel_l2<=0.01"], OUTPUTS, FLOATS)
    assert tolerance.ratio(perfect(scores=off(rel_l2=0.02)), FLOATS) == 2.0
    assert tolerance.ratio(perfect(labels=off(rel_l2=9.0)), FLOATS) == 0.0
    assert tolerance.ratio(perfect(labels=off(exact=0.998)), FLOATS) == pytest.approx(2.0)
    assert tolerance.ratio(perfect(boxes=off(exact=0.0)), FLOATS) == 0.0


def test_a_named_bound_stands_in_for_star_on_the_same_metric_and_adds_to_others() -> None:
    tolerance = Tolerance.parse(["rel_l2<=0.01", "boxes:rel_l2<=0.1", "scores:max_abs<=1"], OUTPUTS, FLOATS)
    assert tolerance.ratio(perfect(boxes=off(rel_l2=0.05)), FLOATS) == 0.5
    assert tolerance.ratio(perfect(scores=off(rel_l2=0.05)), FLOATS) == pytest.approx(5.0)
    assert tolerance.ratio(perfect(scores=off(max_abs=3.0)), FLOATS) == 3.0


def test_a_new_non_finite_value_is_always_a_miss() -> None:
    tolerance = Tolerance.parse(["boxes:topk>=0"], OUTPUTS, FLOATS)
    for name in OUTPUTS:
        assert tolerance.ratio(perfect(**{name: off(nonfinite=1)}), FLOATS) == math.inf
    verdict = tolerance.verdict(perfect(boxes=off(nonfinite=1), scores=off(nonfinite=7)), FLOATS)
    assert (verdict.met, verdict.worst_output, verdict.metric) == (False, "scores", "nonfinite")
    assert (verdict.value, verdict.allowed, verdict.ratio) == (7.0, 0.0, math.inf)


def test_the_verdict_names_the_bound_nearest_to_failing() -> None:
    tolerance = Tolerance.parse(["rel_l2<=0.01", "boxes:max_abs<=2"], OUTPUTS, FLOATS)
    verdict = tolerance.verdict(perfect(boxes=off(rel_l2=0.004, max_abs=1.0), scores=off(rel_l2=0.0025)), FLOATS)
    assert (verdict.met, verdict.worst_output, verdict.metric) == (True, "boxes", "max_abs")
    assert (verdict.value, verdict.allowed, verdict.ratio) == (1.0, 2.0, 0.5)
    verdict = tolerance.verdict(perfect(boxes=off(max_abs=1.0), scores=off(rel_l2=0.02)), FLOATS)
    assert (verdict.met, verdict.worst_output, verdict.metric) == (False, "scores", "rel_l2")


def test_the_users_metric_in_the_verdict() -> None:
    tolerance = Tolerance.parse(["metric<=0.1"], OUTPUTS, FLOATS, user_metric=True)
    assert tolerance.uses_user_metric and not Tolerance.default().uses_user_metric
    verdict = tolerance.verdict(perfect(boxes=off(rel_l2=5.0)), FLOATS, 0.05)
    assert (verdict.met, verdict.worst_output, verdict.metric, verdict.ratio) == (True, "*", "metric", 0.5)
    with pytest.raises(ValueError, match="was not passed"):
        tolerance.ratio(perfect(), FLOATS)


def test_a_bound_on_an_output_that_was_not_measured_is_no_pass(says: Says) -> None:
    with says.raises(InputError):
        Tolerance.from_json({"gone:rms": 1.0}).ratio(perfect(), FLOATS)


# -- JSON -------------------------------------------------------------------------------------------------------------

names = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=8)
written = st.builds(
    Bound.of,
    names,
    st.sampled_from([*ERRORS, *LIKENESSES]),
    st.floats(0, 1),
)


@given(st.lists(written, min_size=1, unique_by=lambda bound: bound.key))
def test_the_tolerance_read_back_is_the_one_written(written_bounds: list[Bound]) -> None:
    tolerance = Tolerance(tuple(written_bounds))
    assert Tolerance.from_json(json.loads(json.dumps(tolerance.to_json()))) == tolerance


@pytest.mark.parametrize(
    "document",
    [[], {}, {"rel_l2": 0.1}, {"*:rel_l2": "0.1"}, {"*:rel_l2": True}, {"*:iou": 0.1}, {"*:rel_l2": math.nan}],
)
def test_what_is_wrong_with_a_document(document: object, says: Says) -> None:
    with pytest.raises(InputError) as caught:
        Tolerance.from_json(document)
    says(caught.value)
