"""What templates are compiled to is kept where Python keeps the bytecode of modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from halfwise.report.html import sealed

PAGE = "{{ 6 * number }}"


def shown(text: str = PAGE) -> str:
    """As a new process shows it."""
    environment = Environment(loader=DictLoader({"page": text}), autoescape=True, bytecode_cache=sealed._Compiled())
    return environment.get_template("page").render(number=7)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sealed._Compiled, "_file", lambda self, bucket: tmp_path / f"{bucket.key}.pyc")
    return tmp_path


def test_another_process_does_not_compile_them_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown() == "42" and len(list(kept.iterdir())) == 1

    def compiled(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(Environment, "_compile", compiled)
    assert shown() == "42"


def test_what_changed_or_is_damaged_is_compiled_anew(kept: Path) -> None:
    assert shown() == "42"
    assert shown("{{ 5 * number }}") == "35"
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:9], whole[:40], whole[:60] + b"\xff" * 20, whole + b"\0", b"nonsense"):
        file.write_bytes(damaged)
        assert shown("{{ 5 * number }}") == "35"


def test_where_nothing_can_be_kept_the_page_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sealed._Compiled, "_file", lambda self, bucket: tmp_path / "file" / "inside" / "page.pyc")
    assert shown() == "42"


def test_python_s_own_settings_are_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    for never, count in ((True, 0), (False, 1)):
        monkeypatch.setattr(sys, "dont_write_bytecode", never)
        assert shown() == "42"
        assert len(list(tmp_path.rglob("*.pyc"))) == count
