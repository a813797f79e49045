"""Nothing in the HTML report can act: names are text, one script runs, commands hide nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.report.html.embed import as_json
from halfwise.report.html.names import ALL_KEPT, KEPT, SHOWN, Names
from halfwise.report.html.write import render
from halfwise.report.shell import shell
from halfwise.report.text import safe
from tests.models.report_models import (
    HOSTILE,
    healthy_result,
    hostile_result,
    overflow_result,
    repaired_result,
)
from tests.support.pages import WHEN, Page, shown
from tests.support.says import Says

# -- nothing in it acts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [overflow_result, healthy_result, hostile_result, repaired_result])
def test_nothing_is_fetched_and_only_its_own_script_runs(result: Any) -> None:
    text = render(result(), scan=None, trace=None, command="", when=WHEN, by_output={})
    page = Page(text)
    data, script = page.raw["script"]
    style = page.raw["style"][0]
    hashes = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in (style, script)]
    assert page.policy == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert len(page.raw["script"]) == 2 and len(page.raw["style"]) == 1
    for tag, attributes in page.tags:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form", "image", "use", "b64")
        assert not {"src", "srcset", "style", "action"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert attributes.get("href", "#").startswith("#")
    assert "@import" not in style and "innerHTML" not in script and "eval(" not in script
    assert not re.search(r"url\((?!#)", style)
    assert "<" not in data


def test_hostile_names_are_shown_as_text() -> None:
    page = shown(hostile_result())
    table = page.data["names"]
    for name in HOSTILE:
        assert safe(name) in table
    assert "window.stolen=2" in page.text  # seen, as words
    assert "safe\\u202egnp.exe\\u2066\\u200b\\u2028end" in page.text
    assert "line one\\nline two\\r\\x1b[31mred\\x1b[0m\\x00" in page.text
    assert "{{ 7*7 }}${8*8}" in page.text and "49" not in page.text.split("Culprits")[0]
    whole = render(hostile_result(), scan=None, trace=None, command="", when=WHEN, by_output={})
    assert not [c for c in whole if c != "\n" and (ord(c) < 32 or c in "\u202e\u2066\u200b\u2028\x7f")]


def test_a_name_of_ten_thousand_characters_stands_in_the_page_once() -> None:
    text = render(hostile_result(), scan=None, trace=None, command="", when=WHEN, by_output={})
    long = HOSTILE[-1]
    assert text.count(long) == 1
    part = long[: SHOWN * 2]
    assert text.count(part) == long.count(part)


@given(st.text())
def test_embedded_json_reads_back_and_has_no_markup(text: str) -> None:
    embedded = str(as_json({"a": [safe(text), 1.5]}))
    assert json.loads(embedded) == {"a": [safe(text), 1.5]}
    assert not set(embedded) & set("<>&\u2028\u2029")


@given(st.lists(st.text(min_size=1).filter(lambda t: "\x00" not in t), min_size=1, max_size=4))
def test_a_shown_command_holds_nothing_unseen(words: list[str]) -> None:
    line = shell(words)
    assert safe(line) == line
    if all(safe(word) == word for word in words):
        assert shlex.split(line) == words
    else:
        assert "$'" in line


@pytest.mark.parametrize("word", ["a\nb", "it's\ta", "back\\slash\n", "\u202eabc", "caf\udce9a1.onnx"])
def test_bash_reads_the_spelled_out_word_as_it_was(word: str) -> None:
    import subprocess

    done = subprocess.run(
        ["bash", "-c", f"printf %s {shell([word])}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True
    )
    assert done.stdout == word.encode(errors="surrogateescape")


def test_names_are_whole_until_there_is_no_more_room(says: Says) -> None:
    names = Names()
    long = ["n" * KEPT + str(i) for i in range(3)] + [f"{i:05}" + "m" * 9_000 for i in range(200)]
    indices = [names(name) for name in long]
    assert indices == list(range(len(long))) and names(long[0]) == 0
    assert "characters left out" in names.table[0]
    assert len(names.table[0]) < 2 * SHOWN
    assert names.table[3] == long[3]
    assert len(names.table[-1]) < 2 * SHOWN
    assert sum(map(len, names.table)) < ALL_KEPT + 3 * SHOWN * len(long)
