"""Weights of large files: what is asked for, what stays in memory, and what is let go, as the system is told."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.model import passing
from halfwise.model.mapped_once import map_once
from halfwise.model.passing import Passing
from halfwise.model.weights import DerivedTensor

PAGE = mmap.PAGESIZE
SIZE = 4 * PAGE  # of a weight

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="a system that is not asked")


@dataclass
class System:
    """What it was told, as (file, first page, pages)."""

    asked: list[tuple[str, int, int]] = field(default_factory=list)
    gone: list[tuple[str, int, int]] = field(default_factory=list)

    def told(self) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
        found = self.asked, self.gone
        self.asked, self.gone = [], []
        return found


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """With large weights of four pages, asked for in one piece; nothing is free."""
    seen = System()

    def advise(file: int, start: int, size: int, advice: int) -> None:
        into = seen.asked if advice == os.POSIX_FADV_WILLNEED else seen.gone
        into.append((Path(f"/proc/self/fd/{file}").readlink().name, start // PAGE, size // PAGE))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    for name, value in (
        ("_LEAST", SIZE),
        ("_PIECE", SIZE),
        ("_PASSED", set()),
        ("_WALK", 3 * PAGE),
        ("memory_free", lambda: 0),
    ):
        monkeypatch.setattr(passing, name, value)
    yield seen


def _weights(folder: Path, count: int, name: str = "m.data") -> list[ir.ExternalTensor]:
    (folder / name).write_bytes(np.arange(count * SIZE // 4, dtype=np.float32).tobytes())
    return [
        ir.ExternalTensor(
            name, k * SIZE, SIZE, ir.DataType.FLOAT, shape=ir.Shape([SIZE // 4]), name=f"{name}{k}", base_dir=folder
        )
        for k in range(count)
    ]


def test_the_next_weights_are_asked_for_and_those_before_let_go(system: System, tmp_path: Path) -> None:
    one, two, three = _weights(tmp_path, 3)
    walk = Passing([[one], [], [two, three], []])
    walk.at(0)
    assert system.told() == ([("m.data", 0, 4), ("m.data", 4, 4), ("m.data", 8, 4)], [])
    walk.at(1)  # has none: the weights of the first may still be read
    assert system.told() == ([], [])
    walk.at(2)
    assert system.told() == ([], [("m.data", 0, 4)])
    for _ in range(2):
        walk.at(2)  # for another input
        assert system.told() == ([], [])
    walk.at(3)
    walk.end()
    assert system.told() == ([], [("m.data", 4, 4), ("m.data", 8, 4)])


def test_what_the_next_step_reads_too_stays(system: System, tmp_path: Path) -> None:
    one, two = _weights(tmp_path, 2)
    walk = Passing([[one, two], [one]])
    walk.at(0)
    walk.at(1)
    assert system.told()[1] == [("m.data", 4, 4)]


def test_the_beginning_stays(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten pages that are free nine, but for three that a walk takes: the first weight and half of the second."""
    monkeypatch.setattr(passing, "memory_free", lambda: 10 * PAGE)
    walk = Passing([[each] for each in _weights(tmp_path, 3)])
    for number in range(3):
        walk.at(number)
    walk.end()
    assert system.told()[1] == [("m.data", 6, 2), ("m.data", 8, 4)]


def test_several_files_share_what_is_free(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "memory_free", lambda: 10 * PAGE)
    (first,), (second,) = _weights(tmp_path, 1, "a.data"), _weights(tmp_path, 1, "b.data")
    walk = Passing([[second], [first]])
    walk.at(0)
    walk.at(1)
    walk.end()
    assert system.told()[1] == [("b.data", 2, 2)]


def test_of_files_that_stay_only_the_first_walk_asks(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "memory_free", lambda: 1 << 30)
    weights = _weights(tmp_path, 2)
    for asked in ([("m.data", 0, 4), ("m.data", 4, 4)], []):
        walk = Passing([[each] for each in weights])
        walk.at(0)
        walk.at(1)
        walk.end()
        assert system.told() == (asked, [])


def test_what_is_made_of_a_weight_is_read_there(system: System, tmp_path: Path) -> None:
    (weight,) = _weights(tmp_path, 1)
    made = DerivedTensor(weight, b"", lambda: lambda part, into: None)
    small = ir.tensor(np.zeros(3, np.float32))
    walk = Passing([[small], [made, small]])
    walk.at(0)
    assert system.told() == ([], [])
    walk.at(1)
    assert system.told() == ([("m.data", 0, 4)], [])


def test_a_large_weight_is_asked_for_in_pieces(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_PIECE", 3 * PAGE)
    Passing([_weights(tmp_path, 1)]).at(0)
    assert system.told() == ([("m.data", 0, 3), ("m.data", 3, 1)], [])


def test_what_was_let_go_reads_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system itself, of a file that is mapped."""
    monkeypatch.setattr(passing, "_LEAST", SIZE)
    monkeypatch.setattr(passing, "memory_free", lambda: 0)
    weights = _weights(tmp_path, 3)
    map_once([ir.Value(name=each.name, const_value=each) for each in weights])
    arrays = [each.numpy() for each in weights]
    before = [array.copy() for array in arrays]
    walk = Passing([[each] for each in weights])
    for number in range(3):
        walk.at(number)
    walk.end()
    assert all((after == array).all() for after, array in zip(arrays, before, strict=True))


def test_a_file_that_is_gone_is_no_matter_here(system: System, tmp_path: Path) -> None:
    weights = _weights(tmp_path, 2)
    (tmp_path / "m.data").unlink()
    walk = Passing([[each] for each in weights])
    walk.at(0)
    walk.at(1)
    walk.end()
    assert system.told() == ([], [])
