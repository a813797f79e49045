"""Markdown summaries: what is told, and that nothing a model brings along can act, by a real Markdown reader."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from halfwise.backends import BackendRecord
from halfwise.backends.confirm import Confirmation
from halfwise.core.english import say
from halfwise.core.english.finding import finding
from halfwise.core.finding import Where
from halfwise.core.tolerance import Verdict
from halfwise.deploy.deploy_files import DeployFiles
from halfwise.report.markdown import code, fix_markdown, gate_markdown, prose
from halfwise.report.text import safe
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.parts import FixFiles
from halfwise.verbs.gate import gate
from tests.models.report_models import HOSTILE, healthy_result, hostile_model, hostile_result, overflow_result
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.messages import saying
from tests.support.says import Says

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
NAMES = (
    *HOSTILE[:-1],
    "a|b",
    "`tick` ``two``",
    "`",
    "[link](http://x.example)",
    "![image](http://x.example/a.png)",
    "**bold** _under_ ~~gone~~",
    "@someone #12 http://x.example www.x.example",
    "# heading",
    "- item",
    "<details><summary>x</summary>",
    "&lt;b&gt; &amp;",
    "\\|",
    "   ",
    "|---|",
    "$x$",
)


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


class Read(HTMLParser):
    """The text of a page, and the elements in it."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.tags, self.cells = "", [], []
        self.feed(READER.render(markdown))
        self.cells = [cell.strip() for cell in self.cells]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not attrs, (tag, attrs)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.cells:
            self.cells[-1] += data


QUIET_TAGS = {"h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "strong", "ul", "li"} | {
    "details",
    "summary",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_table_is_that_name(name: str) -> None:
    read = Read(f"| a | b |\n|---|---|\n| {code(name)} | {prose(name)} |\n")
    assert set(read.tags) <= QUIET_TAGS
    assert len(read.cells) == 4
    assert read.cells[2:] == [safe(name).strip()] * 2


@given(st.text(max_size=60))
def test_any_name_in_a_table_is_that_name(name: str) -> None:
    read = Read(f"| a | b |\n|---|---|\n| {code(name, 200)} | {prose(name)} |\n")
    assert set(read.tags) <= QUIET_TAGS
    words = [" ".join(cell.split()) for cell in read.cells[2:4]]
    assert words == [" ".join(safe(name).split())] * 2


@pytest.mark.parametrize("text", ["@team", "http://x.example", "www.x.example", "#12", "GH-1 :smile: a_b"])
def test_what_code_hosts_act_on_beyond_markdown_is_spelled_out(text: str) -> None:
    shown = prose(text)
    assert Read(shown).text.strip() == text
    assert not re.search(r"@\w|#\d+(?!;)|://|www\.", re.sub(r"&#\d+;", "\N{WHITE SQUARE}", shown))


def test_fix_tells_verdict_errors_nodes_and_reasons(says: Says) -> None:
    result = overflow_result()
    text = fix_markdown(result)
    read = Read(text)
    assert set(read.tags) <= QUIET_TAGS
    says(text.splitlines()[0])
    assert "kept out of FP16" in read.cells
    assert {node.name for node in result.plan.nodes} <= set(read.cells)
    assert say(result.verdict.because) in read.text and say(result.fp16_verdict.because) in read.text
    assert set(result.fixed) <= set(read.cells)


def test_nothing_to_keep_is_short() -> None:
    text = fix_markdown(healthy_result())
    assert "kept out of FP16 |" not in text
    assert "synthetic input" in text


def test_who_spoils_a_kept_tolerance_stands_at_the_top(says: Says) -> None:
    refused = fix_markdown(replace(healthy_result(), files=FixFiles(deploy_files=DeployFiles(refusal="no kernel"))))
    says(refused.splitlines()[0])
    assert "\n- no kernel\n" in refused
    told = (finding("HW504", Where("model", "x"), saying("it broke"), {}),)
    nowhere = Verdict(False, math.inf, "", "", math.inf, 0.0)
    record = BackendRecord("ort-cuda", "", "")
    failed = Confirmation("ort-cuda", "strict", 1.0, nowhere, {}, {}, told, record)
    text = fix_markdown(replace(healthy_result(), confirmation=failed))
    assert "it broke" in text and "speaks of" not in text


def test_hostile_models_stay_text() -> None:
    for text in (fix_markdown(hostile_result()), gate_markdown(gate(hostile_result().plan, hostile_model()))):
        read = Read(text)
        assert set(read.tags) <= QUIET_TAGS
        assert not set(text) & set("\x00\x1b\u202e\u2066\u200b\u2028\r")
        assert max(len(line) for line in text.splitlines()) < 6_000


def test_gate_shows_each_check_and_what_failed(tmp_path: Path, halfwise_cli: CommandLine) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    fix(model, inputs, out=tmp_path / "out", repairs=("none",))
    plan = next((tmp_path / "out").glob("*.plan.json"))
    summary = tmp_path / "summary.md"
    assert halfwise_cli("gate", model, "--plan", plan, "--inputs", inputs, "--markdown", summary).code == 0
    read = Read(summary.read_text(encoding="utf-8"))
    assert summary.read_text(encoding="utf-8").startswith("## ✅ halfwise gate: ")
    assert [cell for cell in read.cells if cell in ("fingerprint", "nodes", "tolerance", "violations", "findings")] == [
        "fingerprint",
        "nodes",
        "tolerance",
        "violations",
        "findings",
    ]
    plan.write_text(plan.read_text(encoding="utf-8").replace("/norm/Pow", "/gone|x"), encoding="utf-8")
    halfwise_cli("gate", model, "--plan", plan, "--inputs", inputs, "--markdown", summary)
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("## ❌ halfwise gate: ") and "### nodes" in text
    assert "/gone|x" in Read(text).text


def test_fix_writes_it(tmp_path: Path, halfwise_cli: CommandLine) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    words = ("--inputs", inputs, "--out", tmp_path / "out", "--markdown", tmp_path / "s.md", "--json")
    ended = halfwise_cli("fix", model, *words)
    assert ended.document["status"] == "met"
    assert "layer_norm_overflow.onnx" in (tmp_path / "s.md").read_text(encoding="utf-8")
