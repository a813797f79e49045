"""Inputs: every way to give them, how they are split, and those that are made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import Samples, load_samples
from halfwise.model.inputs.synthetic import vary
from tests.support.messages import kinds
from tests.support.sample_cases import F32, I64, IDS, IMAGE, TEXT, X, encoded, refused, x
from tests.support.says import Says


def values(feeds: tuple[Mapping[str, np.ndarray], ...], name: str = "x") -> list[float]:
    return [float(feed[name].flat[0]) for feed in feeds]


def same(a: Samples, b: Samples) -> bool:
    pairs = [*zip(a.search, b.search, strict=True), *zip(a.validation, b.validation, strict=True)]
    return all(left.keys() == right.keys() for left, right in pairs) and all(
        np.array_equal(left[name], right[name]) for left, right in pairs for name in left
    )


# -- ways to give them ------------------------------------------------------------------------------------------------


def test_npz_files_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        np.savez(tmp_path / f"inputs_{number}.npz", x=x(number))
    (tmp_path / "model.onnx").write_bytes(b"not an input")
    (tmp_path / ".hidden.npz").write_bytes(b"not an input")
    (tmp_path / "more.npz").mkdir()
    samples = load_samples([X], tmp_path)
    assert (values(samples.search), values(samples.validation)) == ([1, 10], [2])
    assert (samples.origin, samples.notes) == ("given", ())


def test_npy_for_a_model_with_one_input(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", x(number))
    samples = load_samples([X], [tmp_path])
    assert (values(samples.search), values(samples.validation)) == ([0], [1])


def test_several_paths_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "a.npy", x(1))
    np.savez(tmp_path / "folder" / "b.npz", x=x(2))
    np.save(tmp_path / "c.npy", x(3))
    samples = load_samples([X], [str(tmp_path / "c.npy"), tmp_path / "folder"])
    assert (values(samples.search), values(samples.validation)) == ([3, 2], [1])


def test_polygraphys_json(tmp_path: Path) -> None:
    feeds = [{"x": encoded(x(number)), "ids": encoded(np.array([number]))} for number in range(3)]
    feeds[2]["x"] = {"values": feeds[2]["x"], "polygraphy_class": "LazyArray"}  # type: ignore[dict-item]
    (tmp_path / "feeds.json").write_text(json.dumps(feeds))
    samples = load_samples([X, IDS], tmp_path / "feeds.json")
    assert (values(samples.search), values(samples.validation, "ids")) == ([0, 2], [1])
    assert samples.search[0]["ids"].dtype == I64


def test_polygraphys_json_with_one_feed_only(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number:010}.json").write_text(json.dumps({"x": encoded(x(number))}))
    samples = load_samples([X], tmp_path)
    assert (values(samples.search), values(samples.validation)) == ([0], [1])


def test_the_encoding_as_polygraphy_writes_it(tmp_path: Path) -> None:
    array = (
        "k05VTVBZAQB2AHsnZGVzY3InOiAnPGk4JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEsKSwgfSAg"
        "ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoIAAAAAAAAAA=="
    )
    text = f'{{"n": {{"array": "{array}", "polygraphy_class": "ndarray"}}}}'
    (tmp_path / "one.json").write_text(text)
    samples = load_samples([InputSpec("n", I64, (1,))], tmp_path / "one.json")
    assert samples.search[0]["n"].tolist() == [8]


def test_an_iterable_of_feeds_that_fills_one_buffer_again_and_again() -> None:
    def loader() -> Iterator[dict[str, Any]]:
        buffer = x(0)
        for number in range(4):
            buffer[:] = number
            yield {"x": buffer}

    samples = load_samples([X], loader())
    assert (values(samples.search), values(samples.validation)) == ([0, 2], [1, 3])


def test_a_list_in_place_of_an_array() -> None:
    samples = load_samples([X], [{"x": [[1.5, 2, 3]]}, {"x": [[4, 5, 6]]}])
    assert samples.search[0]["x"].tolist() == [[1.5, 2.0, 3.0]]
    assert samples.validation[0]["x"].dtype == F32


def test_a_model_without_inputs() -> None:
    samples = load_samples([], None)
    assert [dict(feed) for feed in samples.all] == [{}, {}]
    assert kinds(samples.notes) == [NoteKind.NO_INPUTS]


# -- the split --------------------------------------------------------------------------------------------------------


@given(st.integers(2, 16))
def test_search_takes_every_other_sample_and_the_odd_one(count: int) -> None:
    samples = load_samples([X], [{"x": x(number)} for number in range(count)])
    assert values(samples.search) == list(range(0, count, 2))
    assert values(samples.validation) == list(range(1, count, 2))
    assert samples.notes == ()


@given(st.integers(1, 200), st.integers(1, 8))
def test_many_samples_are_picked_evenly(count: int, most: int) -> None:
    samples = load_samples([X], ({"x": x(number)} for number in range(count)), most=most)
    if count == 1:
        assert samples.origin == "derived"
        return
    used = sorted(values(samples.search) + values(samples.validation))
    assert len(used) == min(count, 2 * most)
    assert len(samples.validation) in (len(samples.search), len(samples.search) - 1)
    assert used[0] == 0
    gaps = np.diff([*used, count])
    assert gaps.max() <= 4 * count / len(used)  # no long stretch is left out
    if count > 2 * most:
        assert samples.notes == (Note.of(NoteKind.SAMPLES_THINNED, used=2 * most, given=count),)


def test_unused_files_are_not_read(tmp_path: Path) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", x(number))
    (tmp_path / "1.npy").write_bytes(b"")
    assert values(load_samples([X], tmp_path, most=1).search) == [0]


def test_a_sample_given_twice_is_not_held_out() -> None:
    samples = load_samples([X], [{"x": x(1)}, {"x": x(1)}, {"x": x(2)}])
    assert (values(samples.search), values(samples.validation)) == ([1], [2])
    assert samples.notes == (Note.of(NoteKind.SAMPLES_REPEATED, count=1),)


def test_one_sample_alone_is_varied() -> None:
    only = {"x": np.array([[1, -200, 3e4]], np.float32), "ids": np.array([7])}
    samples = load_samples([X, IDS], [only])
    assert (samples.origin, kinds(samples.notes)) == ("derived", [NoteKind.ONE_SAMPLE])
    assert np.array_equal(samples.search[0]["x"], only["x"])
    first, second = samples.validation
    assert not np.array_equal(first["x"], second["x"])
    assert first["ids"].tolist() == second["ids"].tolist() == [7]
    assert same(samples, load_samples([X, IDS], [only]))
    assert not same(samples, load_samples([X, IDS], [only], seed=1))


def test_one_sample_alone_without_floats() -> None:
    samples = load_samples([IDS], [{"ids": np.array([7])}])
    assert (samples.origin, len(samples.validation)) == ("derived", 1)
    assert samples.validation[0]["ids"].tolist() == [7]
    assert kinds(samples.notes) == [NoteKind.ONE_CONSTANT_SAMPLE]


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(max_dims=2),
        elements=st.floats(width=16),
    )
)
def test_a_variant_stays_close_and_within_the_range_of_its_input(array: np.ndarray) -> None:
    varied = vary({"x": array}, rng=np.random.default_rng(0))["x"]
    assert varied.dtype == array.dtype
    finite = np.isfinite(array)
    assert np.array_equal(varied[~finite], array[~finite], equal_nan=True)
    if finite.any():
        wide, moved = array[finite].astype(np.float64), varied[finite].astype(np.float64)
        rounding = np.maximum(np.abs(wide) * 2.0**-10, 2.0**-24) + 0.5 * bool((wide == np.rint(wide)).all())
        assert np.all(np.abs(moved - wide) <= np.abs(wide) * 2.0**-7 + rounding)
        assert wide.min() <= moved.min() and moved.max() <= wide.max()


def test_a_mask_at_the_end_of_the_range_stays_finite() -> None:
    mask = np.array([0, -3.4028235e38], np.float32)
    assert np.isfinite(vary({"mask": mask}, rng=np.random.default_rng(0))["mask"]).all()


def test_values_that_are_not_finite_are_noted() -> None:
    bad = x(1)
    bad[0, 0] = np.nan
    samples = load_samples([X], [{"x": bad}, {"x": x(2)}, {"x": x(3)}])
    assert samples.notes == (Note.of(NoteKind.SAMPLES_NOT_FINITE, "x", bad=1, samples=3),)


# -- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_values", "declared"),
    [
        (np.array([1, 2], np.int32), np.int64),
        (np.array([1, -2], np.int64), np.int32),
        (np.array([0, 255], np.uint8), np.float32),
        (np.array([2**24, -3], np.int64), np.float32),
        (np.array([1.5, 2.5], np.float64), np.float32),
        (np.array([1.5, 2.5], ">f4"), np.float32),
        (np.array([1.5, 2.5], np.float32), np.float16),
        (np.array([1.5, 2.5], np.float32), ml_dtypes.bfloat16),
        (np.array([1.0, -7.0], np.float32), np.int64),
        (np.array([True, False]), np.int64),
        (np.array([0, 1]), np.bool_),
        (np.array([-8, 7]), ml_dtypes.int4),
        (np.array([np.inf, np.nan], np.float64), np.float32),
    ],
)
def test_values_that_the_declared_type_holds_are_cast(given_values: np.ndarray, declared: type) -> None:
    spec = InputSpec("v", np.dtype(declared), (2,))
    got = load_samples([spec], [{"v": given_values}]).search[0]["v"]
    assert got.dtype == np.dtype(declared)
    assert np.array_equal(got.astype(np.float64), given_values.astype(np.float64), equal_nan=True)


def test_fp64_is_rounded_to_the_declared_fp32() -> None:
    got = load_samples([X], [{"x": np.full((1, 3), 0.1)}]).search[0]["x"]
    assert got.tolist() == x(0.1).tolist()


@pytest.mark.parametrize(
    ("given_values", "declared"),
    [
        (np.array([2**31], np.int64), np.int32),
        (np.array([-1], np.int64), np.uint64),
        (np.array([2**64 - 1], np.uint64), np.int64),
        (np.array([2**24 + 1], np.int64), np.float32),
        (np.array([70000], np.int64), np.float16),
        (np.array([2**63 - 1], np.int64), np.float64),
        (np.array([0.5], np.float32), np.int64),
        (np.array([np.nan], np.float32), np.int64),
        (np.array([2.0**63], np.float32), np.int64),
        pytest.param(np.array([2], np.int64), np.bool_, id="given_values9-bool"),  # NumPy 1 calls it `bool_`
        (np.array([8], np.int64), ml_dtypes.int4),
        (np.array([1e300], np.float64), np.float32),
        (np.array([70000], np.float32), np.float16),
        (np.array([1j], np.complex64), np.float32),
        (np.array(["1"]), np.float32),
        (np.array([None]), np.float32),
    ],
)
def test_values_that_the_declared_type_cannot_hold_are_refused(
    given_values: np.ndarray, declared: type, says: Says
) -> None:
    spec = InputSpec("v", np.dtype(declared), (1,))
    says(refused([spec], [{"v": given_values}]))


integer_types = st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64])


@given(
    integer_types.flatmap(lambda dtype: hnp.arrays(dtype, (1,))),
    st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]),
)
def test_an_integer_is_cast_exactly_or_refused(array: np.ndarray, declared: type) -> None:
    spec = InputSpec("v", np.dtype(declared), (1,))
    try:
        got = load_samples([spec], [{"v": array}]).search[0]["v"]
    except InputError:
        with np.errstate(over="ignore"):
            cast = array.astype(declared)
        fits = np.isfinite(cast.astype(np.float64)).all() and int(cast[0]) == int(array[0])
        assert not fits or abs(int(array[0])) >= 2**63 - 1024  # integers at the very end are refused for floats
    else:
        assert int(got[0]) == int(array[0])


def test_text(says: Says) -> None:
    spec = InputSpec("t", TEXT, (2,))
    got = load_samples([spec], [{"t": ["a", "b"]}, {"t": np.array(["c", "d"], object)}])
    assert got.search[0]["t"].tolist() == ["a", "b"] and got.search[0]["t"].dtype == TEXT
    assert got.validation[0]["t"].tolist() == ["c", "d"]
    says(refused([spec], [{"t": np.array([1, 2])}]))
    says(refused([spec], [{"t": np.array(["a", 2], object)}]))


def test_a_scalar_stays_a_scalar() -> None:
    spec = InputSpec("s", F32, ())
    assert load_samples([spec], [{"s": 2.5}]).search[0]["s"].shape == ()


# -- made up ----------------------------------------------------------------------------------------------------------


def test_synthetic_inputs_say_so() -> None:
    samples = load_samples([X, IDS], None)
    assert samples.origin == "synthetic"
    assert (len(samples.search), len(samples.validation)) == (4, 4)
    assert kinds(samples.notes) == [NoteKind.SYNTHETIC]
    assert same(samples, load_samples([X, IDS], None))
    assert not same(samples, load_samples([X, IDS], None, seed=1))


def test_synthetic_floats_are_both_normal_and_uniform_on_both_sides() -> None:
    spec = InputSpec("f", np.dtype(np.float16), (64, 64))
    samples = load_samples([spec], None)
    for side in (samples.search, samples.validation):
        negative = [bool((feed["f"] < 0).any()) for feed in side]
        assert negative == [True, False, True, False]
        assert all(
            feed["f"].dtype == np.float16 and feed["f"].max() <= (9 if n else 1)
            for feed, n in zip(side, negative, strict=True)
        )


def test_synthetic_integers_stay_in_their_bounds() -> None:
    specs = [
        InputSpec("ids", I64, (400,), most=9),
        InputSpec("kinds", I64, (400,)),
        InputSpec("b", np.dtype(np.bool_), (400,), most=5),
    ]
    feed = load_samples(specs, None).search[0]
    assert np.unique(feed["ids"]).tolist() == list(range(10))
    assert np.unique(feed["kinds"]).tolist() == [0, 1]
    assert feed["b"].dtype == np.bool_ and np.unique(feed["b"]).tolist() == [False, True]


def test_synthetic_values_of_narrow_types() -> None:
    specs = [InputSpec("q", np.dtype(ml_dtypes.int4), (8,)), InputSpec("h", np.dtype(ml_dtypes.bfloat16), (8,))]
    feed = load_samples(specs, None).search[0]
    assert feed["q"].dtype == ml_dtypes.int4 and feed["h"].dtype == ml_dtypes.bfloat16


def test_synthetic_shapes() -> None:
    specs = [
        InputSpec("a", F32, ("N", "seq", None, 5)),
        InputSpec("b", F32, (2, "N", "seq")),
        InputSpec("c", F32, (3, "batch_size", "H")),
        InputSpec("d", F32, (None,)),
        InputSpec("e", F32, ()),
    ]
    feed = load_samples(specs, None, dims={"H": 7}).search[0]
    assert {name: array.shape for name, array in feed.items()} == {
        "a": (1, 16, 16, 5),
        "b": (2, 1, 16),
        "c": (3, 1, 7),
        "d": (1,),
        "e": (),
    }


def test_an_empty_cache_says_nothing_of_the_dimensions_of_others() -> None:
    """As Optimum feeds the first step of a merged decoder."""
    specs = [InputSpec("states", F32, (1, "encoded", 4)), InputSpec("past", F32, (1, 2, "encoded", 4))]
    first, second = ({"states": np.ones((1, 5, 4)), "past": np.ones((1, 2, many, 4))} for many in (0, 5))
    samples = load_samples(specs, [first, second])
    assert {feed["past"].shape[2] for feed in (*samples.search, *samples.validation)} == {0, 5}


def test_what_cannot_be_made_up(says: Says) -> None:
    says(refused([InputSpec("t", TEXT, (1,))], None))
    says(refused([InputSpec("c", np.dtype(np.complex64), (1,))], None))
    says(refused([InputSpec("r", F32, None)], None))
    says(refused([X], None, dims={"M": 2}))
    says(refused([IMAGE], None, dims={"M": 2}))
    says(refused([X], None, dims={"N": 0}))
