"""A Ctrl-C in a command that writes no results: what it finished of a large model is told."""

from __future__ import annotations

import importlib
import signal
from pathlib import Path

import numpy as np
import pytest

from halfwise.emulation.cached_walks import cached_walks
from tests.support.command_line import CommandLine
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.mark.parametrize("verb", ["trace", "verify"])
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_ctrl_c_tells_what_the_same_command_resumes_from(
    halfwise_cli: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: Says,
    verb: str,
    finished: int,
) -> None:
    monkeypatch.setenv("HALFWISE_CACHE", str(tmp_path / "cache"))
    models = [tmp_path / "a.onnx", tmp_path / "b.onnx"][: 1 + (verb == "verify")]

    def interrupted(*_: object, **__: object) -> None:
        with cached_walks(verb, *models) as kept:
            for number in range(finished):
                kept.keep(f"{number}", {"y": np.ones(8, np.float32)})
            raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(importlib.import_module(f"halfwise.verbs.{verb}"), verb, interrupted)
    for each in models:
        each.write_bytes(b"")
    ended = halfwise_cli(verb, *models)
    assert (ended.code, ended.out) == (130, "")
    says(ended.told)
