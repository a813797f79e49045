"""What a terminal gets: one screen as wide as it is, plain text where a program reads, names that are only names."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import halfwise
from halfwise.report.fix import show_fix
from halfwise.report.terminal import Terminal
from halfwise.report.text import brief, safe, width_of
from tests.models.report_models import HOSTILE, hostile_model, hostile_result, overflow_result
from tests.models.zoo import norm_log_head
from tests.models.zoo.graph_writer import GraphWriter
from tests.support.command_line import CommandLine
from tests.support.says import Says

LONG = HOSTILE[-1]


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(monkeypatch, capsys)


def acting(text: str) -> set[str]:
    """What in a text would move a cursor, colour, hide or turn text."""
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def shown_fix(result: halfwise.FixResult, capsys: pytest.CaptureFixture[str], *, full: bool = False) -> list[str]:
    capsys.readouterr()
    terminal = Terminal(full=full)
    show_fix(terminal, result)
    terminal.flush()
    return capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hostile model, inputs for it, its plan, and its documents before and after."""
    folder = tmp_path_factory.mktemp("hostile")
    onnx.save(hostile_model(), folder / "m.onnx")
    writer = GraphWriter("weights")
    x = writer.input("x", [1, 4])
    for name in (LONG, *HOSTILE[:-1]):
        x = writer.op("MatMul", [x, writer.weight(name, np.full((4, 4), 1e-7))], "")
    writer.output(x, "y", [1, 4])
    onnx.save(writer.model(), folder / "w.onnx")
    (folder / "inputs").mkdir()
    for index in range(4):
        np.savez(folder / "inputs" / f"{index}.npz", **{"x<b>": np.full(4, 1 + index / 4, np.float32)})
    result = halfwise.fix(folder / "m.onnx", folder / "inputs", out=folder / "out", repairs=("none",))
    document = result.to_json()
    (folder / "a.json").write_text(json.dumps(document), encoding="utf-8")
    document["nodes"] = [{**node, "name": node["name"] + "x"} for node in document["nodes"]]
    (folder / "b.json").write_text(json.dumps(document), encoding="utf-8")
    names = [f"/first{HOSTILE[3]}", LONG, *HOSTILE[:3]]
    plan = {"schema": "halfwise.plan/1", "fp32_nodes": names}
    (folder / "foreign.json").write_text(json.dumps(plan), encoding="utf-8")
    layers = [
        {"Name": name, "LayerType": "kgen", "Inputs": [], "Outputs": [], "Metadata": f"[ONNX Layer: {name}]"}
        for name in names
    ]
    (folder / "layers.json").write_text(json.dumps({"Layers": layers, "Bindings": []}), encoding="utf-8")
    log = "".join(
        f"[W] [TRT] No implementation of layer {name} obeys the requested constraints in strict mode. x\n"
        for name in ("\x1b[31mred\x1b[0m", "turn\u202egnp", "/a" * 5_000)
    )
    (folder / "build.log").write_text(f"&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # x\n{log}", encoding="utf-8")
    return folder


