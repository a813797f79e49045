"""Compiled templates are kept for the next process, and no code is read that somebody else may have written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from jinja2 import Environment

from halfwise.core.user_cache import SETTING
from halfwise.report.html import sealed
from halfwise.report.html.compiled import CompiledTemplates

TEMPLATE = "picture.html"
posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SETTING, str(tmp_path))
    return tmp_path / "templates"


def _compiles(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a process that starts now has to compile a template."""
    compiled: list[str] = []
    real = Environment.compile

    def compile_(self: Environment, source: str, *rest: object, **more: object) -> object:
        compiled.append(source)
        return real(self, source, *rest, **more)  # type: ignore[call-overload]

    with monkeypatch.context() as patched:
        patched.setattr(Environment, "compile", compile_)
        patched.setattr(sealed, "_COMPILED", CompiledTemplates())
        made = sealed.templates("halfwise.report.html")
        for _ in range(2):
            made.get_template(TEMPLATE)
    assert len(compiled) < 2
    return bool(compiled)


def test_the_next_process_compiles_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compiles(monkeypatch) and len(list(kept.iterdir())) == 1
    assert not _compiles(monkeypatch)


def test_other_code_compiles_anew(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compiles(monkeypatch)
    monkeypatch.setattr("halfwise.report.html.compiled.code_identity", lambda: "another")
    assert _compiles(monkeypatch) and not _compiles(monkeypatch)


@pytest.mark.parametrize("cut", [0, 10, 40, -1])
def test_what_is_damaged_is_compiled_anew(kept: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    _compiles(monkeypatch)
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:cut])
    assert _compiles(monkeypatch) and not _compiles(monkeypatch)


@posix
@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("folder", [False, True])
def test_what_others_may_write_is_not_run(kept: Path, monkeypatch: pytest.MonkeyPatch, mode: int, folder: bool) -> None:
    _compiles(monkeypatch)
    (file,) = kept.iterdir()
    opened = kept if folder else file
    opened.chmod(opened.stat().st_mode & 0o777 | mode)
    assert _compiles(monkeypatch)


@posix
def test_what_belongs_to_others_is_not_run(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compiles(monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    assert _compiles(monkeypatch)


def test_nothing_is_kept_where_the_user_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "0")
    assert _compiles(monkeypatch) and _compiles(monkeypatch)


def test_a_folder_that_cannot_be_made_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(SETTING, str(tmp_path / "file"))
    assert _compiles(monkeypatch) and _compiles(monkeypatch)
