"""Where the system starts no more threads: one line, or an answer without what they would have done."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import onnxruntime
import pytest

from halfwise.core import cores
from halfwise.core.errors import InputError
from halfwise.verbs.fix import output_shares
from tests.models.report_models import overflow_result
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def no_session(*_: object) -> NoReturn:
    where = "/onnxruntime_src/onnxruntime/core/platform/posix/env.cc:327 PosixThread(const char*)"
    raise RuntimeError(f"{where} pthread_create failed, error code: 11 error msg: Resource temporarily unavailable")


@pytest.mark.parametrize("verb", ["trace", "verify"])
def test_onnxruntime_says_so_in_one_line(
    verb: str, halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """It prints the error before it tries once more on the CPU, where it was."""
    model, inputs = save(SHAPES["rms_norm_overflow"](), tmp_path)
    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", no_session)
    ended = halfwise_cli(verb, *[model] * (1 + (verb == "verify")), "--inputs", inputs)
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
    says(ended.told)


@pytest.mark.parametrize("started", [1, 4, 9])
def test_a_search_ends_without_an_answer(
    started: int, halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """A set of nodes that was not tried is none that fails."""
    model, inputs = save(SHAPES["rms_norm_overflow"](), tmp_path)
    begin, begun = onnxruntime.InferenceSession._create_inference_session, count()

    def create(*given: Any) -> None:
        (begin if next(begun) < started else no_session)(*given)

    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", create)
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out")
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
    says(ended.told)
    assert not (tmp_path / "out").exists()


def test_a_thread_of_halfwise_is_named(
    halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    def none_left(thread: Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    model, _ = save(SHAPES["rms_norm_overflow"](), tmp_path)
    monkeypatch.setattr(Thread, "start", none_left)
    monkeypatch.setattr("halfwise.verbs.scan.scan", lambda *_, **__: cores.beside(int))
    ended = halfwise_cli("scan", model)
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)


def test_the_report_does_without_walks_that_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    result = overflow_result()
    assert output_shares.shares_by_output(result)

    def refused(*_: object, **__: object) -> NoReturn:
        raise InputError("ONNX Runtime cannot load the model")

    monkeypatch.setattr(output_shares, "sensitivity_by_output", refused)
    assert output_shares.shares_by_output(result) == {}