VERBS = {
    "scan": ["scan", "w.onnx"],
    "trace": ["trace", "m.onnx", "--inputs", "inputs"],
    "fix": ["fix", "m.onnx", "--inputs", "inputs", "--repairs", "none", "--out", "again"],
    "verify": ["verify", "m.onnx", "out/m.fp16.onnx", "--inputs", "inputs"],
    "gate": ["gate", "m.onnx", "--plan", "out/m.plan.json", "--inputs", "inputs"],
    "gate that fails": ["gate", "m.onnx", "--plan", "foreign.json", "--inputs", "inputs"],
    "compare": ["compare", "a.json", "b.json"],
    "audit": ["audit", "layers.json", "--plan", "foreign.json"],
    "log": ["log", "build.log"],
    "advise": ["advise", "--target", "trt-10.0.0@t4", "m.onnx"],
    "stages": ["stages", "m.onnx", "--inputs", "inputs"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_hostile_names_do_nothing_where_a_program_reads(
    verb: str, hostile: Path, halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    ended = halfwise_cli(*VERBS[verb])
    assert ended.code in (0, 1), ended.err
    assert ended.out and acting(ended.out) == set()
    assert acting(ended.err) == set()


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize("verb", VERBS)
def test_every_line_keeps_to_the_width(
    verb: str, width: int, hostile: Path, halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    ended = halfwise_cli(*VERBS[verb])
    assert ended.code in (0, 1), ended.err
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ended.out)
    assert acting(plain) == set()
    commands = ("next    ", "then    ")  # whole, for copying
    assert [line for line in plain.splitlines() if width_of(line) > width and not line.startswith(commands)] == []
    assert len(plain.splitlines()) < 45_000 // width, "a name fills the screen"


@pytest.mark.parametrize("verb", ["scan", "fix", "gate", "log", "audit", "compare"])
def test_no_color_is_heeded_and_colours_are_there_without_it(
    verb: str, hostile: Path, halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    colour = re.compile(r"\x1b\[(?:\d+;)*3\d")
    assert colour.search(halfwise_cli(*VERBS[verb]).out)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(halfwise_cli(*VERBS[verb]).out)


# -- one screen, and all of it ----------------------------------------------------------------------------------------


def test_the_story_of_a_fix_is_one_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for result in (overflow_result(), hostile_result()):
        assert len(shown_fix(result, capsys)) <= 60
    one = overflow_result()
    nodes = tuple(replace(one.plan.nodes[0], name=f"/n{index}", op=f"Op{index}") for index in range(1_500))
    decision = replace(one.decision, plan=replace(one.plan, nodes=nodes))
    large = replace(one, decision=decision, measured=replace(one.measured, curve=()))
    lines = shown_fix(large, capsys)
    assert len(lines) <= 60
    more = [line for line in lines if line.startswith("... and ")]
    assert len(more) == 1 and more[0].endswith(" more (--full shows all)")
    full = shown_fix(large, capsys, full=True)
    left_out = int(more[0].split()[2].replace(",", ""))
    assert left_out > 1_400
    assert len(full) >= len(lines) + left_out - 1
    assert not any("--full" in line for line in full)


def test_full_shows_what_was_left_out(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    zoo = norm_log_head()
    onnx.save(zoo.model, tmp_path / "m.onnx")
    short, full = (halfwise_cli("trace", tmp_path / "m.onnx", *more).out for more in ((), ("--full",)))
    assert "(--full shows all)" in short and "(--full" not in full
    assert len(full.splitlines()) > len(short.splitlines()) + 5


@pytest.mark.parametrize("verb", ["scan", "trace", "fix", "verify", "audit", "log", "gate", "compare"])
def test_every_verb_with_tables_has_full(verb: str, halfwise_cli: CommandLine) -> None:
    assert "--full" in halfwise_cli(verb, "--help").out


# -- the pieces -------------------------------------------------------------------------------------------------------


def printed(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> str:
    terminal.flush()
    return capsys.readouterr().out


def test_a_program_reads_whole_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    terminal = Terminal()
    terminal.line(f"node {LONG} is long", "bold red", indent=4)
    terminal.table(["name", "n"], [[LONG, "1"], ["/b", "2"]], right=(1,))
    lines = printed(terminal, capsys).splitlines()
    assert lines[0] == f"    node {LONG} is long"
    assert lines[2].split() == [LONG, "1"]
    assert lines[3].split() == ["/b", "2"]


@pytest.mark.parametrize("columns", ["0", "999999999", "9" * 30])
def test_a_screen_that_says_it_has_any_width_gets_all(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    terminal = Terminal()
    terminal.line("node square")
    terminal.table(["name", "n"], [["/b", "2"]], right=(1,))
    assert "".join(printed(terminal, capsys).split()) == "nodesquarenamen/b2"


def test_a_command_is_one_line_to_copy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    terminal = Terminal()
    terminal.command("next    ", f"halfwise verify {'a/' * 40}m.onnx 'b c\x1b[2J'")
    assert printed(terminal, capsys) == f"next    halfwise verify {'a/' * 40}m.onnx 'b c\\x1b[2J'\n"


def test_a_screen_gets_both_ends_of_a_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    terminal.table(["name", "n"], [[LONG, "1"]], right=(1,))
    terminal.line(f"node {LONG} is long")
    lines = printed(terminal, capsys).splitlines()
    assert lines[1].startswith("/a/a") and "..." in lines[1] and "last_of_ten_thousand" in lines[1]
    assert len(lines) < 10 and lines[-1].endswith("is long")


def test_no_number_is_cut_where_the_screen_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    terminal = Terminal()
    terminal.table(
        ["weight", "values", "subnormal", "largest"],
        [["/encoder/layers/0/weight", "123,456,789", "65,432", "0.178"], ["/b", "2", "", "1"]],
        right=(1, 2, 3),
    )
    assert printed(terminal, capsys).splitlines() == [
        "/encoder/layers/0/weight",
        "  values 123,456,789,",
        "  subnormal 65,432, largest",
        "  0.178",
        "/b",
        "  values 2, largest 1",
    ]


@given(
    width=st.integers(8, 200),
    rows=st.lists(st.tuples(st.text(max_size=80), st.text(max_size=60), st.text(max_size=300)), max_size=4),
    text=st.text(max_size=400),
    indent=st.integers(0, 30),
)
@example(8, [("", "", "000000\u034f")], "", 0)  # a letter without width that is no combining mark
def test_any_text_at_any_width(width: int, rows: list[tuple[str, str, str]], text: str, indent: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        terminal = Terminal()
        terminal.line(text, indent=indent)
        terminal.table(["name", "value", "why"], rows, right=(1,), fold=2)
        out = "".join(terminal._parts)
    assert acting(out) == set()
    assert all(width_of(line) <= width for line in out.splitlines())


@given(st.text(max_size=500).map(lambda text: text * 8))
def test_a_brief_text_is_safe_and_fits_some_lines(text: str) -> None:
    shown = brief(text)
    assert acting(shown) == set()
    assert width_of(shown) <= 2_000
    assert all(width_of(word) <= 300 for word in shown.split())


def test_brief_leaves_ordinary_sentences_alone() -> None:
    assert brief("a sentence with /a/path and größe") == "a sentence with /a/path and größe"
    assert safe(LONG, 300) in brief(f"node {LONG} is not there")


# -- errors and progress ----------------------------------------------------------------------------------------------


def test_errors_show_hostile_names_safely(halfwise_cli: CommandLine, hostile: Path, tmp_path: Path, says: Says) -> None:
    words = ("fix", hostile / "m.onnx", "--inputs", hostile / "inputs", "--out", tmp_path / "o")
    ended = halfwise_cli(*words, "--plan", hostile / "foreign.json")
    assert ended.code == 2
    says(ended.told)
    (tmp_path / "p.json").write_text(json.dumps({"schema": "halfwise.plan/1", "fp32_nodes": [LONG + "z"]}))
    ended = halfwise_cli(*words, "--plan", tmp_path / "p.json")
    assert len(ended.told) < 500 and "last_of_ten_thousandz" in ended.told
    for name in ("\x1b[31mred.onnx", "turn\u202egnp.onnx", "line\nbreak.onnx", "{task}.onnx"):
        ended = halfwise_cli("trace", tmp_path / name)
        assert ended.code == 2
        assert acting(ended.told) == set()


@pytest.mark.skipif(os.name == "nt", reason="pseudo terminals are POSIX")
def test_progress_on_a_terminal_names_the_file_safely(hostile: Path, tmp_path: Path) -> None:
    model = tmp_path / "m{x}\x1b]0;stolen\x07\u202e.onnx"
    model.write_bytes((hostile / "m.onnx").read_bytes())
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "halfwise", "trace", str(model), "--inputs", str(hostile / "inputs")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    seen = _read_all(ours, child)
    assert child.wait() == 0, seen
    assert "trace m{x}" in seen
    assert "\x1b]0;" not in seen and "\x07" not in seen and "\u202e" not in seen


def _read_all(descriptor: int, child: subprocess.Popen[bytes]) -> str:
    pieces: list[bytes] = []
    last = time.monotonic() + 60
    while time.monotonic() < last:
        if not select.select([descriptor], [], [], 0.2)[0]:
            if child.poll() is not None:
                break
            continue
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(descriptor)
    return b"".join(pieces).decode("utf-8", errors="replace")
