"""A file name that was mistyped is told with the name that lies there, by every command that reads one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

COMMANDS = ["scan", "fix --out {out}", "trace", "doctor", "audit", "log", "stages", "advise --target trt-10.9@t4"]


@pytest.mark.parametrize("command", [*COMMANDS, "gate m.onnx --plan"], ids=lambda command: command.split()[0])
def test_it_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "given.json").touch()
    words = [word.format(out=tmp_path / "out") for word in command.split()]
    ended = CommandLine(monkeypatch, capsys)(*words, tmp_path / "givne.json")
    assert "(did you mean 'given.json'?)" in ended.told
