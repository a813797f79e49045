"""The pytest plugin, used by a project's own tests, and the hook for pre-commit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import halfwise.pytest_plugin
from halfwise import fix
from halfwise.cli.plan_hook import main as plan_hook
from tests.models.build import model, node, value, weight
from tests.support.paths import ROOT

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32)} for seed in range(4)]
USED = """
import pytest

@pytest.mark.parametrize("model", ["good.onnx", "retrained.onnx", "other.onnx", "gone.onnx"])
def test_the_plan_holds(halfwise_keeps, model):
    assert halfwise_keeps(model, "out/good.plan.json", "samples").holds
"""


def product(scale: float = 1.0, op: str = "Relu") -> onnx.ModelProto:
    weights = scale * np.random.default_rng(0).standard_normal((8, 4))
    return model(
        [node("MatMul", "x w", "h", name="/a/MatMul"), node(op, "h", "y", name="/a/Act")],
        [value("x", shape=(2, 8))],
        [value("y", shape=(2, 4))],
        [weight("w", weights.astype(np.float32))],
    )


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("committed")
    (folder / "samples").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for number, feed in enumerate(FEEDS):
        np.savez(folder / f"samples/{number}.npz", **feed)
    onnx.save(product(), folder / "good.onnx")
    onnx.save(product(1e6), folder / "retrained.onnx")
    onnx.save(product(op="Sigmoid"), folder / "other.onnx")
    fix(folder / "good.onnx", FEEDS, out=folder / "out", keep="name:/a/Act")
    return folder


@pytest.fixture
def project(committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shutil.copytree(committed, tmp_path / "project"))
    return Path()


class Seen:
    """How each test of a run inside this one ended."""

    def __init__(self) -> None:
        self.ended: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.ended[report.nodeid.partition("[")[2].rstrip("]")] = report.outcome, str(report.longrepr)


def test_a_test_fails_where_the_plan_does_not_hold(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("test_plans.py").write_text(USED, encoding="utf-8")
    seen = Seen()
    left_out = ("cacheprovider", "xdist", "hypothesispytest", "halfwise")  # the last where the package is installed
    words = [*(word for name in left_out for word in ("-p", f"no:{name}")), "--rootdir=.", "test_plans.py"]
    assert pytest.main([*words, "-c", "pytest.ini"], plugins=[halfwise.pytest_plugin, seen]) == 1
    assert {model: outcome for model, (outcome, _) in seen.ended.items()} == {
        "good.onnx": "passed", "retrained.onnx": "failed", "other.onnx": "failed", "gone.onnx": "failed"
    }  # fmt: skip
    told = {model: text.splitlines() for model, (_, text) in seen.ended.items()}
    assert [line.partition(":")[0].strip() for line in told["retrained.onnx"][1:]] == ["tolerance"]
    assert [line.partition(":")[0].strip() for line in told["other.onnx"][1:]] == ["fingerprint", "nodes"]
    assert len(told["gone.onnx"]) == 1 and "gone.onnx" in told["gone.onnx"][0]  # no traceback


def test_the_plugin_is_announced_and_costs_little() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"halfwise": "halfwise.pytest_plugin"}
    code = "import pytest, sys; import halfwise.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"onnx", "onnxruntime", "numpy", "msgspec"} & set(loaded)


# -- the hook ---------------------------------------------------------------------------------------------------------


def test_a_plan_fits_its_model_with_other_weights_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_hook(["out/good.plan.json"]) == 0
    made = product()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
    onnx.save(made, "good.onnx")
    assert plan_hook(["good.onnx"]) == 0  # the plan of a model that changed is found
    assert capsys.readouterr().out.count("fits good.onnx") == 2


def test_a_plan_for_another_graph_does_not_fit(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(product(op="Sigmoid"), "good.onnx")
    assert plan_hook(["good.onnx", "out/good.plan.json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("out/good.plan.json: does not fit good.onnx: ") and "nodes: " in line


# Patterns, files that are no model or lie elsewhere, names that no file has.
ODD_PATHS = ("**x", "*.onnx", "[", "/etc/passwd", "/dev/zero", "//", "../good.onnx", ".", "a" * 300, "a\0b", "\x80")


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"model": {"path": "elsewhere.onnx"}}, 0, "not here"),
        ({"model": {"path": ""}}, 0, "no model in particular"),
        *(({"model": {"path": odd}}, 0, "not here") for odd in ODD_PATHS),
        ({"schema": "halfwise.plan/99"}, 1, "out/good.plan.json"),
    ],
)
def test_a_plan_is_read_where_its_model_is_not_there(
    change: dict[str, Any], code: int, told: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("out/good.plan.json")
    written = json.loads(path.read_text(encoding="utf-8"))
    changed = {key: {**written[key], **held} if isinstance(held, dict) else held for key, held in change.items()}
    path.write_text(json.dumps({**written, **changed}), encoding="utf-8")
    assert plan_hook([str(path)]) == code
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("out/good.plan.json") and told in line


def test_the_hook_is_offered_under_the_module_that_there_is() -> None:
    offered = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "entry: python -m halfwise.cli.plan_hook\n" in offered and "language: python\n" in offered
    (pattern,) = re.findall(r"files: (.*)", offered)
    assert re.search(pattern, "fp16/m.plan.json") and re.search(pattern, "m.onnx")
    assert not re.search(pattern, "m.onnx.data")
