"""No Python file is longer than 400 lines: one that grows past that wants to be two."""

from __future__ import annotations

from tests.support.paths import ROOT

MOST = 400


def test_files_are_short() -> None:
    files = [path for folder in ("src", "tests", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py")]
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in files}
    assert {path for path, length in lines.items() if length > MOST} == set()
