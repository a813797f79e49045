"""The journal: what was measured is there again, of the same question only, whatever state the file is in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from halfwise.search.journal import Journal, digest
from halfwise.search.journal_entries import NoiseEntry, OneEntry, SetEntry


def test_entries_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path, "question")
    first.put("a", {"loads": [1.0, 2.0]})
    first.put("b", "inf")
    second = Journal(path, "question")
    assert second.get("a", dict) == {"loads": [1.0, 2.0]}
    assert second.get("b", str) == "inf"
    assert second.resumed == 2


def test_another_question_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, "question").put("a", 1)
    other = Journal(path, "another")
    assert other.get("a", int) is None
    assert other.resumed == 0


def test_a_torn_last_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    journal.put("a", 1)
    journal.put("b", 2)
    path.write_text(path.read_text()[:-7])
    again = Journal(path, "question")
    assert again.get("a", int) == 1
    assert again.get("b", int) is None


def test_a_file_of_something_else_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"\xff\xfe not json")
    journal = Journal(path, "question")
    journal.put("a", 1)
    assert Journal(path, "question").get("a", int) == 1


def test_entries_after_a_torn_line_are_written_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    journal.put("a", 1)
    journal.put("b", 2)
    path.write_text(path.read_text()[:-7])
    again = Journal(path, "question")
    again.put("c", 3)
    assert Journal(path, "question").get("c", int) == 3


def test_a_discarded_journal_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    journal.put("a", 1)
    journal.discard()
    assert not path.exists()


def test_without_a_path_nothing_is_written() -> None:
    journal = Journal()
    journal.put("a", 1)
    assert journal.get("a", int) == 1
    journal.discard()


def test_keys_keep_their_parts_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a", 1) == digest("a", 1)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"key": ["a"], "value": 1, "sum": ""}', "[]", "1", "null"])
def test_a_line_of_a_stranger_costs_that_line_only(line: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, "question").put("a", 1)
    path.write_text(f"{path.read_text()}\n{line}")
    assert Journal(path, "question").resumed == 1
    path.write_text(line)
    assert Journal(path, "question").resumed == 0


COUNTED = {"runs": 1.5, "until": 3}


def test_an_entry_of_another_kind_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    for key, value in (
        ("good", {"load": "inf", **COUNTED}),
        ("odd", {"load": "x", **COUNTED}),
        ("none", [1]),
    ):
        journal.put(key, value)
    again = Journal(path, "question")
    assert again.get("good", OneEntry) == OneEntry(math.inf, 1.5, 3.0) and again.runs("good") == (1.5, 3.0)
    for key in ("odd", "none"):
        assert again.get(key, OneEntry) is None and again.runs(key) == (0.0, math.inf)
    assert again.get("good", OneEntry, lambda entry: entry.load < 1) is None


ANOTHERS: dict[str, dict[str, object]] = {
    "fewer samples": {"loads": ["1.0"], "uncompared": [], "outputs": {}, **COUNTED},
    "runs below zero": {"loads": ["1.0", "2.0"], "uncompared": [], "outputs": {}, **COUNTED, "runs": -1},
    "a number": {"loads": [1.0, 2.0], "uncompared": [], "outputs": {}, **COUNTED},
    "a chance below zero": {
        "loads": ["1", "2"],
        "uncompared": [],
        "outputs": {},
        "runs": 1,
        "until": 3,
        "chances": [-1.0, 0.0],
    },
    "chances of others": {
        "loads": ["1", "2"],
        "uncompared": [],
        "outputs": {},
        "runs": 1,
        "until": 3,
        "chances": [1.0],
    },
}


@pytest.mark.parametrize("which", ANOTHERS)
def test_the_entry_of_a_set_fits_its_samples(which: str) -> None:
    journal = Journal()
    journal.put(
        "sound",
        {"loads": ["1.0", "inf"], "uncompared": [], "outputs": {}, "chances": [0.5, math.inf], **COUNTED},
    )
    journal.put("another's", ANOTHERS[which])
    assert journal.get("sound", SetEntry, lambda entry: entry.of(2)) is not None
    assert journal.get("another's", SetEntry, lambda entry: entry.of(2)) is None


def test_what_a_walk_saw_is_of_nodes_that_are_there() -> None:
    seen = NoiseEntry(((("a", "b"), math.inf, True), (("a",), 0.5, False)), {"a": 1.0, "b": 2.0}, 4.0, 9.0, (0, 3))
    journal = Journal()
    journal.put("walk", seen.to_json())
    assert journal.get("walk", NoiseEntry, lambda entry: entry.of({"a": 1, "b": 2})) == seen
    assert journal.get("walk", NoiseEntry, lambda entry: entry.of({"a": 1})) is None
    journal.put("walk", {**seen.to_json(), "cost": {"a": 1.0}})
    assert journal.get("walk", NoiseEntry, lambda entry: entry.of({"a": 1, "b": 2})) is None
