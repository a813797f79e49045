"""Results in a notebook: ten lines at most, a table that cannot act, and data frames where pandas is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import halfwise
from halfwise.cli.main import VERBS
from halfwise.core.document import Documented
from halfwise.core.errors import MissingBackend
from halfwise.core.summary import Summary
from halfwise.verbs.torch.bindings import BindingsCheck
from halfwise.verbs.torch.results import AutocastCheck
from tests.models.report_models import hostile_model, hostile_result, overflow_result
from tests.support.paths import DATA

KINDS = ["fix", "long fix", "plan", "scan", "trace", "stages", "verify", "audit", "inner audit", "advise", "log"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Documented]:
    """A result of each kind on a model whose names are hostile."""
    path = tmp_path_factory.mktemp("hostile") / "m.onnx"
    onnx.save(hostile_model(), path)
    audited = halfwise.audit(DATA / "layers" / "inspector_8.6.json")
    return {
        "fix": overflow_result(),
        "long fix": hostile_result(),
        "plan": hostile_result().plan,
        "scan": halfwise.scan(path),
        "trace": halfwise.trace(path),
        "stages": halfwise.stages(path),
        "verify": halfwise.verify(path, path),
        "audit": audited,
        "inner audit": audited.audit,
        "advise": halfwise.advise("trt-10.0.1@t4", path),
        "log": halfwise.log(DATA / "logs" / "layernorm_8.6_region.log"),
    }


def subclasses(kind: type[Documented]) -> Iterator[type[Documented]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert all(name == "style" for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_prints_in_ten_short_lines(kind: str, results: dict[str, Documented]) -> None:
    shown = repr(results[kind])
    assert len(shown.splitlines()) <= 10 and all(0 < len(line) <= 500 for line in shown.splitlines())
    assert all(character.isprintable() or character == "\n" for character in shown)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_in_html_is_text_in_a_table(kind: str, results: dict[str, Documented]) -> None:
    seen = Seen(results[kind]._repr_html_())
    assert set(seen.tags) <= {"p", "b", "code", "table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_whole(kind: str, results: dict[str, Documented]) -> None:
    summary = results[kind].summary()
    assert all(len(row) == len(summary.columns) for row in summary.rows)
    assert len(set(summary.columns)) == len(summary.columns)


def test_a_fix_shows_its_verdict_and_its_culprits() -> None:
    result = overflow_result()
    summary = result.summary()
    assert summary.good and [row[0] for row in summary.rows] == [node.name for node in result.plan.nodes]
    assert [row[-1] for row in summary.rows] == [result.shares.get(node.name) for node in result.plan.nodes]
    assert "keeps the tolerance" in repr(result) and result.plan.nodes[0].name in repr(result)


def test_every_result_has_the_short_form() -> None:
    for name in halfwise.__all__:
        getattr(halfwise, name)
    found = [each for each in subclasses(Documented) if each.__module__.startswith("halfwise.")]
    assert {halfwise.Gate, halfwise.Comparison, halfwise.BisectResult, AutocastCheck, BindingsCheck} <= set(found)
    for each in found:
        assert each.__repr__ is Documented.__repr__, f"{each.__name__} needs @dataclass(repr=False)"
        assert each.summary is not Documented.summary, f"{each.__name__} has no summary"


def test_every_verb_is_a_function() -> None:
    for verb in VERBS.keys() - {"schema"}:
        assert callable(getattr(halfwise, verb))


def test_a_data_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingBackend, match=r"needs pandas: pip install pandas"):
        overflow_result().to_dataframe()


def test_a_data_frame_has_every_row_and_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    fake = SimpleNamespace(DataFrame=lambda rows, columns: made.update(rows=rows, columns=columns) or "frame")
    monkeypatch.setitem(sys.modules, "pandas", fake)
    found = overflow_result()
    assert found.to_dataframe() == "frame"
    assert made["columns"][0] == "node" and len(made["rows"]) == len(found.plan.nodes)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=12))
def test_any_text_stays_text(headline: str, cells: list[str]) -> None:
    summary = Summary(headline, ("one",), tuple((cell,) for cell in cells))
    assert len(summary.text().splitlines()) <= 10
    assert set(Seen(summary.html()).tags) <= {"p", "b", "code", "table", "thead", "tbody", "tr", "th", "td"}


def test_a_sentence_in_a_cell_keeps_its_beginning_and_a_name_its_ends() -> None:
    told = "result reaches 1.987e+06, beyond FP16's 65,504, and becomes infinite"
    name = "/" + "module/" * 12 + "MatMul"
    _, sentence, tensor = Summary("", ("what",), ((told,), (name,))).text().splitlines()[-3:]
    assert sentence.strip().startswith("result reaches 1.987e+06, beyond") and sentence.endswith("...")
    assert tensor.strip().startswith("/module/") and tensor.endswith("/MatMul")
