"""The README and the docs keep their word: two commands, verbs, options and files that exist, pages of few words."""

from __future__ import annotations

import math
import os
import pkgutil
import re
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

import halfwise
from halfwise.cli.main import GROUPS, VERBS
from halfwise.report.groups import Grouping, kept_nodes
from tests.support.paths import ROOT
from tools import reference

README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
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
        (tools, ("pip", "python", "pytest", "ruff", "mypy", "halfwise")),
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
    assert ran == ["python3", "pip", "pip", "pytest", "ruff", "ruff", "mypy", "pytest"]
    assert "tests/browser" in done.stdout.splitlines()[-1]

    (tools / "pytest").write_text("#!/bin/sh\nexit 1\n")
    failed = subprocess.run(["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True)
    assert failed.returncode != 0 and "ran ruff" not in failed.stdout
    for tool in ("mypy", "pip", "python"):  # what is done beside the tests
        (tools / "pytest").write_text("#!/bin/sh\n")
        (tools / tool).write_text(f'#!/bin/sh\necho "{tool} says why"\ncase "$*" in *-U*|*dev*) ;; *) exit 1;; esac\n')
        failed = subprocess.run(["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True)
        assert failed.returncode != 0 and f"{tool} says why" in failed.stdout
        (tools / tool).write_text("#!/bin/sh\n")


def test_the_readme_is_short_and_leads_from_five_symptoms_to_commands() -> None:
    assert len(README.splitlines()) <= 110
    (table,) = re.findall(r"^\| symptom \| command \|\n\|---\|---\|\n((?:\|.*\n)+)", README, re.M)
    commands = [row.rstrip(" |").rpartition("| ")[2] for row in table.splitlines()]
    assert len(commands) == 5
    assert all(re.match(r"`halfwise [a-z]+ ", command) for command in commands)


def test_the_readme_shows_what_fix_finds(shared_models: Path) -> None:
    """The data of the screen that it shows, whatever their words; errors may differ as processors do."""
    (shown,) = re.findall(r"```\n\$ halfwise fix magika_v1\.onnx .*?\n(.*?)```", README, re.S)
    assert len(shown.splitlines()) == 10
    folder = shared_models / "magika_v1"
    result = halfwise.fix(folder / "model.onnx", str(folder))
    assert result.met
    nodes = len(result.model.nodes)
    assert re.search(rf"\b{len(result.fp32_nodes)} of (?:its )?{nodes} nodes", shown)
    assert f" {result.fp16['target_label'].nonfinite} " in shown
    (error,) = re.findall(r"\b0\.000\d+", shown)
    assert math.isclose(result.fixed["target_label"].rel_l2, float(error), rel_tol=0.05)
    groups = Grouping(result.model, [site.name for site in result.sites.all]).groups(kept_nodes(result))
    listed = re.findall(r"^(\S+(?: \S+)*) {2,}(?:(\d+) nodes|(\w+)) {2,}\S", shown.partition(" why\n")[2], re.M)
    found = {
        (g.title, str(len(g.nodes)) if len(g.nodes) > 1 else "", "" if g.nodes[1:] else g.worst.op) for g in groups
    }
    assert len(listed) == 3 and set(listed) <= found


def test_the_chinese_readme_keeps_step() -> None:
    """The same sections, blocks of code, points, rows, words of code and links, in the same order but for the words."""

    def outline(text: str) -> list[str]:
        prose = re.sub(r"```.*?```", "```", text, flags=re.S)
        return [m.group() for m in re.finditer(r"^(?:#+|```|- |\|(?:-+\|)*|<picture>)", prose, re.M)]

    def code(text: str) -> list[str]:
        return sorted(re.findall(r"`[^`\n]+`", re.sub(r"```.*?```", "", text, flags=re.S)))

    def links(text: str) -> list[str]:
        found = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
        told = [link or file for link, file in found if not link.startswith("README")]
        return sorted("docs/tutorials/README.md" if link == "docs/zh-CN/README.md" else link for link in told)

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
        assert verb in {*VERBS, *GROUPS}
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `halfwise ([a-z]+)", index, re.M) == [*VERBS, *GROUPS]
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_python_in_the_docs_names_what_there_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    imported = [f"{module}.{name}" for module, name in re.findall(r"^from (halfwise[\w.]*) import (\w+)", text, re.M)]
    for name in [*imported, *re.findall(r"\b(halfwise(?:\.[a-z_]+)+)\(", text)]:
        if not name.startswith("halfwise.olive.") or find_spec("olive") is not None:  # of a class of Olive's
            assert pkgutil.resolve_name(name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_that_the_docs_name_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / link).exists(), link
    for link, place in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", text):
        assert place in _headings(page.parent / link if link else page), f"{link}#{place}"
    for file in re.findall(r"`((?:src|tests|benchmarks|examples|tools|docs)/[\w/.]+)`", text):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_commands_in_the_docs_have_only_options_that_exist(page: Path) -> None:
    sections = re.findall(r"^### halfwise (\w+)\n(.*?)(?=^### |\Z)", reference.reference(), re.S | re.M)
    known = {verb: {*re.findall(r"--[a-z0-9-]+", text), "--help"} for verb, text in sections}
    assert set(VERBS) <= set(known)
    for verb, rest in re.findall(r"halfwise (\w+)((?: [^`\n|#]*)?)", page.read_text(encoding="utf-8")):
        if verb in VERBS:
            options = set(re.findall(r"(?<![\w-])--[a-z0-9-]+", rest))
            assert options <= known[verb], f"halfwise {verb}{rest}"
            typed = verb == "fix" and "--inputs" in options and "..." not in rest
            assert not typed or "--out" in options, f"halfwise {verb}{rest}"  # which fix refuses


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / link).resolve() for link in re.findall(r"\]\((?!http)([^)#]+)\)", index)}
    assert {page for page in PAGES if page.parent == DOCS and page.name != "README.md"} <= linked


def test_the_docs_are_short() -> None:
    """Words that somebody wrote: not what the code says of itself, nor the tables and sums that benchmarks print."""
    assert sum(_written_words(page) for page in PAGES if "zh-CN" not in page.parts) <= 15_000
    assert _written_words(DOCS / "tensorrt-quickstart.md") <= 900


def _written_words(page: Path) -> int:
    lines = page.read_text(encoding="utf-8").splitlines()
    if page == reference.PAGE:
        return 0
    printed = lines[2].startswith(("All tables on this page are printed by the command above them.", "Generated by `"))
    return sum(len(re.findall(r"\S*\w\S*", line)) for line in lines if not (printed and line.startswith("|")))


def test_generated_pages_say_so() -> None:
    generated = {page.name for page in PAGES if "\nGenerated by `" in page.read_text(encoding="utf-8")}
    assert generated == {"reference.md", "fidelity.md"}


def _headings(page: Path) -> set[str]:
    """The anchors that code hosts make of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
