"""`gate --update`: what it compares with is written anew where it no longer holds, and stays where nothing would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import halfwise
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.precision.plan import read_plan
from halfwise.verbs.gate import gate
from halfwise.verbs.gate_update import gate_updated
from tests.models.build import model, node, value, weight
from tests.support.gates import statuses
from tests.support.says import Says


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """y = (300 w x)^2 / 1e4: with w = 1 its square overflows, with w = 1e-2 nothing does."""
    saved(tmp_path / "loud.onnx", 1.0)
    saved(tmp_path / "quiet.onnx", 1e-2)
    np.savez(tmp_path / "x.npz", x=np.linspace(0.5, 1.5, 16, dtype=np.float32))
    halfwise.fix(tmp_path / "quiet.onnx", tmp_path / "x.npz", out=tmp_path, repairs="none")
    (tmp_path / "quiet.plan.json").rename(tmp_path / "p.json")
    (tmp_path / "findings.json").write_text(json.dumps(halfwise.scan(tmp_path / "quiet.onnx").to_json()))
    return tmp_path


def saved(path: Path, size: float) -> None:
    nodes = [node("Mul", "x w", "h"), node("Mul", "h h", "q"), node("Mul", "q s", "y")]
    weights = [weight("w", np.float32(300 * size)), weight("s", np.float32(1e-4))]
    onnx.save(model(nodes, [value("x", shape=(16,))], [value("y", shape=(16,))], weights), path)


def kinds(result: Any) -> set[NoteKind]:
    return {note.kind for note in result.notes}


def test_a_plan_that_no_longer_holds_is_searched_again(folder: Path) -> None:
    plan, loud = folder / "p.json", folder / "loud.onnx"
    assert not gate(plan, loud, folder / "x.npz").holds and not read_plan(plan).nodes
    result = gate_updated(plan, loud, folder / "x.npz")
    assert result.holds and NoteKind.PLAN_UPDATED in kinds(result)
    assert read_plan(plan).nodes or read_plan(plan).repairs
    assert gate(plan, loud, folder / "x.npz").change == "none"
    before = plan.read_bytes()
    assert NoteKind.PLAN_UPDATED not in kinds(gate_updated(plan, loud, folder / "x.npz"))
    assert plan.read_bytes() == before


def test_a_plan_that_holds_for_new_weights_stays(folder: Path) -> None:
    saved(folder / "again.onnx", 2e-2)
    plan = folder / "p.json"
    before = plan.read_bytes()
    result = gate_updated(plan, folder / "again.onnx", folder / "x.npz")
    assert result.holds and result.change == "weights" and NoteKind.PLAN_UPDATED not in kinds(result)
    assert plan.read_bytes() == before


def test_where_no_plan_holds_nothing_is_written(folder: Path) -> None:
    """A measure that has something against every answer to the second input."""
    plan, x = folder / "p.json", np.linspace(0.5, 1.5, 16, dtype=np.float32)
    inputs = [{"x": x}, {"x": x / 2}]
    halfwise.fix(folder / "quiet.onnx", inputs, out=folder, metric=lambda a, b: 0.0, tolerance="metric<=0.5")
    plan.write_bytes((folder / "quiet.plan.json").read_bytes())
    before = plan.read_bytes()
    result = gate_updated(plan, folder / "loud.onnx", inputs, metric=lambda a, b: float(a["y"].max() < 10))
    assert not result.holds and NoteKind.PLAN_STAYS in kinds(result)
    assert plan.read_bytes() == before


def test_findings_are_written_anew(folder: Path) -> None:
    plan, baseline, large = folder / "p.json", folder / "findings.json", folder / "large.onnx"
    saved(large, 1e3)
    assert statuses(gate(plan, large, folder / "x.npz", baseline=baseline))["findings"] == "fail"
    result = gate_updated(plan, large, folder / "x.npz", baseline=baseline)
    assert NoteKind.BASELINE_UPDATED in kinds(result)
    assert statuses(result)["findings"] == "pass"


def test_an_engine_of_the_old_plan_is_refused(folder: Path, says: Says) -> None:
    with says.raises(InputError):
        gate_updated(folder / "p.json", folder / "loud.onnx", engine=folder / "layers.json")
