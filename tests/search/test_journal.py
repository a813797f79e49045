"""The journal: what was measured is there again, of the same question only, whatever state the file is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfwise.search.journal import Journal, digest


def test_entries_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path, "question")
    first.put("a", {"loads": [1.0, 2.0]})
    first.put("b", "inf")
    second = Journal(path, "question")
    assert second.get("a") == {"loads": [1.0, 2.0]}
    assert second.get("b") == "inf"
    assert second.resumed == 2


def test_another_question_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, "question").put("a", 1)
    other = Journal(path, "another")
    assert other.get("a") is None
    assert other.resumed == 0


def test_a_torn_last_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    journal.put("a", 1)
    journal.put("b", 2)
    path.write_text(path.read_text()[:-7])
    again = Journal(path, "question")
    assert again.get("a") == 1
    assert again.get("b") is None


def test_a_file_of_something_else_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"\xff\xfe not json")
    journal = Journal(path, "question")
    journal.put("a", 1)
    assert Journal(path, "question").get("a") == 1


def test_entries_after_a_torn_line_are_written_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    journal.put("a", 1)
    journal.put("b", 2)
    path.write_text(path.read_text()[:-7])
    again = Journal(path, "question")
    again.put("c", 3)
    assert Journal(path, "question").get("c") == 3


def test_a_discarded_journal_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "question")
    journal.put("a", 1)
    journal.discard()
    assert not path.exists()


def test_without_a_path_nothing_is_written() -> None:
    journal = Journal()
    journal.put("a", 1)
    assert journal.get("a") == 1
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
