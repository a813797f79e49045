"""Where the emulation alone says yes, every medium says in one sentence who says no."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from halfwise.backends import BackendRecord
from halfwise.backends.confirm import Confirmation
from halfwise.core.english import say
from halfwise.core.english.finding import finding
from halfwise.core.finding import Where
from halfwise.core.tolerance import Verdict
from halfwise.deploy.deploy_files import DeployFiles
from halfwise.report.answer import way_out
from halfwise.report.fix import show_fix
from halfwise.report.html.verdict import verdict_words
from halfwise.report.markdown import fix_markdown
from halfwise.report.terminal import Terminal
from halfwise.verbs.fix.delivered import Delivered
from halfwise.verbs.fix.parts import FixFiles
from halfwise.verbs.fix.result import FixResult
from tests.models.report_models import healthy_result
from tests.support.messages import saying

MISS = Verdict(False, 3.0, "y", "rel_l2", 0.03, 0.01)
RECORD = BackendRecord("ort-cuda", "ONNX Runtime", "1.2", device="a GPU")
BROKE = finding("HW504", Where("model", "x"), saying("it broke"), {})


def confirmed(**other: object) -> Confirmation:
    found = Confirmation("ort-cuda", "strict", 1.5, MISS, dict(healthy_result().fixed), {}, (), RECORD)
    return replace(found, **other)  # type: ignore[arg-type]


def refused() -> FixResult:
    return replace(healthy_result(), files=FixFiles(deploy_files=DeployFiles(refusal="no kernel")))


CASES = {
    "cannot be built for onnx": refused,
    f"misses it on {RECORD.title}": lambda: replace(healthy_result(), confirmation=confirmed()),
    f"does not run on {RECORD.title}": lambda: replace(
        healthy_result(),
        confirmation=confirmed(outputs={}, findings=(BROKE,), verdict=Verdict(False, math.inf, "", "", math.inf, 0.0)),
    ),
    "misses it as ONNX Runtime runs it": lambda: with_delivered(Delivered(MISS, counts=True)),
}


def with_delivered(delivered: Delivered) -> FixResult:
    return replace(healthy_result(), delivered=delivered)


def on_screen(result: FixResult, capsys: pytest.CaptureFixture[str]) -> str:
    terminal = Terminal()
    show_fix(terminal, result)
    terminal.flush()
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("told", CASES)
def test_one_sentence_says_who_says_no(told: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = CASES[told]()
    assert result.met and not result.good
    sentence = f"keeps the tolerance in emulation, but {told}"
    screen = on_screen(result, capsys)
    assert screen.count(f"{sentence}, in plain FP16, on ") == 1 and "no node needs FP32" not in screen
    assert fix_markdown(result).splitlines()[0].endswith(sentence)
    assert str(result.summary()).splitlines()[0].count(f"{sentence}, with 0 of ") == 1
    assert verdict_words(result).headline.endswith(f"{sentence}.")


def test_the_cause_of_a_backend_that_misses_is_that_backend(capsys: pytest.CaptureFixture[str]) -> None:
    result = CASES[f"misses it on {RECORD.title}"]()
    assert way_out(result).cause == f"On {RECORD.title} the tolerance is not kept: {say(MISS.because)}."
    assert "Rounding moves" not in on_screen(result, capsys)
