"""Walks that are kept: what is damaged, another's or in the place of one is no answer, and is made anew."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from halfwise.emulation.kept_walks import KeptWalks
from halfwise.search.tensor_statistics import _read as statistics_of

KEY = "0123"
ARRAYS = {"y": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([1, 2])}


@pytest.fixture
def walks(tmp_path: Path) -> KeptWalks:
    kept = KeptWalks(tmp_path / "walks")
    kept.keep(KEY, ARRAYS)
    return kept


def place(walks: KeptWalks) -> Path:
    assert walks.folder is not None
    return walks.folder / f"{KEY}.npz"


def test_an_answer_is_there_again(walks: KeptWalks) -> None:
    known = walks.answer(KEY)
    assert known is not None and known.keys() == ARRAYS.keys()
    assert all(np.array_equal(known[name], array) for name, array in ARRAYS.items())
    assert list(place(walks).parent.iterdir()) == [place(walks)]


def test_a_file_with_any_byte_changed_is_the_same_answer_or_none(walks: KeptWalks) -> None:
    content = place(walks).read_bytes()
    for at in range(0, len(content), 3):
        place(walks).write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        known = walks.answer(KEY)
        assert known is None or all(np.array_equal(known[name], array) for name, array in ARRAYS.items())
        place(walks).write_bytes(content[:at])
        assert walks.answer(KEY) is None


def test_what_is_kept_leaves_room_for_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a disk that has room for them is filled by what only an interrupted job needs."""
    walks = KeptWalks(tmp_path / "walks", room=1000)
    for free, kept in ((1000, False), (2000, True)):
        monkeypatch.setattr("shutil.disk_usage", lambda folder, free=free: SimpleNamespace(free=free))
        walks.keep(KEY, ARRAYS)
        assert (walks.answer(KEY) is not None) is kept


def test_the_answer_to_another_question_is_none(walks: KeptWalks) -> None:
    place(walks).rename(place(walks).with_name("4567.npz"))
    assert walks.answer("4567") is None


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes as POSIX has them")
@pytest.mark.parametrize("put", ["link", "pipe", "folder", "endless"])
def test_what_stands_in_its_place_is_no_answer(put: str, walks: KeptWalks, tmp_path: Path) -> None:
    path = place(walks)
    if put == "link":
        path.rename(tmp_path / "mine")
        path.symlink_to(tmp_path / "mine")
    elif put == "endless":
        with path.open("r+b") as file:
            file.truncate(1 << 40)
    else:
        path.unlink()
        (os.mkfifo if put == "pipe" else os.mkdir)(path)
    assert walks.answer(KEY) is None


@pytest.mark.skipif(sys.platform == "win32", reason="links as POSIX has them")
def test_nothing_is_kept_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "walks").symlink_to(tmp_path / "mine")
    KeptWalks(tmp_path / "walks").keep(KEY, ARRAYS)
    assert not list((tmp_path / "mine").iterdir())
    walks = KeptWalks(tmp_path / "others")
    walks.keep("0", ARRAYS)
    (tmp_path / "others" / f"{KEY}.part").symlink_to(tmp_path / "file")
    walks.keep(KEY, ARRAYS)
    assert walks.answer(KEY) is not None and not (tmp_path / "file").exists()


def forged(walks: KeptWalks, text: str) -> None:
    """A document of another's that tells its key."""
    array = np.frombuffer(text.encode(), np.uint8)
    told = json.dumps({"names": ["document"], "key": KEY})
    stream = io.BytesIO()
    np.savez(stream, document=np.frombuffer(told.encode(), np.uint8), a0=array)
    place(walks).write_bytes(stream.getvalue())


@pytest.mark.parametrize("text", [
        "[" * 100_000, "[1]", "{}", "null", '[{"9": 1}, {}, {}, {}]', "[{}, {}, [1], {}]", "[{}, {}, {}, [1]]",
        "[{}, {}, {}]", "x",
    ])  # fmt: skip
def test_a_document_of_anothers_is_made_anew(text: str, walks: KeptWalks) -> None:
    made: list[Any] = [{}, {}, {}, {}]
    forged(walks, text)
    assert walks.document(KEY, lambda: made, lambda told: statistics_of([], told)).sizes == {}
    assert walks.document(KEY, lambda: pytest.fail("it is kept"), lambda told: told) == made
