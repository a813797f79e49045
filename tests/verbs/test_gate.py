"""The gate: a plan made for one model, asked of the same one, one trained again, one with another graph, and worse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import halfwise
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.model.model import load
from halfwise.precision.plan import Plan, read_plan
from halfwise.verbs.gate import Gate, gate
from tests.models import build
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.gates import changed, scaled, statuses
from tests.support.paths import DATA
from tests.support.says import Says

REGION_LOG = DATA / "logs" / "layernorm_8.6_region.log"


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its inputs, its plan and its findings, as they would be committed."""
    path = tmp_path_factory.mktemp("gate")
    model, inputs = save(SHAPES["layer_norm_overflow"](), path)
    halfwise.fix(model, inputs, out=path, repairs=("none",))
    (path / "findings.json").write_text(json.dumps(halfwise.scan(model).to_json()), encoding="utf-8")
    model.rename(path / "model.onnx")
    (path / f"{model.stem}.plan.json").rename(path / "plan.json")
    return path


def said(result: Gate, check: str) -> Note:
    return next(each.note for each in result.checks if each.id == check)


def details(result: Gate) -> list[Note]:
    return [note for check in result.checks for note in check.details]


# -- the model, and what became of it ---------------------------------------------------------------------------------


def test_the_very_model_passes(folder: Path) -> None:
    result = gate(folder / "plan.json", folder / "model.onnx", folder / "inputs", baseline=folder / "findings.json")
    assert result.holds
    assert result.change == "none"
    assert statuses(result) == {
        "fingerprint": "pass",
        "nodes": "pass",
        "tolerance": "pass",
        "violations": "skip",
        "findings": "pass",
    }
    assert said(result, "fingerprint") == Note.of(NoteKind.PLAN_OF_THIS)
    assert result.problems == ()
    assert result.to_json()["status"] == "holds"


@pytest.mark.parametrize("place", range(6))
def test_every_input_judges(place: int, tmp_path: Path) -> None:
    """One input of six that the plan does not bear closes the gate, wherever it stands."""
    square = build.node("Mul", "x x", "y")
    proto = build.model([square], [build.value("x", shape=(4,))], [build.value("y", shape=(4,))])
    plan = Plan("", "", 0, "onnx", "strict", Tolerance.default(), Format.FP32, "", ())
    feeds = [{"x": np.full(4, 1 + i, np.float32)} for i in range(6)]
    assert said(gate(plan, proto, feeds), "tolerance").values["count"] == 6
    feeds[place] = {"x": np.full(4, 300, np.float32)}
    assert not gate(plan, proto, feeds).holds
    with pytest.raises(halfwise.InputError, match="judge_on_all is for a plan"):
        halfwise.fix(proto, feeds, judge_on_all=True)


def test_other_weights_pass_and_fix_applies_the_plan_to_them(folder: Path) -> None:
    model = changed(folder, "retrained.onnx", scaled(1.01))
    result = gate(folder / "plan.json", model, folder / "inputs")
    assert (result.holds, result.change) == (True, "weights")
    assert said(result, "fingerprint") == Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS)
    assert result.result is not None
    told = said(result, "tolerance")
    assert (told.kind, told.values["told"]) == (NoteKind.GATE_MEASURED, result.result.verdict.because)
    plan = read_plan(folder / "plan.json")
    fixed = halfwise.fix(model, folder / "inputs", plan=plan)
    assert fixed.met and Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS) in fixed.notes
    assert [node.name for node in fixed.plan.nodes] == [node.name for node in plan.nodes]
    assert (fixed.plan.sha256, fixed.plan.graph_sha256) == (load(model).sha256, plan.graph_sha256)
    again = halfwise.fix(folder / "model.onnx", folder / "inputs", plan=plan)
    assert Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS) not in again.notes


