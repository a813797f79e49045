"""Nodes that say one thing are one row: by pattern, by module, by operator; nothing is lost and nothing is mixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.model import load
from halfwise.precision.plan import PlannedNode
from halfwise.precision.plan_document import RepairRecord
from halfwise.report.fix import show_fix
from halfwise.report.groups import Grouping, kept_nodes
from halfwise.report.markdown import fix_markdown
from halfwise.report.story import tell
from halfwise.report.terminal import Terminal
from halfwise.report.verdict import show_notes
from tests.models.report_models import overflow_result
from tests.models.zoo.graph_writer import GraphWriter


def layernorms(count: int) -> GraphWriter:
    """So many LayerNorms written out, in modules whose names differ by numbers."""
    writer = GraphWriter("norms")
    x = writer.input("x", [2, 8])
    for index in range(count):
        scope = f"/layers.{index}/norm{index % 2}"
        mean = writer.op("ReduceMean", [x], scope, axes=[-1])
        centred = writer.op("Sub", [x, mean], scope)
        squared = writer.op("Mul", [centred, centred], scope)
        variance = writer.op("ReduceMean", [squared], scope, axes=[-1])
        guarded = writer.op("Add", [variance, writer.weight(f"eps{index}", np.array(1e-5))], scope)
        root = writer.op("Sqrt", [guarded], scope)
        x = writer.op("Div", [centred, root], scope)
    writer.output(x, "y", [2, 8])
    return writer


def planned(name: str, op: str, why: Reason = Reason.OVERFLOW) -> PlannedNode:
    return PlannedNode(name, op, Format.FP32, why, ())


def test_a_node_that_no_run_tested_is_told_in_a_sentence() -> None:
    story = tell(planned("n", "Add", Reason.UNPROVEN), None, {})
    assert story.words.endswith(" Not tested individually.")


def test_the_nodes_of_many_layernorms_are_one_row() -> None:
    model = load(layernorms(6).model())
    named = {node.name or "": node.op_type for node in model.graph}
    kept = [planned(name, op) for name, op in named.items() if op in ("Mul", "ReduceMean")]
    assert len(kept) == 18
    (group,) = Grouping(model, list(named)).groups(kept)
    assert "LayerNorm" in group.title and "(6)" in group.title
    assert group.operators == "ReduceMean x12, Mul x6"


def test_modules_that_differ_by_a_number_are_one_and_others_are_not() -> None:
    model = load(layernorms(1).model())
    names = [
        "/net/block.0/conv/Conv",
        "/net/block.1/conv/Conv",
        "/net/block.1/conv/act/Mul",
        "/net/head/Conv",
        "/net/x",
    ]
    kept = [planned(name, name.rpartition("/")[2]) for name in names[:4]]
    groups = Grouping(model, names).groups(kept)
    assert [(g.title, len(g.nodes)) for g in groups] == [("/net/block.*/conv", 3), ("/net/head/Conv", 1)]


@given(
    st.lists(
        st.tuples(
            st.text("ab/0.", min_size=1, max_size=8), st.sampled_from(["Mul", "Softmax"]), st.sampled_from(Reason)
        ),
        max_size=12,
        unique_by=lambda each: each[0],
    )
)
def test_every_node_is_in_one_group_of_its_reason(nodes: list[tuple[str, str, Reason]]) -> None:
    kept = [planned(*each) for each in nodes]
    groups = GROUPING.groups(kept)
    assert sorted(node.name for group in groups for node in group.nodes) == sorted(node.name for node in kept)
    assert all(len({node.why for node in group.nodes}) == 1 for group in groups)


GROUPING = Grouping(load(layernorms(1).model()), ["/a/b", "/a/a"])


def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, full: bool = False) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal(full=full)
    show_fix(terminal, overflow_result())
    terminal.flush()
    return " ".join(capsys.readouterr().out.split())


def test_the_screen_has_the_reasons_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = screen(monkeypatch, capsys)
    assert "the result reaches 160,030" in shown.replace("- ", "")
    full = screen(monkeypatch, capsys, full=True)
    assert all(node.name in full.replace(" ", "") for node in kept_nodes(overflow_result()))


def test_routine_notes_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    notes = [Note(NoteKind.SYNTHETIC, "warning"), *(Note(NoteKind.IN_PLAN) for _ in range(5))]
    notes[0] = Note(NoteKind.IN_PLAN, "warning")
    for full, lines in ((False, 2), (True, 6)):
        terminal = Terminal(full=full)
        show_notes(terminal, notes)
        terminal.flush()
        out = capsys.readouterr().out.splitlines()
        assert len(out) == lines and ("5 notes: --full" in out) is not full


def test_that_more_runs_may_save_more_is_no_routine_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    spent = Note.of(NoteKind.RUNS_SPENT, runs=40, more=200)
    show_notes(terminal, [*(Note(NoteKind.IN_PLAN) for _ in range(5)), spent])
    terminal.flush()
    assert "--max-runs 200" in capsys.readouterr().out


def test_repairs_of_one_algebra_are_one_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the screen and in Markdown, which folds the rows of each below; the reasons there are the page's."""
    made = [RepairRecord("HW402", (f"/{index}/Sub", f"/{index}/Pow", f"/{index}/Div"), "a = b") for index in range(11)]
    made.append(RepairRecord("HW402", ("/last/Sub",), "c = d"))
    result = overflow_result()
    plan = replace(result.plan, repairs=tuple(made))
    result = replace(result, decision=replace(result.decision, plan=plan))
    monkeypatch.setenv("COLUMNS", "120")
    shown = {}
    for full in (False, True):
        terminal = Terminal(full=full)
        show_fix(terminal, result)
        terminal.flush()
        shown[full] = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if "HW402" in line]
    assert shown[False] == ["/0/Sub to /0/Div (3 nodes) and 10 more", "/last/Sub"]
    assert [name.split("/")[1] for name in shown[True]] == [*map(str, range(11)), "last"]
    rows, each = fix_markdown(result).split("<summary>each of the 12 repairs</summary>")
    assert rows.count("| HW402 |") == 2 and each.count("| HW402 |") == 12
    assert "reaches 160,030" in rows
