"""Plans that a learned profile judged: which machine file judges them again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.emulation.profiles.machine import read_machine
from halfwise.precision.plan import read_plan
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.gate import gate
from tests.support.learned import machine, wide_product


def test_a_plan_names_the_machine_file_by_its_hash(tmp_path: Path) -> None:
    """Another file of that name does not judge in its place; `gate` and `fix` take a profile that is stated."""
    path, model = machine(tmp_path), wide_product(tmp_path / "m.onnx", 8)
    feeds = [{"x": each} for each in np.random.default_rng(1).random((3, 4, 8), np.float32)]
    found = fix(model, feeds, profile=str(path))
    assert found.plan.profile_sha256 == read_machine(path).sha256
    assert fix(model, feeds, plan=found.plan).met
    machine(tmp_path, Softmax="wide")
    with pytest.raises(InputError, match="judged by another"):
        gate(found.plan, model, feeds)
    assert gate(found.plan, model, feeds, profile=str(path)).result is not None


def test_a_plan_and_its_machine_file_move_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, elsewhere, model = tmp_path / "here", tmp_path / "there", wide_product(tmp_path / "m.onnx", 8)
    feeds = [{"x": each} for each in np.random.default_rng(1).random((3, 4, 8), np.float32)]
    there.mkdir()
    machine(there)
    monkeypatch.chdir(there)
    Path("plan.json").write_text(fix(model, feeds, profile="machine.json").plan.text(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    there.rename(elsewhere)
    assert gate(elsewhere / "plan.json", model, feeds).result is not None


def test_a_plan_names_its_machine_file_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one of that name where the gate runs does not take its place."""
    ours, ci, model = tmp_path / "ours", tmp_path / "ci", wide_product(tmp_path / "m.onnx", 8)
    feeds = [{"x": each} for each in np.random.default_rng(1).random((3, 4, 8), np.float32)]
    ours.mkdir()
    ci.mkdir()
    machine(ours)
    machine(ci, Softmax="wide")
    monkeypatch.chdir(ours)
    fix(model, feeds, profile="machine.json", out="out")
    plan = ours / "out" / "m.plan.json"
    assert json.loads(plan.read_text(encoding="utf-8"))["profile"] == "../machine.json"
    monkeypatch.chdir(ci)
    assert gate(plan, model, feeds).result is not None
    by_hand = json.loads(plan.read_text(encoding="utf-8"))
    del by_hand["profile_sha256"]
    plan.write_text(json.dumps(by_hand), encoding="utf-8")
    assert read_plan(plan).profile == str(ours / "machine.json")