def test_weights_that_break_the_tolerance_are_told_with_the_number(folder: Path) -> None:
    model = changed(folder, "worse.onnx", scaled(1e6, "proj.weight"))
    result = gate(folder / "plan.json", model, folder / "inputs")
    assert (result.holds, result.change, statuses(result)["tolerance"]) == (False, "weights", "fail")
    assert said(result, "tolerance").values["told"].kind is NoteKind.NOT_FINITE
    assert [problem.rule for problem in result.problems] == ["HW903"]
    assert result.to_json()["error"]["y"]["nonfinite"] > 0


def test_a_new_node_is_another_graph_and_still_measured(folder: Path) -> None:
    def add(model: onnx.ModelProto) -> None:
        old = model.graph.output[0].name
        last = next(node for node in model.graph.node if old in node.output)
        last.output[0] = "before_last"
        model.graph.node.append(onnx.helper.make_node("Identity", ["before_last"], [old], name="last"))

    result = gate(folder / "plan.json", changed(folder, "longer.onnx", add), folder / "inputs")
    assert (result.holds, result.change) == (False, "graph")
    found = statuses(result)
    assert (found["fingerprint"], found["nodes"], found["tolerance"]) == ("fail", "pass", "pass")
    count = len(onnx.load(folder / "model.onnx").graph.node)
    assert said(result, "fingerprint") == Note.of(NoteKind.PLAN_OF_OTHER_SIZE, planned=count, nodes=count + 1)


def test_as_many_nodes_wired_otherwise_are_another_graph(folder: Path) -> None:
    def swap(model: onnx.ModelProto) -> None:
        model.graph.node[0].attribute[0].ints[0] = 1

    model = onnx.load(folder / "model.onnx")
    assert model.graph.node[0].attribute[0].ints, "the first node has axes"
    result = gate(folder / "plan.json", changed(folder, "axes.onnx", swap), folder / "inputs")
    assert result.change == "graph"
    assert said(result, "fingerprint") == Note.of(NoteKind.PLAN_OF_OTHER_GRAPH)


def test_inputs_that_another_graph_does_not_take_are_no_bad_usage(folder: Path) -> None:
    def more(model: onnx.ModelProto) -> None:
        value = onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, [1])
        model.graph.input.append(value)
        model.graph.node.append(onnx.helper.make_node("Abs", ["second"], ["second_abs"], name="abs"))
        model.graph.output.append(onnx.helper.make_tensor_value_info("second_abs", onnx.TensorProto.FLOAT, [1]))

    result = gate(folder / "plan.json", changed(folder, "two_inputs.onnx", more), folder / "inputs")
    assert (result.holds, result.change) == (False, "graph")
    assert statuses(result)["tolerance"] == "skip"
    assert said(result, "tolerance").kind is NoteKind.NOT_MEASURED
    assert "second" in said(result, "tolerance").values["why"]


