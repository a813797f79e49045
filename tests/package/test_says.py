"""Tests assert data; sentences are kept in `tests/golden`, one heading for each test that hands them over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from tests.support.paths import ROOT
from tests.support.says import GOLDEN, Says, file_of, holds, read, written

TESTS = ROOT / "tests"
LONG, MOST = 6, 40  # what is left: a compiler's own names and lines, and reasons of assertions
# A sentence has 25 words at most; names, numbers, paths and code are none.
WORD, WORDS = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*"), 25


def modules() -> list[Path]:
    return sorted(TESTS.rglob("test_*.py"))


def asserted(statements: list[Any]) -> Iterator[ast.AST]:
    """Every assertion, and every error that is waited for."""
    for each in statements:
        if isinstance(each, ast.Assert):
            yield each
        elif isinstance(each, ast.With):
            yield from (item for item in each.items if ast.unparse(item).startswith("pytest.raises"))
        for inner in ("body", "orelse", "handlers", "finalbody"):
            yield from asserted(getattr(each, inner, []))


def test_assertions_hold_data_and_few_sentences() -> None:
    long = {
        (path.relative_to(TESTS).as_posix(), text.lineno, text.col_offset)
        for path in modules()
        for part in asserted(ast.parse(path.read_text(encoding="utf-8")).body)
        for text in ast.walk(part)
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and len(text.value.split()) >= LONG
    }
    assert len(long) < MOST, sorted(long)


def test_every_heading_is_a_test_that_hands_over_its_sentences() -> None:
    named = {file_of(path): path.read_text(encoding="utf-8") for path in modules()}
    kept = sorted(GOLDEN.rglob("*.txt"))
    assert kept and set(kept) <= set(named)
    for file in kept:
        assert file.read_text(encoding="utf-8") == written(read(file), named[file]), file


def test_sentences_are_short() -> None:
    lines = {line for file in GOLDEN.rglob("*.txt") for said in read(file).values() for each in said
             for line in each.splitlines()}  # fmt: skip
    sentences = {sentence for line in lines for sentence in re.split(r"[.;!?](?:\s+|$)", line)}
    assert {each for each in sentences if words(each) > WORDS} == set()


def words(sentence: str) -> int:
    return sum(WORD.fullmatch(word.strip("\"'`(),:")) is not None for word in sentence.split())


# -- the fixture ------------------------------------------------------------------------------------------------------


def test_what_differs_between_machines_is_left_out(tmp_path: Path) -> None:
    says = Says(["{tmp}/m.onnx: of {onnxruntime}, in {root}/src"], False, tmp_path)
    says(f"{tmp_path}/some-test0/m.onnx: of {onnxruntime.__version__}, in {ROOT}/src")
    says.finish()


def test_a_sentence_is_compared_whole(tmp_path: Path) -> None:
    says = Says(["a line", "two of three"], False, tmp_path)
    says("a line")
    with pytest.raises(pytest.fail.Exception):
        says("two of three and more")
    with pytest.raises(pytest.fail.Exception):
        says("one more than is kept")
    with pytest.raises(pytest.fail.Exception):
        Says(["never said"], False, tmp_path).finish()


def test_the_lines_that_hold_something(tmp_path: Path) -> None:
    says = Says(["kept a\nkept b", "boom"], False, tmp_path)
    says("kept a\n\nelse\nkept b  ", "kept")
    with says.raises(ValueError) as raised:
        raise ValueError("boom")
    assert raised.value.args == ("boom",)
    with pytest.raises(pytest.fail.Exception):
        says("kept", "missing")


def test_any_text_may_stand_in_a_sentence() -> None:
    assert holds("it took … s (…)", "it took 3.5 s (of 9)")
    assert not holds("it took … s", "it took 3.5 s, and more")
    assert not holds("a.b", "a-b")


def test_what_is_kept_is_read_again_in_the_order_of_the_module(tmp_path: Path) -> None:
    source = "def test_first(): ...\ndef test_second(): ..."
    tests = {"test_second": ["one", "  two\nlines"], "test_gone": ["x"], "test_first[a]": ["-", ""], "test_first": []}
    file = tmp_path / "golden.txt"
    file.write_text(written(tests, source), encoding="utf-8")
    assert read(file) == {"test_first[a]": ["-", ""], "test_second": ["one", "  two\nlines"]}
    assert list(read(file)) == ["test_first[a]", "test_second"]
