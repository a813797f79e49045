"""Every command that a verb names as the next step, typed as it stands: it asks the same question, and is answered."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise import fix
from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, Ended, save

METRIC = """
import numpy as np
def loss(reference, other):
    return max(float(np.abs(reference[name] - other[name]).max()) for name in reference)
"""


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`fix` of a model that overflows, by a function of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_loss.py").write_text(METRIC)
    path, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    judged = ["--metric", "my_loss:loss", "--tol", "metric<=0.05"]
    return ["fix", path.name, "--inputs", inputs.name, *judged, "--repairs", "none", "--out", "out"]


def typed_next(ended: Ended, cli: CommandLine) -> Ended:
    line = next(line for line in ended.out.splitlines() if line.startswith(("next    halfwise ", "next: halfwise ")))
    return cli(*shlex.split(line)[2:])


def test_what_was_fixed_is_verified_by_the_same_function(asked: list[str], halfwise_cli: CommandLine) -> None:
    ended = typed_next(halfwise_cli(*asked), halfwise_cli)
    assert ended.code == 0 and "metric is" in ended.out


def test_every_command_of_the_page_is_answered(asked: list[str], halfwise_cli: CommandLine) -> None:
    assert halfwise_cli(*asked).code == 0
    page = next(Path("out").glob("*.report.html")).read_text(encoding="utf-8")
    steps = page[page.index('<section id="next"') :].partition("</section>")[0]
    lines = [html.unescape(re.sub("<[^>]*>", "", code)) for code in re.findall(r"<code.*?</code>", steps, re.DOTALL)]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("halfwise ")]
    assert [words[0] for words in commands] == ["verify", "fix", "gate"]
    for words in commands:
        assert halfwise_cli(*words).code == 0, words


def test_a_miss_is_searched_again_with_all_that_was_asked(asked: list[str], halfwise_cli: CommandLine) -> None:
    ended = halfwise_cli(*asked, "--tol", "*:max_abs<=0.02", "--force", "op:Pow", "--force", "op:ReduceMean")
    assert ended.code == 1
    again = typed_next(ended, halfwise_cli)
    assert again.code == 0 and "--metric my_loss:loss --tol 'metric<=0.05'" in again.out


def test_a_plan_that_does_not_hold_is_updated(tmp_path: Path, halfwise_cli: CommandLine) -> None:
    path, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    fix(path, inputs, out=tmp_path, tolerance="*:rel_l2<=0.005")
    plan, other = tmp_path / f"{path.stem}.plan.json", tmp_path / "other.onnx"
    renamed = onnx.load(path)
    for each in renamed.graph.node:
        each.name = f"new/{each.name}"
    onnx.save(renamed, other)
    ended = halfwise_cli("gate", other, "--plan", plan, "--inputs", inputs)
    assert ended.code == 1
    assert typed_next(ended, halfwise_cli).code == 0
    assert halfwise_cli("gate", other, "--plan", plan, "--inputs", inputs).code == 0
    assert "0.005" in plan.read_text()


def test_the_plan_of_stages_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halfwise_cli: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [node("MatMul", "x w", "a", name="/first/MatMul"), node("Mul", "a a", "y", name="/second/Mul")]
    weights = [weight("w", np.eye(8, dtype=np.float32))]
    onnx.save(model(nodes, [value("x", shape=(2, 8))], [value("y", shape=(2, 8))], weights), "m.onnx")
    np.savez("0.npz", x=np.full((2, 8), 300, np.float32))
    ended = halfwise_cli("stages", "m.onnx", "--inputs", "0.npz", "--upto", "first", "--out", "stages")
    assert ended.code == 1
    assert typed_next(ended, halfwise_cli).code in (0, 1)


def test_the_demo_is_verified(tmp_path: Path, halfwise_cli: CommandLine) -> None:
    assert typed_next(halfwise_cli("demo", "--out", tmp_path / "d"), halfwise_cli).code == 0
