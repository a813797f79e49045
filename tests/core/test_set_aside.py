"""Arrays in files without a name: the same values, not in memory of our own, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from halfwise.core import set_aside as set_aside_module
from halfwise.core.set_aside import all_set_aside, is_aside, set_aside

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
    aside = set_aside(array)
    assert is_aside(aside) and aside.dtype == array.dtype and np.array_equal(aside, array)
    assert set_aside(aside) is aside and not list(tmp_path.iterdir())
    aside[...] = array[..., ::-1]  # as a metric of the user's may
    assert np.array_equal(aside, array[..., ::-1])


def test_small_arrays_and_texts_stay_as_they_are() -> None:
    small, texts = np.zeros(4, np.float32), np.full(1 << 20, "a", object)
    outputs = all_set_aside({"small": small, "texts": texts, "nothing": None, "held": [small, _ARRAYS["bool"]]})
    assert outputs["small"] is small and outputs["texts"] is texts and outputs["nothing"] is None
    assert outputs["held"][0] is small and is_aside(outputs["held"][1])


def test_a_full_disk_leaves_them_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30))
    array = _ARRAYS["float32"]
    assert set_aside(array) is array


def test_no_folder_for_temporary_files_leaves_them_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    array = _ARRAYS["float32"]
    assert set_aside(array) is array


@pytest.mark.skipif(sys.platform == "win32", reason="files are not limited so")
def test_many_arrays_leave_files_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(set_aside_module, "LARGE", 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, allowed[1]))
    try:
        kept = [set_aside(np.arange(8)) for _ in range(300)]
        for each in [os.dup(0) for _ in range(4)]:
            os.close(each)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
    assert is_aside(kept[0]) and not is_aside(kept[-1])
    assert all(np.array_equal(each, np.arange(8)) for each in kept)
