"""Metrics of a user's that do what no metric should: one line, or the answer of the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.models.build import model, node, value
from tests.support.command_line import CommandLine
from tests.support.paths import ROOT


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def a_model() -> str:
    onnx.save(model([node("Exp", "x", "y")], [value("x")], [value("y")]), "m.onnx")
    return "m.onnx"


METRICS = """
import os, sys, tempfile
print("imported")
def leaves(a, b): sys.exit(0)
def prints(a, b): print("hello"); return 0.0
def nonsense(a, b): return "a lot"
def huge(a, b): return 10 ** 400
def fails(a, b): raise RuntimeError("no")
def odd(a, b): return type("X", (), {"__float__": lambda self: 1 / 0})()
def none(a, b): return None
def closes(a, b): raise GeneratorExit
def wanders(a, b): os.chdir(tempfile.mkdtemp(dir=".")); return 0.0
def shouts(a, b): os.write(1, b"hello"); os.system("echo hello"); return 0.0
def ends(a, b): os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("leaves", "failed: SystemExit: 0"), ("nonsense", "returned str, not one number"), ("huge", "returned int"),
        ("fails", "failed: RuntimeError: no"), ("odd", "returned X"), ("none", "returned NoneType"),
        ("closes", "failed: GeneratorExit"),
    ],
)  # fmt: skip
def test_a_metric_that_misbehaves(name: str, what: str, halfwise_cli: CommandLine) -> None:
    Path("hostile_metric.py").write_text(METRICS)
    a_model()
    sys.modules.pop("hostile_metric", None)
    before = set(Path().iterdir())
    words = ("fix", "m.onnx", "--out", "out", "--metric", f"hostile_metric:{name}", "--tol", "metric<=0.1", "--json")
    ended = halfwise_cli(*words)
    assert (ended.code, ended.out) == (2, "") and what in ended.err.splitlines()[-1]
    assert {path.name for path in set(Path().iterdir()) - before} <= {"__pycache__"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
@pytest.mark.parametrize(("name", "code"), [("wanders", 0), ("shouts", 0), ("ends", 2)])
def test_a_metric_that_changes_its_process(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hostile_metric.py").write_text(METRICS)
    a_model()
    words = ("fix", "m.onnx", "--out", "out", "--metric", f"hostile_metric:{name}", "--tol", "metric<=0.1", "--json")
    ended = subprocess.run(
        [sys.executable, "-m", "halfwise", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert ended.returncode == code
    if code:
        assert ended.stdout == "" and ended.stderr.endswith("before it was done\n")
    else:
        assert json.loads(ended.stdout)["status"] == "met" and Path("out", "m.fp16.onnx").is_file()


def test_what_a_metric_prints_is_not_the_answer(halfwise_cli: CommandLine) -> None:
    Path("hostile_metric.py").write_text(METRICS)
    sys.modules.pop("hostile_metric", None)
    name = a_model()
    words = ("verify", name, name, "--metric", "hostile_metric:prints", "--tol", "metric<=0.1", "--json")
    ended = halfwise_cli(*words)
    assert ended.code == 0 and ended.document["status"] == "met"
    assert "imported" in ended.err and "hello" in ended.err


@pytest.mark.parametrize("words", ["fix m.onnx --out out", "gate m.onnx", "bisect m.onnx --backend ort-cpu"])
def test_a_metric_that_a_plan_names_is_not_imported(words: str, halfwise_cli: CommandLine) -> None:
    Path("trap.py").write_text("open('sprung', 'w')\n\n\ndef error(reference, other):\n    return 0.0\n")
    a_model()
    plan = {"schema": "halfwise.plan/1", "fp32_nodes": [], "tolerance": {"*:metric": 0.1}, "metric": "trap:error"}
    Path("p.json").write_text(json.dumps(plan))
    ended = halfwise_cli(*words.split(), "--plan", "p.json")
    assert (ended.code, ended.out) == (2, "") and "'trap:error'" in ended.told
    assert not Path("sprung").exists() and "trap" not in sys.modules
