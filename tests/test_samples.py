"""Inputs: every way to give them, every way to give them wrongly, and how they are split."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from halfwise.errors import InputError
from halfwise.samples import InputSpec, Samples, load_samples
from halfwise.synthetic import vary

F32, I64, TEXT = np.dtype(np.float32), np.dtype(np.int64), np.dtype(object)
X = InputSpec("x", F32, ("N", 3))
IDS = InputSpec("ids", I64, ("N",))
IMAGE = InputSpec("image", F32, (1, 2))


def x(value: float, rows: int = 1) -> np.ndarray:
    return np.full((rows, 3), value, np.float32)


def values(feeds: tuple[Mapping[str, np.ndarray], ...], name: str = "x") -> list[float]:
    return [float(feed[name].flat[0]) for feed in feeds]


def same(a: Samples, b: Samples) -> bool:
    pairs = [*zip(a.search, b.search, strict=True), *zip(a.validation, b.validation, strict=True)]
    return all(left.keys() == right.keys() for left, right in pairs) and all(
        np.array_equal(left[name], right[name]) for left, right in pairs for name in left
    )


def refused(specs: list[InputSpec], sources: Any, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_samples(specs, sources, **settings)
    return str(caught.value)


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


def encoded(array: np.ndarray) -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, array)
    return {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}


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
    assert (samples.search, samples.validation) == (({},), ({},))
    assert samples.notes == ("the model takes no inputs: every run of it is the same",)


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
        assert samples.notes == (f"{2 * most} of the {count} samples given are used, evenly picked",)


def test_unused_files_are_not_read(tmp_path: Path) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", x(number))
    (tmp_path / "1.npy").write_bytes(b"")
    assert values(load_samples([X], tmp_path, most=1).search) == [0]


def test_a_sample_given_twice_is_not_held_out() -> None:
    samples = load_samples([X], [{"x": x(1)}, {"x": x(1)}, {"x": x(2)}])
    assert (values(samples.search), values(samples.validation)) == ([1], [2])
    assert samples.notes == ("1 of the samples given repeat another one and are left out",)


DERIVED = (
    "only one distinct sample was given: the held-out inputs were derived from it by changes of up to 2^-7; "
    "give more samples for a result to trust"
)


def test_one_sample_alone_is_varied() -> None:
    only = {"x": np.array([[1, -200, 3e4]], np.float32), "ids": np.array([7])}
    samples = load_samples([X, IDS], [only])
    assert (samples.origin, samples.notes) == ("derived", (DERIVED,))
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
    assert samples.notes == (
        "only one distinct sample was given, with no float value to vary: it serves to search and to validate; "
        "give more samples for a result to trust",
    )


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
        rounding = np.maximum(np.abs(wide) * 2.0**-10, 2.0**-24)
        assert np.all(np.abs(moved - wide) <= np.abs(wide) * 2.0**-7 + rounding)
        assert wide.min() <= moved.min() and moved.max() <= wide.max()


def test_a_mask_at_the_end_of_the_range_stays_finite() -> None:
    mask = np.array([0, -3.4028235e38], np.float32)
    assert np.isfinite(vary({"mask": mask}, rng=np.random.default_rng(0))["mask"]).all()


def test_values_that_are_not_finite_are_noted() -> None:
    bad = x(1)
    bad[0, 0] = np.nan
    samples = load_samples([X], [{"x": bad}, {"x": x(2)}, {"x": x(3)}])
    assert samples.notes == ("input 'x' holds values that are not finite in 1 of 3 samples",)


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
        (np.array([2], np.int64), np.bool_),
        (np.array([8], np.int64), ml_dtypes.int4),
        (np.array([1e300], np.float64), np.float32),
        (np.array([70000], np.float32), np.float16),
        (np.array([1j], np.complex64), np.float32),
        (np.array(["1"]), np.float32),
        (np.array([None]), np.float32),
    ],
)
def test_values_that_the_declared_type_cannot_hold_are_refused(given_values: np.ndarray, declared: type) -> None:
    spec = InputSpec("v", np.dtype(declared), (1,))
    assert refused([spec], [{"v": given_values}]) == (
        f"inputs[0]: input 'v' is {given_values.dtype}, with values that the model's {np.dtype(declared)} cannot hold"
    )


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


def test_text() -> None:
    spec = InputSpec("t", TEXT, (2,))
    got = load_samples([spec], [{"t": ["a", "b"]}, {"t": np.array(["c", "d"], object)}])
    assert got.search[0]["t"].tolist() == ["a", "b"] and got.search[0]["t"].dtype == TEXT
    assert got.validation[0]["t"].tolist() == ["c", "d"]
    assert refused([spec], [{"t": np.array([1, 2])}]) == "inputs[0]: input 't' is int64, the model takes text"
    assert (
        refused([spec], [{"t": np.array(["a", 2], object)}]) == "inputs[0]: input 't' is object, the model takes text"
    )


def test_a_scalar_stays_a_scalar() -> None:
    spec = InputSpec("s", F32, ())
    assert load_samples([spec], [{"s": 2.5}]).search[0]["s"].shape == ()


# -- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"x": x(1)}, "inputs[0]: lacks 'ids'; the model takes 'x', 'ids'"),
        (
            {"x": x(1), "ids": [1], "mask": [1], "y": [2]},
            "inputs[0]: holds 'mask', 'y', but the model takes 'x', 'ids'",
        ),
        ({"x": np.ones(3), "ids": [1]}, "inputs[0]: input 'x' has shape (3,), the model takes (N, 3)"),
        ({"x": np.ones((1, 4)), "ids": [1]}, "inputs[0]: input 'x' has shape (1, 4), the model takes (N, 3)"),
        ({"x": x(1, rows=2), "ids": [1]}, "inputs[0]: dimension 'N' is 2 in input 'x' and 1 in input 'ids'"),
    ],
)
def test_what_does_not_fit_the_model(feed: dict[str, Any], message: str) -> None:
    assert refused([X, IDS], [feed]) == message


def test_unknown_dimensions_and_ranks_take_anything() -> None:
    specs = [InputSpec("a", F32, (None, 2)), InputSpec("b", F32, None)]
    feeds = [{"a": np.ones((5, 2)), "b": np.ones(3)}, {"a": np.ones((4, 2)), "b": np.ones((1, 1))}]
    assert load_samples(specs, feeds).validation[0]["b"].shape == (1, 1)
    assert refused(specs, [{"a": np.ones((5, 3)), "b": 1}]) == (
        "inputs[0]: input 'a' has shape (5, 3), the model takes (?, 2)"
    )


def test_a_symbol_may_differ_between_samples() -> None:
    samples = load_samples([X, IDS], [{"x": x(1), "ids": [1]}, {"x": x(1, rows=2), "ids": [1, 2]}])
    assert samples.validation[0]["x"].shape == (2, 3)


def test_messages_name_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=x(1))
    assert refused([X, IDS], tmp_path) == f"{tmp_path / 'a.npz'}: lacks 'ids'; the model takes 'x', 'ids'"
    (tmp_path / "b.json").write_text(json.dumps([{"x": encoded(x(1)[:, :2])}]))
    assert refused([X], tmp_path / "b.json") == (
        f"{tmp_path / 'b.json'}[0]: input 'x' has shape (1, 2), the model takes (N, 3)"
    )


def test_nothing_given() -> None:
    for sources in ([], iter(())):
        assert refused([X], sources) == (
            "no input samples were given; give files with --inputs, or none at all for synthetic ones"
        )


def test_neither_a_path_nor_a_feed() -> None:
    assert refused([X], [x(1)]) == ("inputs[0]: is of type ndarray, not a path or a mapping from input names to arrays")


def test_what_is_no_array() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise RuntimeError("still on the device")

    assert refused([X], [{"x": Broken()}]) == (
        "inputs[0]: input 'x' cannot be turned into an array: still on the device"
    )


# -- files that cannot be read ----------------------------------------------------------------------------------------


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    assert refused([X], tmp_path / "gone") == f"{tmp_path / 'gone'}: there is no such file or folder"
    assert refused([X], tmp_path) == f"{tmp_path}: there is no .npz, .npy or .json file in this folder"
    (tmp_path / "x.pt").write_bytes(b"")
    assert refused([X], tmp_path / "x.pt") == (
        f"{tmp_path / 'x.pt'}: inputs are .npz, .npy or Polygraphy's .json files, or folders of these"
    )


def test_npy_for_a_model_with_two_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", x(1))
    assert refused([X, IDS], tmp_path / "a.npy") == (
        f"{tmp_path / 'a.npy'}: an .npy file holds one array, but the model takes 'x', 'ids'; give an .npz"
    )


class Trap:
    """Leaves a mark if it is ever unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (setattr, (Trap, "sprung", True))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickles_are_never_loaded(tmp_path: Path, name: str) -> None:
    trapped = np.array([Trap()], object)
    np.save(tmp_path / "a.npy", trapped, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=trapped)
    assert refused([X], tmp_path / name) == (
        f"{tmp_path / name}: holds Python objects, which are never loaded; save plain arrays"
    )
    assert not Trap.sprung


