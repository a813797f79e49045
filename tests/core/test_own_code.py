"""What is kept goes by the code that made it, not by a version that stays from commit to commit."""

from __future__ import annotations

import os
from pathlib import Path

from halfwise._version import __version__
from halfwise.core.own_code import _digest, code_identity


def test_it_follows_what_the_files_hold_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    first, second = tmp_path / "a.py", tmp_path / "inner" / "b.py"
    first.write_text("x = 1\n")
    second.write_text("y = 2\n")
    before = _digest(tmp_path)
    (tmp_path / "a.pyc").write_text("other")
    os.utime(first, (5, 5))
    assert _digest(tmp_path) == before
    second.write_text("y = 3\n")
    changed = _digest(tmp_path)
    second.rename(tmp_path / "b.py")
    assert len({before, changed, _digest(tmp_path)}) == 3


def test_it_names_the_version() -> None:
    assert code_identity().split() == [__version__, _digest(Path(__import__("halfwise").__file__).parent)]
