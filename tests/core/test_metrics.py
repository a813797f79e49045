"""Metrics against naive NumPy references, their answers at the edges, and the user's own function."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace

from halfwise.core import metrics as module
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.errors import InputError
from halfwise.core.metrics import ERRORS, LIKENESSES, Metrics, compare, is_float, is_number, worst
from halfwise.core.notes import Note, NoteKind
from halfwise.core.user_metric import load_metric
from tests.support.says import Says

NAN, INF = math.nan, math.inf
WORST = {"rel_l2": INF, "max_abs": INF, "rms": INF, "cosine": -1.0, "psnr": -INF}


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def pairs(elements: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=7)
    return shapes.flatmap(
        lambda shape: st.tuples(*[hnp.arrays(np.float32, shape, elements=elements) for _ in range(2)])
    )


finite = st.floats(-1e6, 1e6, width=32)
anything = st.one_of(st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.0, 2.0]), finite)


@given(pairs(finite))
def test_finite_values_against_a_naive_reference(pair: tuple[np.ndarray, np.ndarray]) -> None:
    r, o = (array.astype(np.float64) for array in pair)
    got = compare(*pair)
    rms = math.sqrt(np.mean((o - r) ** 2))
    norm = np.linalg.norm(r.reshape(-1))
    difference = np.linalg.norm((o - r).reshape(-1))
    assert got.max_abs == np.abs(o - r).max()
    assert got.rms == pytest.approx(rms, rel=1e-12)
    assert got.exact == np.mean(r == o)
    assert got.nonfinite == 0 and got.uncompared == ()
    if difference == 0:
        assert (got.rel_l2, got.cosine, got.psnr) == (0.0, 1.0, INF)
    elif norm == 0:
        assert (got.rel_l2, got.cosine, got.psnr) == (INF, 0.0, -INF)
    else:
        assert got.rel_l2 == pytest.approx(difference / norm, rel=1e-12)
        assert got.psnr == pytest.approx(20 * math.log10(np.abs(r).max() / rms), rel=1e-9, abs=1e-9)
        other_norm = np.linalg.norm(o.reshape(-1))
        naive = (r * o).sum() / (norm * other_norm) if other_norm else 0.0
        assert got.cosine == pytest.approx(naive, rel=1e-9, abs=1e-12)


@given(pairs(anything))
def test_places_that_are_not_finite_against_a_naive_reference(pair: tuple[np.ndarray, np.ndarray]) -> None:
    got = compare(*pair)
    nonfinite = conflicts = equal = 0
    for r, o in zip(*(array.reshape(-1).tolist() for array in pair), strict=True):
        same = r == o or (math.isnan(r) and math.isnan(o))
        equal += same
        conflicts += not same and not (math.isfinite(r) and math.isfinite(o))
        nonfinite += not same and not math.isfinite(o)
    assert got.nonfinite == nonfinite
    assert got.exact == equal / pair[0].size
    assert (got.rel_l2 == INF and got.cosine == -1.0 and got.psnr == -INF) or not conflicts
    assert not any(math.isnan(getattr(got, name)) for name in (*ERRORS, *LIKENESSES))


@given(pairs(anything), st.integers(1, 5))
def test_the_answer_does_not_hang_on_the_size_of_a_chunk(pair: tuple[np.ndarray, np.ndarray], chunk: int) -> None:
    whole = compare(*pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        pieces = compare(*pair)
    for name in ("rel_l2", "max_abs", "rms", "cosine", "psnr", "exact"):  # of tied columns, topk may choose any
        assert getattr(pieces, name) == pytest.approx(getattr(whole, name), rel=1e-9, abs=1e-12)
    assert pieces.nonfinite == whole.nonfinite


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=anything))
def test_an_output_is_equal_to_itself(array: np.ndarray) -> None:
    assert compare(array, array.copy()) == Metrics(0.0, 0.0, 0.0, 1.0, INF, 1.0, 1.0)


def test_known_answers() -> None:
    got = compare(f32(3, 4), f32(3, 5))
    assert got.rel_l2 == pytest.approx(0.2)
    assert got.max_abs == 1.0
    assert got.rms == pytest.approx(math.sqrt(0.5))
    assert got.cosine == pytest.approx(29 / (5 * math.sqrt(34)))
    assert got.psnr == pytest.approx(20 * math.log10(4 / math.sqrt(0.5)))
    assert got.exact == 0.5


@pytest.mark.parametrize(
    ("reference", "other", "nonfinite", "exact"),
    [
        (f32(1, NAN), f32(1, NAN), 0, 1.0),
        (f32(1, INF, -INF), f32(1, INF, -INF), 0, 1.0),
    ],
)
def test_the_same_non_finite_values_are_no_error(
    reference: np.ndarray, other: np.ndarray, nonfinite: int, exact: float
) -> None:
    assert compare(reference, other) == Metrics(0.0, 0.0, 0.0, 1.0, INF, 1.0, exact, nonfinite)


@pytest.mark.parametrize(
    ("reference", "other", "nonfinite"),
    [
        (f32(1, 2), f32(1, NAN), 1),
        (f32(1, 2), f32(-INF, INF), 2),
        (f32(1, INF), f32(1, -INF), 1),
        (f32(1, INF), f32(1, NAN), 1),
        (f32(1, NAN), f32(1, INF), 1),
        (f32(1, INF), f32(1, 65504), 0),
        (f32(1, NAN), f32(1, 0), 0),
    ],
)
def test_a_conflict_with_a_value_that_is_not_finite_is_as_bad_as_can_be(
    reference: np.ndarray, other: np.ndarray, nonfinite: int
) -> None:
    got = compare(reference, other)
    assert {name: getattr(got, name) for name in WORST} == WORST
    assert got.nonfinite == nonfinite


def test_agreed_non_finite_places_are_left_out_of_the_rest() -> None:
    kept = compare(f32(3, 4), f32(3, 5))
    got = compare(f32(3, NAN, 4, INF), f32(3, NAN, 5, INF))
    assert replace(got, exact=kept.exact, topk=kept.topk) == kept
    assert got.exact == 0.75


def test_another_shape_is_wholly_wrong() -> None:
    got = compare(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32))
    assert got.uncompared == (Note.of(NoteKind.OTHER_SHAPE, got=[3, 2], wanted=[2, 3]),)
    assert got.nonfinite == 0
    assert (got.exact, got.topk) == (0.0, 0.0)
    assert {name: getattr(got, name) for name in WORST} == WORST


def test_empty_outputs_are_equal() -> None:
    assert compare(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)).exact == 1.0
    assert compare(np.zeros((0, 4), np.float32), np.zeros((1, 4), np.float32)).rel_l2 == INF


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_other_float_types_are_measured_in_fp64(dtype: type) -> None:
    got = compare(np.array([3.0, 4.0], dtype), f32(3, 5))
    assert got.rel_l2 == pytest.approx(0.2)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_fp64_values_whose_squares_do_not_fit(size: float) -> None:
    got = compare(np.array([3.0, 4.0]) * size, np.array([3.0, 5.0]) * size)
    assert got.rel_l2 == pytest.approx(0.2)
    assert got.max_abs == pytest.approx(size)
    assert got.cosine == pytest.approx(29 / (5 * math.sqrt(34)))
    assert got.psnr == pytest.approx(20 * math.log10(4 / math.sqrt(0.5)))


def test_a_tiny_value_against_zero_is_no_equality() -> None:
    assert compare(np.zeros(2), np.array([0.0, 1e-200])).rel_l2 == INF
    assert compare(np.array([1.0, 0.0]), np.array([1.0, 1e-200])).max_abs == 1e-200


def test_fp64_of_opposite_sign_at_the_end_of_the_range() -> None:
    got = compare(np.array([1.7e308]), np.array([-1.7e308]))
    assert (got.rel_l2, got.cosine, got.nonfinite) == (2.0, -1.0, 0)


def test_integers_are_measured_too() -> None:
    got = compare(np.array([10, 20, 30, 255], np.uint8), np.array([10, 21, 30, 0], np.uint8))
    assert (got.exact, got.max_abs, got.nonfinite) == (0.5, 255.0, 0)


def test_large_integers_are_equal_only_if_they_are() -> None:
    big = 2**60
    assert compare(np.array([big, big]), np.array([big, big + 1])).exact == 0.5


def test_bools() -> None:
    got = compare(np.array([True, False, True, True]), np.array([True, True, True, True]))
    assert (got.exact, got.max_abs) == (0.75, 1.0)


def test_text_has_no_distance() -> None:
    reference = np.array(["cat", "dog"], object)
    assert compare(reference, reference.copy()).rel_l2 == 0.0
    got = compare(reference, np.array(["cat", "cow"], object))
    assert (got.exact, got.rel_l2, got.nonfinite) == (0.5, INF, 0)


def test_a_view_that_is_not_contiguous() -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert compare(base.T, np.ascontiguousarray(base.T)).rel_l2 == 0.0


# -- top k ------------------------------------------------------------------------------------------------------------


def brute_force_topk(r: np.ndarray, o: np.ndarray) -> float:
    """No ties: the sets are unique."""
    k = min(5, r.shape[-1] - 1)
    rows = zip(r.reshape(-1, r.shape[-1]), o.reshape(-1, r.shape[-1]), strict=True)
    shares = [len(set(np.argsort(a)[-k:]) & set(np.argsort(b)[-k:])) / k for a, b in rows]
    return float(np.mean(shares))


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 40), st.integers(3, 50), st.booleans())
def test_topk_without_ties(seed: int, rows: int, length: int, chunk: int, is_long: bool) -> None:
    rng = np.random.default_rng(seed)
    r, o = (rng.permuted(np.tile(np.arange(length, dtype=np.float32), (rows, 1)), axis=1) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        if is_long:  # looked at part by part
            patch.setattr(module, "_PART", 3)
            patch.setattr(module, "_LONG", 15)
        assert compare(r, o).topk == pytest.approx(brute_force_topk(r, o))


def test_a_tie_made_by_rounding_is_no_disagreement() -> None:
    reference = f32(9, 8, 7, 6, 5.001, 5, 1)
    rounded = f32(9, 8, 7, 6, 5, 5, 1)
    assert compare(reference, rounded).topk == 1.0
    assert compare(rounded, reference).topk == 1.0


def test_a_tie_does_not_hide_a_lost_entry() -> None:
    assert compare(f32(1, 2, 3), f32(3, 1, 1)).topk == 0.5  # {1, 2} against 0 and one of the tied
    assert compare(f32(0, 1), f32(1, 0)).topk == 0.0


def test_nan_is_not_the_largest() -> None:
    assert compare(f32(1, 2, 3), f32(1, 2, NAN)).topk == 0.5


@pytest.mark.parametrize("array", [np.float32(3), f32(3), np.ones((4, 1), np.float32)])
def test_topk_is_1_where_it_has_no_meaning(array: np.ndarray) -> None:
    assert compare(array, -array).topk == 1.0


# -- several samples, JSON --------------------------------------------------------------------------------------------


def test_worst_of_several_samples() -> None:
    a = Metrics(0.1, 1.0, 0.5, 0.9, 30.0, 1.0, 0.8, 0)
    why = Note.of(NoteKind.OTHER_SHAPE, got=[1], wanted=[2])
    b = Metrics(0.2, 0.5, 0.6, 0.99, INF, 0.4, 0.9, 3, uncompared=(why,))
    got = worst([a, b, replace(b, nonfinite=2)])
    assert got == Metrics(0.2, 1.0, 0.6, 0.9, 30.0, 0.4, 0.8, 5, uncompared=(why,))
    assert worst([a]) == a
    with pytest.raises(ValueError, match="no metrics"):
        worst([])


def test_json_is_strict() -> None:
    document = compare(f32(1, 2), f32(1, NAN)).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "rel_l2": "inf",
        "max_abs": "inf",
        "rms": "inf",
        "cosine": -1.0,
        "psnr": "-inf",
        "topk": 0.0,
        "exact": 0.5,
        "nonfinite": 1,
    }
    told = outputs_told({"y": compare(f32(1), f32(1, 2))})["y"].to_json()
    assert told["note"] == "shape (2,) instead of (1,)" and told["uncompared"][0]["kind"] == "other-shape"


def test_kinds_of_types() -> None:
    floats = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
    whole = [np.int8, np.uint64, np.bool_, ml_dtypes.int4, ml_dtypes.uint4]
    neither = [object, "U3", np.complex64, "V2"]
    assert all(is_float(np.dtype(t)) and is_number(np.dtype(t)) for t in floats)
    assert all(not is_float(np.dtype(t)) and is_number(np.dtype(t)) for t in whole)
    assert not any(is_float(np.dtype(t)) or is_number(np.dtype(t)) for t in neither)


# -- the user's function ----------------------------------------------------------------------------------------------

USER_MODULE = """
import numpy as np
LIMIT = 3
class Boxes:
    @staticmethod
    def error(reference, other):
        return np.abs(reference["y"] - other["y"]).max()
