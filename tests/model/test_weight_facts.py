"""What was found out about large weights is known in the next run, as long as their file is the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.core.cache_folder import SETTING, cache_folder
from halfwise.core.counting import Counts, count
from halfwise.model import weight_facts
from halfwise.model.weight_facts import fact_of_file, fact_of_weight, facts_of_weights


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of facts."""
    folder = tmp_path / "caches" / "weights"
    monkeypatch.setattr(weight_facts, "cache_folder", lambda name: folder)
    monkeypatch.setattr(weight_facts, "_LEAST", 1)
    monkeypatch.setattr(weight_facts, "_LARGE", 1)
    monkeypatch.setattr(weight_facts, "_SETTLED_NS", 0)
    return folder


def _next_run() -> None:
    weight_facts._known.cache_clear()


def _weight(folder: Path, name: str = "w", start: int = 0) -> ir.ExternalTensor:
    path = folder / "m.data"
    if not path.exists():
        path.write_bytes(np.arange(40, dtype=np.float32).tobytes())
    return ir.ExternalTensor("m.data", start, 40, ir.DataType.FLOAT, shape=ir.Shape([10]), name=name, base_dir=folder)


def test_it_is_found_once(kept: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    def found(question: str, start: int = 0) -> object:
        _next_run()
        told = [question, 0.1, float("inf"), start]
        return fact_of_weight(_weight(tmp_path, start=start), question, lambda: asked.append(question) or told)

    for question, start in (("a", 0), ("b", 0), ("a", 40), ("a", 0), ("b", 0), ("a", 40)):
        assert found(question, start) == [question, 0.1, float("inf"), start]
    assert asked == ["a", "b", "a"]
    os.utime(tmp_path / "m.data", (5, 5))  # another file, for all that is known
    found("a")
    assert asked == ["a", "b", "a", "a"] and len(list(kept.iterdir())) == 2


def test_only_those_not_known_are_asked_for(kept: Path, tmp_path: Path) -> None:
    weights = [_weight(tmp_path, start=start) for start in (0, 40, 80)]
    fact_of_weight(weights[1], "size", lambda: 7)
    asked: list[int] = []

    def find(numbers: Sequence[int]) -> list[int]:
        asked.extend(numbers)
        return [10 * number for number in numbers]

    assert facts_of_weights(weights, "size", find) == [0, 7, 20] and asked == [0, 2]
    _next_run()
    assert facts_of_weights(weights, "size", find) == [0, 7, 20] and asked == [0, 2]


def test_damage_is_found_out_anew(kept: Path, tmp_path: Path) -> None:
    weights = [_weight(tmp_path, start=start) for start in (0, 40, 80)]
    for number, each in enumerate(weights):
        fact_of_weight(each, "size", lambda number=number: number)
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    first, second, third = whole[1:].splitlines(keepends=True)
    for damaged in (
        b"",
        b"\xff\0" * 50,
        whole[:-3],
        first[:-2] + b"9\n" + second + third,
        b"\n" + first[5:] + second,
        whole + b"\nx y z",
    ):
        file.write_bytes(damaged)
        _next_run()
        assert [fact_of_weight(each, "size", lambda n=n: n) for n, each in enumerate(weights)] == [0, 1, 2]


def test_a_file_that_may_change_without_a_trace_is_not_remembered(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes within one tick of the file system's clock."""
    monkeypatch.setattr(weight_facts, "_SETTLED_NS", 60 * 10**9)
    for answer in (1, 2):
        assert fact_of_weight(_weight(tmp_path), "size", lambda answer=answer: answer) == answer
    assert not kept.exists()


def test_a_line_that_a_full_disk_cut_off_spoils_no_other_answer(kept: Path, tmp_path: Path) -> None:
    weights = [_weight(tmp_path, start=start) for start in (0, 40, 80)]
    fact_of_weight(weights[0], "size", lambda: 0)
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    fact_of_weight(weights[1], "size", lambda: 1)
    fact_of_weight(weights[2], "size", lambda: 2)
    for known in ([7, 1, 2], [7, 1, 2]):
        _next_run()
        assert facts_of_weights(weights, "size", lambda numbers: [7 for _ in numbers]) == known


def test_runs_at_once_lose_nothing(kept: Path, tmp_path: Path) -> None:
    weights = [_weight(tmp_path, start=4 * start) for start in range(30)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: fact_of_weight(each, "place", lambda: "x" * 5000 + str(each.offset)), weights))
    _next_run()
    assert facts_of_weights(weights, "place", lambda numbers: [None for _ in numbers]) == [
        "x" * 5000 + str(each.offset) for each in weights
    ]


def test_a_folder_that_cannot_be_written_to_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(weight_facts, "cache_folder", lambda name: tmp_path / "file" / "weights")
    monkeypatch.setattr(weight_facts, "_LEAST", 1)
    tensor = _weight(tmp_path)
    assert fact_of_file(tmp_path / "m.data", "size", lambda: 3) == 3
    assert fact_of_weight(tensor, "size", lambda: 4) == 4


def test_few_files_stay(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_facts, "_FILES", 3)
    for number in range(6):
        (tmp_path / f"{number}.data").write_bytes(b"12")
        fact_of_file(tmp_path / f"{number}.data", "size", lambda: 2)
    assert len(list(kept.iterdir())) == 3


def test_small_weights_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_facts, "cache_folder", lambda name: tmp_path / "weights")
    assert fact_of_weight(_weight(tmp_path), "size", lambda: 1) == 1
    assert fact_of_weight(ir.tensor(np.ones(3, np.float32)), "size", lambda: 2) == 2
    assert not (tmp_path / "weights").exists()