def test_a_node_that_is_gone_is_named_and_nothing_is_measured(folder: Path) -> None:
    def rename(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            if node.op_type == "Pow":
                node.name = "/renamed/Pow"

    result = gate(folder / "plan.json", changed(folder, "renamed.onnx", rename), folder / "inputs")
    nodes = next(check for check in result.checks if check.id == "nodes")
    assert nodes.status == "fail" and nodes.details == (Note.of(NoteKind.NODE_MISSING, "/norm/Pow"),)
    assert (nodes.note.kind, nodes.note.values["missing"]) == (NoteKind.NODES_MISSING, 1)
    assert statuses(result)["tolerance"] == "skip"
    assert result.result is None and result.to_json()["error"] == {}
    assert [problem.rule for problem in result.problems] == ["HW901", "HW902"]


def test_a_node_that_became_another_operator(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan["fp32_nodes"][0]["op"] = "Erf"
    (folder / "other_op.json").write_text(json.dumps(plan), encoding="utf-8")
    result = gate(folder / "other_op.json", folder / "model.onnx", folder / "inputs")
    (change,) = details(result)
    assert change == Note.of(NoteKind.OPERATOR_CHANGED, "/norm/Pow", was="Erf", now="Pow")


def test_an_output_of_the_tolerance_that_is_gone(folder: Path, says: Says) -> None:
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan["tolerance"] = {"boxes:rel_l2": 0.01}
    (folder / "boxes.json").write_text(json.dumps(plan), encoding="utf-8")
    result = gate(folder / "boxes.json", folder / "model.onnx", folder / "inputs")
    told = said(result, "nodes")
    assert told.kind is NoteKind.PLAN_REFUSED
    says(told.values["why"])


def test_older_plans_and_plans_by_hand(folder: Path) -> None:
    plan = read_plan(folder / "plan.json")
    old = json.loads(plan.text())
    del old["model"]["graph_sha256"]
    (folder / "old.json").write_text(json.dumps(old), encoding="utf-8")
    model = changed(folder, "retrained2.onnx", scaled(1.01))
    result = gate(folder / "old.json", model, folder / "inputs")
    assert (result.holds, result.change) == (True, "weights")
    assert said(result, "fingerprint") == Note.of(NoteKind.PLAN_OF_OTHER_FILE)
    by_hand = {"schema": "halfwise.plan/1", "fp32_nodes": [node.name for node in plan.nodes]}
    (folder / "hand.json").write_text(json.dumps(by_hand), encoding="utf-8")
    result = gate(folder / "hand.json", model, folder / "inputs")
    assert (result.holds, result.change) == (True, "any")


def test_other_weights_in_external_data_are_other_weights(folder: Path, tmp_path: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    path = tmp_path / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    halfwise.fix(path, folder / "inputs", out=tmp_path, repairs=("none",))
    plan = tmp_path / "external.plan.json"
    assert gate(plan, path, folder / "inputs").change == "none"
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[-4] ^= 1  # the last digit of the last weight
    (tmp_path / "weights.bin").write_bytes(data)
    assert gate(plan, path, folder / "inputs").change == "weights"


def test_repairs_are_made_again_on_other_weights(folder: Path, tmp_path: Path) -> None:
    fixed = halfwise.fix(folder / "model.onnx", folder / "inputs")
    assert fixed.plan.repairs
    result = gate(fixed.plan, changed(folder, "retrained3.onnx", scaled(1.01)), folder / "inputs")
    (nodes,) = (check for check in result.checks if check.id == "nodes")
    assert result.holds and Note.of(NoteKind.REPAIRS_FIT, count=1) in (nodes.note, *nodes.also)


# -- findings, audits -------------------------------------------------------------------------------------------------


def test_new_findings_close_the_gate_and_old_ones_do_not(folder: Path) -> None:
    def huge(model: onnx.ModelProto) -> None:
        scaled(1e7, "norm.weight")(model)

    model = changed(folder, "huge.onnx", huge)
    result = gate(folder / "plan.json", model, folder / "inputs", baseline=folder / "findings.json")
    assert statuses(result)["findings"] == "fail"
    assert "HW104" in [finding.rule for finding in result.findings]
    assert "HW104" in [problem.rule for problem in result.problems]
    assert ("norm.weight", "HW104") in {(note.subject, note.values.get("rule")) for note in details(result)}


def test_an_engine_that_breaks_the_plan(folder: Path) -> None:
    result = gate(folder / "plan.json", folder / "model.onnx", folder / "inputs", engine=REGION_LOG)
    check = next(check for check in result.checks if check.id == "violations")
    assert check.status == "fail"
    ran = next(note for note in check.details if note.subject == "/norm/Pow").values["what"]
    assert (ran.kind, ran.values["wanted"], ran.values["got"]) == (NoteKind.RAN_OTHERWISE, "fp32", "fp16")
    assert "HW801" in [problem.rule for problem in result.problems]


@pytest.mark.parametrize(
    "document", ["{", '{"schema": "halfwise.plan/1"}', '{"schema": "halfwise.scan/1", "findings": [3]}', None]
)
def test_what_is_no_baseline(document: str | None, says: Says, folder: Path, halfwise_cli: CommandLine) -> None:
    path = folder / "bad.json"
    path.unlink(missing_ok=True)
    if document is not None:
        path.write_text(document, encoding="utf-8")
    ended = halfwise_cli("gate", folder / "model.onnx", "--plan", folder / "plan.json", "--baseline", path)
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