def test_a_pickle_in_polygraphys_json_is_never_loaded(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], object), allow_pickle=True)
    node = {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x": node}))
    assert refused([X], path) == f"{path}: input 'x': holds Python objects, which are never loaded; save plain arrays"
    assert not Trap.sprung


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("content", [b"", b"not an array at all", b"\x93NUMPY\x01", b"PK\x03\x04", b"\x80\x04N."])
def test_files_that_are_not_what_they_say(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    message = refused([X], tmp_path / name)
    assert message.startswith(f"{tmp_path / name}: is damaged, or not what its name says: ")
    assert "\n" not in message


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_archive(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=np.arange(3000, dtype=np.float32).reshape(1000, 3))
    content = bytearray(path.read_bytes())
    for at in range(200, 400):
        content[at] ^= 0xFF
    path.write_bytes(content)
    assert refused([X], path).startswith(f"{path}: is damaged, or not what its name says: ")


def test_an_npz_with_something_else_inside(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", b"readme")
    assert refused([X], tmp_path / "a.npz") == f"{tmp_path / 'a.npz'}: 'x' in it is not an array"


def test_a_file_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", x(1))

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert refused([X], tmp_path / "a.npy") == f"{tmp_path / 'a.npy'}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "{path}: is damaged, or not what its name says: Expecting property name"),
        ("3", "{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)"),
        ("[[]]", "{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)"),
        (
            '{"array": "", "polygraphy_class": "ndarray"}',
            "{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)",
        ),
        (
            '{"lst": [], "polygraphy_class": "RunResults"}',
            "{path}: holds the outputs of a Polygraphy run, not inputs; save inputs with --save-inputs",
        ),
        ('[{"x": [1, 2]}]', "{path}[0]: input 'x' is not an array in Polygraphy's encoding"),
        (
            '{"x": {"tensor": "", "polygraphy_class": "Tensor"}}',
            "{path}: input 'x' is a pickled torch tensor, which is never loaded; save it as a NumPy array",
        ),
        (
            '{"x": {"array": "!", "polygraphy_class": "ndarray"}}',
            "{path}: input 'x': is damaged, or not what its name says: ",
        ),
        (
            '{"x": {"polygraphy_class": "ndarray"}}',
            "{path}: input 'x': is damaged, or not what its name says: 'array'",
        ),
        ('{"x": {"polygraphy_class": "LazyArray"}}', "{path}: input 'x' is not an array in Polygraphy's encoding"),
        ("[]", "no input samples were given; give files with --inputs, or none at all for synthetic ones"),
    ],
)
def test_json_that_is_not_polygraphys(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert refused([X], path).startswith(message.format(path=path))


def test_json_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe")
    assert refused([X], path).startswith(f"{path}: is damaged, or not what its name says: ")


# -- made up ----------------------------------------------------------------------------------------------------------


def test_synthetic_inputs_say_so() -> None:
    samples = load_samples([X, IDS], None)
    assert samples.origin == "synthetic"
    assert (len(samples.search), len(samples.validation)) == (4, 4)
    assert samples.notes == (
        "no inputs were given: all results rest on synthetic ones, random values of the declared types and shapes; "
        "give real ones with --inputs",
    )
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
    specs = [InputSpec(name, I64, (400,)) for name in ("ids", "mask")] + [InputSpec("b", np.dtype(np.bool_), (400,))]
    feed = load_samples(specs, None, int_bounds={"ids": 9, "b": 5}).search[0]
    assert np.unique(feed["ids"]).tolist() == list(range(10))
    assert np.unique(feed["mask"]).tolist() == [0, 1]
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


def test_what_cannot_be_made_up() -> None:
    assert refused([InputSpec("t", TEXT, (1,))], None) == (
        "input 't' is text, which cannot be made up; give real inputs with --inputs"
    )
    assert refused([InputSpec("c", np.dtype(np.complex64), (1,))], None) == (
        "input 'c' is complex64, which cannot be made up; give real inputs with --inputs"
    )
    assert refused([InputSpec("r", F32, None)], None) == "input 'r' declares no shape; give real inputs with --inputs"
    assert refused([X], None, dims={"M": 2}) == "there is no dimension 'M' to set; the model's open dimensions are 'N'"
    assert refused([IMAGE], None, dims={"M": 2}) == "there is no dimension 'M' to set; the model has no open dimension"
    assert refused([X], None, dims={"N": 0}) == "dimension 'N' must be at least 1, not 0"
