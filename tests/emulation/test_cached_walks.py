"""Walks of a command that writes no results: kept until it is done, if it was interrupted, and not for long."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from halfwise.emulation.cached_walks import cached_walks
from halfwise.emulation.kept_walks import KeptWalks

ONE = {"y": np.ones(1000, np.float32)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HALFWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "walks"


def leave(error: BaseException | None, *sources: object) -> None:
    with cached_walks("verify", *sources) as kept:
        kept.keep("key", ONE)
        if error is not None:
            raise error


def test_an_interrupted_command_finds_them_again_and_no_other_does(cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        leave(KeyboardInterrupt(), "a.onnx", Path("b.onnx"))
    with cached_walks("verify", "a.onnx", "c.onnx") as other:
        assert other.answer("key") is None
    with cached_walks("verify", "a.onnx", "b.onnx") as again:
        found = again.answer("key")
    assert found is not None and np.array_equal(found["y"], ONE["y"])
    assert not list(cache.iterdir())


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_one_that_ends_leaves_nothing(cache: Path, error: Exception | None) -> None:
    if error is None:
        leave(None, "a.onnx")
    else:
        with pytest.raises(ValueError, match="no"):
            leave(error, "a.onnx")
    assert not list(cache.iterdir())


def test_what_nobody_came_back_for_goes(cache: Path) -> None:
    old, young = cache / "old", cache / "young"
    for each in (old, young):
        each.mkdir(parents=True)
    os.utime(old, (0, 0))
    leave(None, "a.onnx")
    assert list(cache.iterdir()) == [young]


def test_nothing_is_kept_where_nothing_shall_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with cached_walks("verify", object()) as kept:
        assert kept.folder is None
    monkeypatch.setenv("HALFWISE_CACHE", "0")
    with cached_walks("verify", "a.onnx") as kept:
        assert kept.folder is None


def test_no_more_is_kept_than_that(tmp_path: Path) -> None:
    kept = KeptWalks(tmp_path / "walks", most=6000)
    for key in ("one", "two"):
        kept.keep(key, ONE)
    assert kept.answer("one") is not None and kept.answer("two") is None
