"""Arrays in files without a name: the same values, not in memory of our own, and nothing is left behind."""

from __future__ import annotations

import shutil
import tempfile
from collections import namedtuple
from mmap import ACCESS_READ, mmap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from halfwise.core.set_aside import is_aside, set_aside, written_aside

_ARRAYS = {
    "float32": np.random.default_rng(0).standard_normal((5, 1 << 19)).astype(np.float32),
    "bfloat16": np.arange(1 << 22).astype(ml_dtypes.bfloat16),
    "bool": np.arange(1 << 23).reshape(2, -1) % 3 == 0,
    "turned": np.arange(1 << 20, dtype=np.int64).reshape(1 << 8, -1).T,
}


@pytest.mark.parametrize("name", _ARRAYS)
def test_a_large_array_keeps_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    array = _ARRAYS[name]
    aside = set_aside({"y": array})["y"]
    assert is_aside(aside) and aside.dtype == array.dtype and np.array_equal(aside, array)
    assert set_aside({"y": aside})["y"] is aside and not list(tmp_path.iterdir())
    aside[...] = array[..., ::-1]  # as a metric of the user's may
    assert np.array_equal(aside, array[..., ::-1])


def test_a_weight_that_lies_in_a_file_is_not_written_to_another(tmp_path: Path) -> None:
    """Turned or reshaped, it takes no memory of its own."""
    path = tmp_path / "weights"
    _ARRAYS["float32"].tofile(path)
    whole = np.memmap(path, np.float32, "r")
    with path.open("rb") as file:
        plain = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), np.float32)
    for array in (whole, plain, memoryview(plain)):
        view = np.asarray(array).reshape(5, -1)[1:].T
        assert is_aside(view) and set_aside({"y": view})["y"] is view
    assert not is_aside(np.array(whole)) and not is_aside(np.array(whole).T)


def test_an_array_is_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no disk has room, nothing is made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    array = _ARRAYS["float32"]
    made = written_aside(array.shape, array.dtype, (array[row : row + 1] for row in range(len(array))))
    assert made is not None and is_aside(made) and np.array_equal(made, array) and not list(tmp_path.iterdir())
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30))
    assert written_aside(array.shape, array.dtype, iter([array])) is None


def test_small_arrays_and_texts_stay_as_they_are() -> None:
    small, texts = np.zeros(4, np.float32), np.full(1 << 20, "a", object)
    outputs = set_aside({"small": small, "texts": texts, "nothing": None, "held": [small, _ARRAYS["bool"]]})
    assert outputs["small"] is small and outputs["texts"] is texts and outputs["nothing"] is None
    assert outputs["held"][0] is small and is_aside(outputs["held"][1])


def test_the_outputs_of_one_answer_take_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    temporary = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: (made.append(1), temporary(**given))[1])
    outputs = set_aside(dict(_ARRAYS))
    assert len(made) == 1
    assert all(is_aside(outputs[name]) and np.array_equal(outputs[name], _ARRAYS[name]) for name in _ARRAYS)


def test_half_of_the_files_that_may_be_open_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    with tempfile.TemporaryFile() as file:
        lowest = file.fileno()
    for most, aside in ((2 * lowest, False), (2 * lowest + 1, True), (resource.RLIM_INFINITY, True)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=most: (most, most))
        assert is_aside(set_aside({"y": _ARRAYS["bool"]})["y"]) == aside


def test_a_full_disk_leaves_them_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30))
    array = _ARRAYS["float32"]
    assert set_aside({"y": array})["y"] is array


def test_no_folder_for_temporary_files_leaves_them_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    array = _ARRAYS["float32"]
    assert set_aside({"y": array})["y"] is array
