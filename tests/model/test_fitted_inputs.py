"""Inputs as people have them: other names, no batch, batches, raw values, shapes; taken where one reading fits."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfwise.core.notes import NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import load_samples
from halfwise.model.inputs.shapes import Shapes
from tests.support.messages import kinds, only
from tests.support.sample_cases import F32, I64, refused
from tests.support.says import Says

X = InputSpec("input.1", F32, (1, 3))
TWO = [InputSpec("input_ids", I64, (1, "n")), InputSpec("mask", F32, (1, "n"))]


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["arr_0", "input_1", "Input.1", "input.1:0", "images"])
def test_the_only_array_is_the_only_input(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{name: row(1, 2, 3)})
    samples = load_samples([X], tmp_path)
    assert samples.search[0]["input.1"].tolist() == [[1, 2, 3]]
    told = only(samples.notes, NoteKind.INPUT_TAKEN_AS)
    assert (told.subject, told.values["given"], told.severity) == ("input.1", name, "warning")


def test_arrays_without_names_are_taken_in_order() -> None:
    feed = {"arr_0": np.array([[7, 8]]), "arr_1": row(0, 1)}
    samples = load_samples(TWO, [feed])
    assert samples.search[0]["input_ids"].tolist() == [[7, 8]]
    assert kinds(samples.notes).count(NoteKind.INPUT_TAKEN_AS) == 2


def test_names_that_differ_in_signs_are_taken() -> None:
    samples = load_samples(TWO, [{"inputIds:0": np.array([[7]]), "Mask": row(1)}])
    assert samples.search[0]["input_ids"].tolist() == [[7]] and samples.search[0]["mask"].tolist() == [[1]]


def test_names_that_may_be_several_are_refused_with_the_nearest(says: Says) -> None:
    told = refused(TWO, [{"input_idx": np.array([[7]]), "msk": row(1)}])
    says(told)
    says(refused([X], [{"images": row(1, 2)}]))


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [1, "n", None])
def test_a_missing_batch_is_added(lead: Any) -> None:
    samples = load_samples([InputSpec("x", F32, (lead, 2, 2))], [{"x": np.ones((2, 2))}])
    assert samples.search[0]["x"].shape == (1, 2, 2)
    assert NoteKind.BATCH_ADDED in kinds(samples.notes)


def test_a_batch_of_a_fixed_size_is_not_made_up() -> None:
    assert "has shape (2, 2)" in refused([InputSpec("x", F32, (4, 2, 2))], [{"x": np.ones((2, 2))}])


@pytest.mark.parametrize(("declared", "given"), [((1, 3, 8, 6), (1, 8, 6, 3)), (("n", 8, 6, 3), (2, 3, 8, 6))])
def test_channels_in_another_place_are_told_with_the_way_to_move_them(declared: Any, given: tuple[int, ...]) -> None:
    told = refused([InputSpec("x", F32, declared)], [{"x": np.zeros(given)}])
    order = ast.literal_eval(told.partition("array.transpose")[2].strip())
    assert np.zeros(given).transpose(order).shape[1:] == declared[1:]


def test_batches_are_split_for_a_model_of_one() -> None:
    values = np.arange(18).reshape(6, 3)
    samples = load_samples([X], [{"input.1": values}])
    assert sorted(feed["input.1"].tolist() for feed in samples.all) == [[list(each)] for each in values.tolist()]
    assert only(samples.notes, NoteKind.BATCH_SPLIT).values == {"count": 6}


def test_a_calibration_cache_is_split_by_the_models_batch(tmp_path: Path) -> None:
    """As ModelOpt takes it: all samples of an input in one array, one behind another."""
    specs = [InputSpec("a", F32, (2, 3)), InputSpec("b", F32, (2, 1)), InputSpec("scale", F32, ())]
    np.savez(tmp_path / "calib.npz", a=np.arange(24).reshape(8, 3), b=np.arange(8).reshape(8, 1), scale=2.0)
    samples = load_samples(specs, tmp_path / "calib.npz")
    assert len(samples.all) == 4 and all(feed["scale"] == 2.0 for feed in samples.all)
    assert sorted(float(feed["b"][0, 0]) for feed in samples.all) == [0, 2, 4, 6]
    for feed in samples.all:
        assert feed["a"][0, 0] == 3 * feed["b"][0, 0]


def test_more_than_enough_are_picked_evenly() -> None:
    samples = load_samples([InputSpec("x", F32, (1, 1))], [{"x": np.arange(100.0)[:, None]}], most=3)
    assert len(samples.all) == 6
    assert only(samples.notes, NoteKind.SAMPLES_THINNED).values == {"used": 6, "given": 100}


def test_one_batch_of_a_dynamic_model_is_many_samples() -> None:
    spec = InputSpec("x", F32, ("batch_size", 2))
    assert len(load_samples([spec], [{"x": np.arange(8).reshape(4, 2)}]).all) == 4
    several = load_samples([spec], [{"x": np.ones((4, 2))}, {"x": np.zeros((4, 2))}])
    assert {feed["x"].shape for feed in several.all} == {(4, 2)}


def test_batches_of_different_sizes_are_refused() -> None:
    specs = [InputSpec("a", F32, (1, 2)), InputSpec("b", F32, (1, 2))]
    assert "has shape (4, 2)" in refused(specs, [{"a": np.ones((4, 2)), "b": np.ones((3, 2))}])


# -- raw values -------------------------------------------------------------------------------------------------------


def test_raw_values_by_name_as_trtexec_takes_them(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(row(1, 2, 3).tobytes())
    assert load_samples([X], f"input.1:{tmp_path / 'a.bin'}").search[0]["input.1"].tolist() == [[1, 2, 3]]
    np.array([[5, 6]]).tofile(tmp_path / "ids.bin")
    row(0, 1).tofile(tmp_path / "m.raw")
    samples = load_samples(TWO, f"'input_ids':{tmp_path / 'ids.bin'},mask:{tmp_path / 'm.raw'}")
    assert samples.search[0]["input_ids"].tolist() == [[5, 6]] and samples.search[0]["mask"].tolist() == [[0, 1]]


def test_raw_values_of_a_folder_or_one_folder_a_sample(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        row(number, 0, 0).tofile(folder / "input.1.bin")
    assert sorted(feed["input.1"][0, 0] for feed in load_samples([X], tmp_path).all) == [0, 1, 2]
    row(4, 0, 0).tofile(tmp_path / "input.1.input.1.3.fp32.raw")
    assert len(load_samples([X], tmp_path).all) == 4


def test_raw_values_take_their_shape_from_shapes(tmp_path: Path, says: Says) -> None:
    spec = InputSpec("x", F32, ("n", "m"))
    np.arange(6, dtype=np.float32).tofile(tmp_path / "x.bin")
    samples = load_samples([spec], [f"x:{tmp_path / 'x.bin'}", Shapes({"x": (2, 3)})])
    assert samples.search[0]["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    told = refused([spec], f"x:{tmp_path / 'x.bin'}")
    says(told)
    says(refused([spec], [tmp_path, Shapes({"x": (1, 5)})]))
    says(refused([spec], f"x:{tmp_path / 'none.bin'}"))


# -- shapes -----------------------------------------------------------------------------------------------------------


def test_random_inputs_have_the_stated_shapes() -> None:
    specs = [InputSpec("x", F32, ("n", 3, "h", "w")), InputSpec("mask", F32, ("n", "h"))]
    samples = load_samples(specs, Shapes({"x": [(1, 3, 8, 8), (2, 3, 16, 8)]}))
    assert samples.origin == "synthetic" and NoteKind.SYNTHETIC in kinds(samples.notes)
    for feeds in (samples.search, samples.validation):
        assert {feed["x"].shape for feed in feeds} == {(1, 3, 8, 8), (2, 3, 16, 8)}
    assert all(feed["mask"].shape == (feed["x"].shape[0], feed["x"].shape[2]) for feed in samples.all)


@pytest.mark.parametrize("sizes", [{"y": (1, 3)}, {"input1": (1, 3)}, {"input.1": (1, 4)}, {"input.1": (1, 3, 1)}])
def test_shapes_that_are_not_the_models(sizes: dict[str, Any], says: Says) -> None:
    says(refused([X], [Shapes(sizes)]))
