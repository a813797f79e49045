"""The Chinese pages keep step with the English ones: their commands and outputs, their links, the report's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from halfwise.core.reasons import Reason
from halfwise.report.axis import ZONES
from halfwise.report.html.graph import STATES
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
CHINESE = DOCS / "zh-CN"
STORIES = sorted((CHINESE / "tutorials").glob("*.md"))
TEMPLATES = ROOT / "src" / "halfwise" / "report" / "html" / "templates"


def outline(page: Path) -> tuple[list[str], list[str]]:
    """The blocks of code and what begins each part of a page; and the words of code in its text."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "```", text, flags=re.S)
    parts = [found.rstrip() for found in re.findall(r"^(?:#+ |```|- |\*\*)", prose, re.M)]
    return [*re.findall(r"```.*?```", text, re.S), *parts], sorted(set(re.findall(r"`[^`\n]+`", prose)))


def test_every_story_is_told_in_chinese() -> None:
    english = {page.name for page in (DOCS / "tutorials").glob("*.md")} - {"README.md"}
    assert {page.name for page in STORIES} == english
    index = (CHINESE / "README.md").read_text(encoding="utf-8")
    told = (DOCS / "tutorials" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"`examples/\w+\.py`", index) == re.findall(r"`examples/\w+\.py`", told)
    assert all(f"](tutorials/{page.name})" in index for page in STORIES)


@pytest.mark.parametrize("page", STORIES, ids=lambda page: page.stem)
def test_a_story_has_the_commands_of_the_english_one(page: Path) -> None:
    """Which are run: their scripts print what both pages show."""
    parts, words = outline(page)
    expected, known = outline(DOCS / "tutorials" / page.name)
    assert parts == expected
    assert words == known


@pytest.mark.parametrize("page", [ROOT / "README.zh-CN.md", *sorted(CHINESE.rglob("*.md"))], ids=lambda page: page.stem)
def test_the_text_is_chinese(page: Path) -> None:
    """Each line of prose has Chinese in it, and Chinese marks after Chinese letters."""
    text = re.sub(r"```.*?```|<picture>.*?</picture>", "", page.read_text(encoding="utf-8"), flags=re.S)
    prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)
    assert not re.findall(r"[\u4e00-\u9fff][,;:!?](?:\s|$)", prose)
    assert not [
        block for block in prose.split("\n\n") if len(re.findall(r"[A-Za-z]{3,} [a-z]{3,} [a-z]{3,}", block)) > 1
    ]


def test_the_words_of_the_report_are_explained() -> None:
    told = set(re.findall(r"`([^`]+)`", (CHINESE / "report.md").read_text(encoding="utf-8")))
    titles = {
        title.partition("{{")[0].strip().removesuffix(" of")
        for template in TEMPLATES.glob("*.html")
        for title in re.findall(r"<h2 id=\"[a-z]+-title\">([^<]+)", template.read_text(encoding="utf-8"))
    } - {"", "Notes"}
    assert titles <= told
    assert {state.title for state in STATES} | {zone.title for zone in ZONES} | {str(each) for each in Reason} <= told
