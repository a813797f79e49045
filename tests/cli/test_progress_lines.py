"""Where there is no terminal, a line now and then says what is being done."""

from __future__ import annotations

import io
import re
import sys
import time
from threading import Event, Thread

import pytest
from rich.console import Console
from rich.text import Text

from halfwise.cli import progress
from halfwise.cli.bars import Bars
from halfwise.core.told import Stand, TimeLeft, Told
from tests.support.says import Says


def _lines(capsys: pytest.CaptureFixture[str], enough: int) -> list[str]:
    said = ""
    for _ in range(500):
        time.sleep(0.02)
        said += capsys.readouterr().err
        if said.count("\n") >= enough:
            break
    return said.splitlines()


def test_a_long_step_is_told_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.02)
    with progress.progress("fix model.onnx") as shown:
        shown.step("running the FP32 model")
        shown.step("looking for exact repairs")
        lines = _lines(capsys, enough=3)
    assert len(lines) >= 3
    assert all(line.startswith("fix model.onnx: ") for line in lines)
    assert lines[-1].endswith("2. looking for exact repairs")


def test_a_job_that_has_not_said_anything_tells_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.02)
    with progress.progress("scan model.onnx"):
        lines = _lines(capsys, enough=2)
    assert len(lines) >= 2
    assert all(re.fullmatch(r"scan model\.onnx: \d+ s", line) for line in lines)


def test_no_line_comes_after_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is in the middle of a line is waited for."""
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    written: list[str] = []
    over = Event()

    def slow(text: str, **_: object) -> None:
        over.wait(0.05)
        written.append(text)

    monkeypatch.setattr(progress, "print", slow, raising=False)
    with progress.progress("fix model.onnx"):
        pass
    told = len(written)
    over.wait(0.2)
    assert len(written) == told


def test_a_short_job_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress("fix model.onnx") as shown:
        shown.step("running the FP32 model")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_to_be_seen_before_the_answer_is_told_at_once_and_is_no_step(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    message = "TensorRT 10.9 does not read [it]. Its build ends there"
    with progress.progress("fix model.onnx") as shown:
        shown.step(Told(message, Stand(message, stays=True)))
        shown.step("running the FP32 model")
        assert str(shown) == "1. running the FP32 model"
        assert message in " ".join(Text.from_ansi(capsys.readouterr().err).plain.split())


@pytest.mark.parametrize("terminal", [False, True])
def test_a_job_goes_on_where_no_thread_can_be_started(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none_left(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", none_left)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with progress.progress("fix model.onnx") as shown:
        shown.step("running the FP32 model")
        shown.count(1, 2)
    capsys.readouterr()
    print("after it")
    assert capsys.readouterr().out == "after it\n"


def test_the_time_left_goes_down_while_a_step_takes_long(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    """How far a step is makes it no other step."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown = progress._Doing()
    shown.step("reading")
    for part, at in (("", 100.0), ("part 3 of 9", 104.0), ("", 106.0)):
        now[0] = at
        stand = Stand("trying", part, 8.0, TimeLeft(20.0, 100.0))
        shown.step(Told(stand.text(at), stand))
        now[0] += 1
        assert str(shown) == f"2. {stand.text(at + 1)}"
    says(shown)
    now[0] = 130.0
    says(shown)
    shown.step("writing")
    says(shown)


def test_a_count_tells_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown = progress._Doing()
    told = []
    for at, done in ((0.5, 1), (10.0, 1000), (14.0, 1000), (30.0, 3000)):
        now[0] = at
        shown.count(done, 3000)
        now[0] += 1
        told.append(str(shown))
    says(told)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_what_is_done_and_how_far_whole(width: int, says: Says) -> None:
    """A line of its own, or several, below the bar."""
    console = Console(width=width, force_terminal=True, file=io.StringIO())
    bars = Bars(console)
    shown = progress._Shown(bars, bars.add_task("fix model.onnx", total=None, doing=""))
    stand = Stand("looking for overflows inside", "part 1,644 of 2,345", 4.0, TimeLeft(20.0, time.monotonic()))
    shown.step(Told("looking", stand))
    with console.capture() as captured:
        console.print(bars.get_renderable())
    said = " ".join(Text.from_ansi(captured.get()).plain.split())
    bar, clock, below = said.partition("0:00:00")
    assert "fix model.onnx" in bar and clock and "…" not in below
    says(below.strip())
    assert all(len(line) <= width for line in Text.from_ansi(captured.get()).plain.splitlines())
