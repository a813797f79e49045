"""Every example runs, and prints what its tutorial shows; numbers may differ as processors do."""

from __future__ import annotations

import contextlib
import io
import math
import re
import runpy
import sys
import tempfile
from pathlib import Path

import pytest

from halfwise.compiler import rtx
from tests.support.paths import ROOT

TUTORIALS = sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.name != "README.md")
NUMBER = re.compile(r"(?<![\w./_])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w/]|\.\d)")
NEAR = 0.4  # of a number: one more or less in its last digit shown, on another processor


def script_of(page: Path) -> Path:
    (script,) = re.findall(r"^python (examples/\w+\.py)$", page.read_text(encoding="utf-8"), re.M)
    return ROOT / script


def printed_by(script: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # where an example leaves its model
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    monkeypatch.setattr(sys, "argv", [str(script)])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_shows_what_its_script_prints(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem == "fused-attention" and not rtx.available():
        pytest.skip("TensorRT-RTX is not installed (the rtx extra): nothing is compiled")
    (shown,) = re.findall(r"```text\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    printed = printed_by(script_of(page), tmp_path, monkeypatch)
    assert [NUMBER.sub("#", line) for line in printed.splitlines()] == [
        NUMBER.sub("#", line) for line in shown.splitlines()
    ]
    for found, told in zip(numbers(printed), numbers(shown), strict=True):
        assert math.isclose(found, told, rel_tol=NEAR, abs_tol=0.5 if told > 10 else 0), (found, told)


def test_every_script_has_a_tutorial_and_stands_in_the_list() -> None:
    scripts = {path for path in (ROOT / "examples").glob("*.py") if path.name != "graph.py"}
    assert {script_of(page) for page in TUTORIALS} == scripts
    index = (ROOT / "docs" / "tutorials" / "README.md").read_text(encoding="utf-8")
    for page in TUTORIALS:
        assert f"]({page.name})" in index and f"`examples/{script_of(page).name}`" in index


def test_without_the_compiler_the_example_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    printed = printed_by(ROOT / "examples" / "fused_attention.py", tmp_path, monkeypatch)
    assert "not compiled: " in printed and "rtx" in printed.rpartition("not compiled: ")[2]
