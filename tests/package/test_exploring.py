"""Property tests use the same examples every time, or fresh ones whose seed is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROPERTY = """
from pathlib import Path
from hypothesis import given, strategies as st

@given(st.integers())
def test_it(number):
    with Path(__file__).with_name("seen").open("a") as seen:
        print(number, file=seen)
"""


def examples(folder: Path, *options: str) -> tuple[str, str]:
    """The examples that a run drew, and the seed that it printed."""
    (folder / "conftest.py").write_text("from tests.conftest import *\nfrom tests.conftest import pytest_configure\n")
    (folder / "test_one.py").write_text(PROPERTY)
    (folder / "seen").unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder, *options]
    environment = {**os.environ, "CI": "true"}  # where Hypothesis repeats itself unless it is told otherwise
    ran = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    seed = re.search(r"--hypothesis-seed (\d+)", ran.stdout)
    return (folder / "seen").read_text(), seed[1] if seed else ""


def test_fresh_examples_can_be_had_again(tmp_path: Path) -> None:
    same = examples(tmp_path)
    assert examples(tmp_path) == same
    fresh, seed = examples(tmp_path, "--hypothesis-profile", "explore")
    assert seed and fresh != same[0]
    assert examples(tmp_path, "--hypothesis-profile", "explore", "--hypothesis-seed", seed) == (fresh, seed)
