"""What is tracked lies in the repository: a link leads to a file that others do not have."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.paths import ROOT

LINK = "120000"


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="this is no checkout of git")
def test_no_tracked_file_is_a_link() -> None:
    told = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "README.md" in told
    assert [line for line in told.splitlines() if line.startswith(LINK)] == []