def test_they_lie_where_the_system_keeps_what_can_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder("weights") == Path("/caches/halfwise/weights")


def test_counts_come_back_as_they_were(kept: Path, tmp_path: Path) -> None:
    array = np.array([1e-8, 7e4, np.inf, -0.0, 1e-6, -3.3], np.float32)
    (tmp_path / "m.data").write_bytes(array.tobytes())
    tensor = ir.ExternalTensor("m.data", 0, 24, ir.DataType.FLOAT, shape=ir.Shape([6]), name="w", base_dir=tmp_path)
    for _ in range(2):
        _next_run()
        assert Counts(**fact_of_weight(tensor, "counts", lambda: asdict(count(array)))) == count(array)


def test_the_folder_is_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_facts, "_LEAST", 1)
    monkeypatch.setattr(weight_facts, "_SETTLED_NS", 0)
    asked: list[str] = []
    for told in ("0", str(tmp_path / "mine"), "0"):
        monkeypatch.setenv(SETTING, told)
        for _ in range(2):
            _next_run()
            _weight(tmp_path)
            assert fact_of_file(tmp_path / "m.data", "size", lambda told=told: asked.append(told) or 3) == 3
    assert asked == ["0", "0", str(tmp_path / "mine"), "0", "0"]
    assert len(list((tmp_path / "mine" / "weights").iterdir())) == 1


def test_another_code_asks_anew(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for code in ("0.1.0 a", "0.1.0 b", "0.1.0 a"):
        monkeypatch.setattr(weight_facts, "code_identity", lambda code=code: code)
        _next_run()
        found.append(fact_of_weight(_weight(tmp_path), "size", lambda code=code: code))
    assert found == ["0.1.0 a", "0.1.0 b", "0.1.0 a"] and len(list(kept.iterdir())) == 2


def test_the_oldest_go_where_all_are_too_large(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_facts, "_IN_ALL", 2500)
    files = [tmp_path / f"{number}.data" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(b"12")
        fact_of_file(file, "text", lambda: "x" * 1000)
        for each in kept.iterdir():
            os.utime(each, ns=(0, each.stat().st_mtime_ns - 10**9))
        if number == 1:
            _next_run()
            fact_of_file(files[0], "text", str)  # used again: it stays
    _next_run()
    (tmp_path / "3.data").write_bytes(b"12")
    fact_of_file(tmp_path / "3.data", "text", lambda: "y")
    _next_run()
    assert [fact_of_file(file, "text", lambda: "gone") == "gone" for file in files] == [False, True, False]


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes as POSIX has them")
@pytest.mark.parametrize("put", ["symlink_to", "hardlink_to", "pipe"])
def test_nothing_is_kept_in_what_stands_in_the_place_of_facts(put: str, kept: Path, tmp_path: Path) -> None:
    """A pipe would wait for somebody who reads, a link leads to another file."""
    weight = _weight(tmp_path)
    fact_of_weight(weight, "size", lambda: 7)
    (place,) = kept.iterdir()
    place.unlink()
    mine = tmp_path / "mine"
    mine.write_text("mine")
    if put == "pipe":
        os.mkfifo(place)
    else:
        getattr(place, put)(mine)
    _next_run()
    assert fact_of_weight(weight, "size", lambda: 8) == 8 and mine.read_text() == "mine"