def error(reference, other):
    return Boxes.error(reference, other)
def undefined(reference, other):
    return float("nan")
def fails(reference, other):
    raise KeyError("boxes")
def returns_text(reference, other):
    return "good"
"""


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hw_user_metric.py").write_text(USER_MODULE)
    (tmp_path / "hw_needs_absent.py").write_text("import hw_absent_library\n")
    (tmp_path / "hw_raises.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "hw_exits.py").write_text("raise SystemExit(3)\n")
    return tmp_path


@pytest.mark.parametrize("spec", ["hw_user_metric:error", "hw_user_metric:Boxes.error"])
def test_the_users_function_is_found_in_the_current_directory(user_folder: Path, spec: str) -> None:
    before = list(sys.path)
    measure = load_metric(spec)
    assert sys.path == before
    value = measure({"y": f32(1, 2)}, {"y": f32(1, 2.5)})
    assert value == 0.5 and type(value) is float


def test_an_undefined_error_is_infinite(user_folder: Path) -> None:
    assert load_metric("hw_user_metric:undefined")({}, {}) == INF


@pytest.mark.parametrize(
    "spec",
    [
        "hw_user_metric",
        ":error",
        "hw_user_metric:",
        "hw_nowhere:f",
        "hw_nowhere.sub:f",
        "hw_needs_absent:f",
        "hw_raises:f",
        "hw_exits:f",
        "hw_user_metric:eror",
        "hw_user_metric:LIMIT",
    ],
)
def test_what_is_wrong_with_a_metric(user_folder: Path, spec: str, says: Says) -> None:
    with pytest.raises(InputError) as caught:
        load_metric(spec)
    says(caught.value)


@pytest.mark.parametrize("name", ["fails", "returns_text"])
def test_what_is_wrong_with_its_answer(user_folder: Path, name: str, says: Says) -> None:
    with pytest.raises(InputError) as caught:
        load_metric(f"hw_user_metric:{name}")({}, {})
    says(caught.value)
