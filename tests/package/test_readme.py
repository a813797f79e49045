"""The README keeps its word: two commands, verbs and files that exist; `.ci/run` runs the second command."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

import halfwise
from halfwise.cli.main import VERBS
from tests.support.paths import ROOT
from tools import reference

README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]


def test_exactly_two_commands_that_start_from_nothing() -> None:
    assert len(COMMANDS) == 2
    assert all(command.startswith("python3 -m venv .venv && ") for command in COMMANDS)
    assert COMMANDS[0].endswith("halfwise demo")
    assert "pytest" in COMMANDS[1]


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell script")
def test_the_gate_runs_the_second_command_then_the_browser_lint_and_types(tmp_path: Path) -> None:
    """In a copy where every tool only says its name."""
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_bytes(script.read_bytes())
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for folder, names in (
        (tools, ("pip", "pytest", "ruff", "mypy", "halfwise")),
        (tmp_path / "bin", ("python3", "chromium")),
    ):
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_text(f'#!/bin/sh\necho "ran {name} $@"\n')
            (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", tmp_path / ".ci" / "run"], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    ran = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ran ")]
    assert ran[:4] == ["python3", "pip", "pip", "pytest"]
    assert ran[4:6] == ["pip", "pytest"] and not set(ran[6:-3]) - {"pip", "pytest"}  # what needs more than the README
    assert ran[-3:] == ["ruff", "ruff", "mypy"]

    (tools / "pytest").write_text("#!/bin/sh\nexit 1\n")
    failed = subprocess.run(["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True)
    assert failed.returncode != 0 and "ran ruff" not in failed.stdout


def test_the_chinese_readme_keeps_step() -> None:
    """The same sections, blocks of code, points, rows, words of code and links, in the same order but for the words."""

    def outline(text: str) -> list[str]:
        prose = re.sub(r"```.*?```", "```", text, flags=re.S)
        return [m.group() for m in re.finditer(r"^(?:#+|```|- |\|(?:-+\|)*|<picture>)", prose, re.M)]

    def code(text: str) -> list[str]:
        return sorted(re.findall(r"`[^`\n]+`", re.sub(r"```.*?```", "", text, flags=re.S)))

    def links(text: str) -> list[str]:
        found = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
        return sorted(link or file for link, file in found if not link.startswith("README"))

    assert outline(CHINESE) == outline(README)
    assert re.findall(r"```.*?```", CHINESE, re.S) == re.findall(r"```.*?```", README, re.S)
    assert code(CHINESE) == code(README)
    assert links(CHINESE) == links(README)
    assert "](README.zh-CN.md)" in README and "](README.md)" in CHINESE


def test_the_picture_is_small_and_there_in_light_and_dark() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(pictures) == 2
    for picture in pictures:
        content = (ROOT / picture).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) < 200_000


def test_the_reference_is_what_the_code_says() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.reference(), "run: python -m tools.reference"


def test_verbs_and_links_exist() -> None:
    for verb in re.findall(r"`halfwise ([a-z]+)", README):
        assert verb in VERBS
    assert set(re.findall(r"^\| `halfwise ([a-z]+)", README, re.M)) == set(VERBS)
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link


def test_the_python_example_uses_what_there_is() -> None:
    for name in re.findall(r"halfwise\.([a-z_]+)\(", README):
        assert name in halfwise.__all__


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_links_and_files_that_the_docs_name_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / link).exists(), link
    for file in re.findall(r"`((?:src|tests|benchmarks|examples|tools)/[\w/.]+)`", text):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_commands_in_the_docs_have_only_options_that_exist(page: Path) -> None:
    sections = re.findall(r"^### halfwise (\w+)\n(.*?)(?=^### |\Z)", reference.reference(), re.S | re.M)
    known = {verb: {*re.findall(r"--[a-z0-9-]+", text), "--help"} for verb, text in sections}
    assert set(VERBS) <= set(known)
    for verb, rest in re.findall(r"halfwise (\w+)((?: [^`\n|#]*)?)", page.read_text(encoding="utf-8")):
        if verb in VERBS:
            options = set(re.findall(r"(?<![\w-])--[a-z0-9-]+", rest))
            assert options <= known[verb], f"halfwise {verb}{rest}"
