"""Two documents side by side: every kind, both directions, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from onnx import numpy_helper

from halfwise.cli.schemas import schema
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import load
from halfwise.verbs.compare import Comparison, compare
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.scan import scan
from halfwise.verbs.trace import trace
from tests.models.report_models import healthy_result, overflow_result
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.documents import strict
from tests.support.paths import DATA
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def changes(result: Comparison, section: str) -> dict[tuple[str, str], tuple[Any, Any, str]]:
    found = [each for each in result.sections if each.id == section]
    return {(c.name, c.what): (c.before, c.after, c.direction) for each in found for c in each.changes}


def checked(a: Mapping[str, Any], b: Mapping[str, Any]) -> Comparison:
    """The comparison, after what must hold of each: its schema, and its mirror image the other way round."""
    result, back = compare(a, b), compare(b, a)
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    jsonschema.validate(document, strict(schema("compare")))
    assert (result.count("better"), result.count("worse")) == (back.count("worse"), back.count("better"))
    assert result.count("changed") == back.count("changed")
    assert compare(a, a).sections == ()
    return result


def edited(document: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(document)), **parts}


# -- kinds ------------------------------------------------------------------------------------------------------------


def test_fixes() -> None:
    a = overflow_result().to_json()
    b = json.loads(json.dumps(a))
    name = next(iter(b["error"]["fixed"]))
    b["error"]["fixed"][name].update(rel_l2="inf", nonfinite=3)
    gone = b["nodes"].pop(0)
    b["nodes"].append({**gone, "name": "/new/Pow", "reason": "too large"})
    b.update(status="not-met", target="trt-10.9@t4")
    b["cost"].update(casts=a["cost"]["casts"] + 7, seconds=a["cost"]["seconds"] * 3)
    b["violations"] = [{"node": "/v", "wanted": "fp32", "got": "fp16", "kernels": ["k"], "why": "fused"}]
    result = checked(a, b)
    assert [section.id for section in result.sections] == ["verdict", "error", "nodes", "violations", "cost", "asked"]
    assert changes(result, "verdict") == {("", "status"): ("met", "not-met", "worse")}
    errors = changes(result, "error")
    assert errors[name, "rel_l2"][1:] == (float("inf"), "worse")
    assert errors[name, "nonfinite"] == (0, 3, "worse")
    assert changes(result, "nodes") == {
        ("/new/Pow", ""): (None, "fp32", "worse"),
        (gone["name"], ""): ("fp32", None, "better"),
    }
    (told,) = next(c.because for s in result.sections for c in s.changes if c.name == "/new/Pow")
    assert told == Note.of(NoteKind.OPERATOR_KEPT, gone["op"], why=gone["why"], reason="too large")
    assert changes(result, "violations") == {("/v", ""): (None, "wanted fp32, got fp16", "worse")}
    cost = changes(result, "cost")
    assert cost["", "casts"][2] == "worse" and cost["", "seconds"][2] == "changed"
    assert ("", "target") in changes(result, "asked")


def test_fixes_by_profile_and_along_steps() -> None:
    steps = {"steps": 3, "feedback": {"s": "t"}, "fp16": [1.0, 2.0, 3.0]}
    first, last = {"fixed": [0.1, 0.2, 0.3], "growth": 1.7}, {"fixed": [0.1, 0.4, 0.9], "growth": 3.0}
    told = healthy_result().to_json()
    a = edited(told, profiles={"strict": 0.5, "wide": 0.2}, rollout={**steps, **first})
    b = edited(told, profiles={"strict": 0.5, "wide": 0.8, "ort-cuda": 0.1}, rollout={**steps, **last})
    result = checked(a, b)
    assert changes(result, "profiles") == {("wide", ""): (0.2, 0.8, "worse")}
    assert changes(result, "rollout") == {("", "last"): (0.3, 0.9, "worse"), ("", "growth"): (1.7, 3.0, "worse")}
    assert changes(checked(a, edited(b, rollout={**steps, **last, "steps": 4})), "rollout") == {}


def test_two_real_fixes_by_their_repairs() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    plain, repaired = (fix(zoo.model, zoo.inputs[:6], repairs=rules) for rules in (("none",), ("all",)))
    result = checked(plain.to_json(), repaired.to_json())
    assert {direction for *_, direction in changes(result, "nodes").values()} == {"better"}
    assert list(changes(result, "repairs").values()) == [(None, "made", "changed")]


def test_measurements_that_say_the_same_are_no_change() -> None:
    a = overflow_result().to_json()
    b = json.loads(json.dumps(a))
    for metrics in b["error"]["fixed"].values():
        metrics["rel_l2"] *= 1.04
    b["cost"]["seconds"] *= 1.1
    assert compare(a, b).sections == ()


def test_plans(tmp_path: Path) -> None:
    plan = overflow_result().plan.to_json()
    by_hand = {"schema": "halfwise.plan/1", "fp32_nodes": [plan["fp32_nodes"][0]["name"], "/by/hand"]}
    result = checked(plan, by_hand)
    nodes = changes(result, "nodes")
    assert nodes["/by/hand", ""] == (None, "fp32", "worse")
    assert nodes[plan["fp32_nodes"][1]["name"], ""] == ("fp32", None, "better")
    narrower = edited(plan)
    narrower["fp32_nodes"][0]["format"] = "bf16"
    assert list(changes(checked(plan, narrower), "nodes").values()) == [("fp32", "bf16", "changed")]


def test_scans() -> None:
    model = SHAPES["layer_norm_overflow"]().model
    worse = onnx.ModelProto()
    worse.CopyFrom(model)
    for weight in worse.graph.initializer:
        if weight.name == "norm.weight":
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 1e7, weight.name))
    result = checked(scan(load(model)).to_json(), scan(load(worse)).to_json())
    assert changes(result, "findings")["norm.weight", "HW104"] == (None, "error", "worse")
    before, after, direction = changes(result, "weights")["norm.weight", "overflow"]
    assert (before, direction) == (0, "worse") and after > 0 and isinstance(after, int)


def test_information_is_neither_better_nor_worse() -> None:
    empty = scan(load(SHAPES["healthy_mlp"]().model)).to_json()
    told = {"rule": "HW301", "severity": "info", "where": {"kind": "model", "name": "types"}, "numbers": {}}
    more = edited(empty, findings=[*empty["findings"], {**told, "message": "m", "remedy": "r"}])
    assert changes(checked(empty, more), "findings") == {("types", "HW301"): (None, "info", "changed")}
    warned = edited(more)
    warned["findings"][-1]["severity"] = "warning"
    assert changes(checked(more, warned), "findings") == {("types", "HW301"): ("info", "warning", "worse")}


def test_traces() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    a = trace(zoo.model, zoo.inputs[:2]).to_json()
    b = edited(a)
    grown = b["tensors"][0]
    grown.update(max=1e5, over=0.25)
    b["nodes"][0]["local_error"] = "inf"
    b["nodes"].pop()
    result = checked(a, b)
    name = grown["name"]
    assert changes(result, "ranges")[name, "largest magnitude"][1:] == (1e5, "worse")
    assert result.sections[1].changes[0].because == (Note.of(NoteKind.NOW_BEYOND, format="FP16"),)
    assert changes(result, "shares")[name, "over"] == (a["tensors"][0]["over"], 0.25, "worse")
    assert changes(result, "errors")[b["nodes"][0]["name"], "local_error"][1:] == (float("inf"), "worse")
    assert changes(result, "graph") == {(a["nodes"][-1]["name"], "node"): ("there", None, "changed")}


def test_audits(halfwise_cli: CommandLine) -> None:
    documents = [
        halfwise_cli("audit", DATA / "layers" / name, "--json").document
        for name in ("inspector_8.6.json", "inspector_10.16.json")
    ]
    result = checked(*documents)
    assert {"cost", "precision", "kernels"} <= {section.id for section in result.sections}
    assert all(isinstance(c.before, int) for s in result.sections if s.id == "cost" for c in s.changes)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_what_cannot_be_compared(tmp_path: Path, halfwise_cli: CommandLine, says: Says) -> None:
    files = {
        "scan.json": json.dumps(scan(load(SHAPES["healthy_mlp"]().model)).to_json()),
        "plan.json": healthy_result().plan.text(),
        "gate.json": '{"schema": "halfwise.gate/1"}',
        "newer.json": '{"schema": "halfwise.scan/2"}',
        "none.json": '{"a": 1}',
        "list.json": "[]",
        "text.json": "verdict: fine",
        "torn.json": '{"schema": "halfwise.scan/1"}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def told(a: str, b: str) -> str:
        ended = halfwise_cli("compare", tmp_path / a, tmp_path / b)
        assert (ended.code, ended.out) == (2, "")
        return ended.told.replace(f"{tmp_path}/", "")

    says(told("scan.json", "plan.json"))
    says(told("gate.json", "gate.json"))
    says(told("newer.json", "scan.json"))
    says(told("scan.json", "none.json"))
    assert "is no document of halfwise" in told("list.json", "scan.json")
    assert "text.json is not valid JSON" in told("text.json", "scan.json")
    says(told("gone.json", "scan.json"))
    torn = told("torn.json", "torn.json")
    says(torn)
    with says.raises(InputError):
        compare({}, {})


def test_two_models_are_for_verify(tmp_path: Path, says: Says) -> None:
    onnx.save(SHAPES["layer_norm_overflow"]().model, tmp_path / "m.onnx")
    with says.raises(InputError):
        compare(tmp_path / "m.onnx", tmp_path / "m.onnx")


def test_results_are_compared_as_they_are() -> None:
    """As a notebook has them."""
    a, b = overflow_result(), healthy_result()
    assert compare(a, b.to_json()).to_json()["sections"] == compare(a.to_json(), b).to_json()["sections"] != []


# -- what is shown ----------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path, halfwise_cli: CommandLine) -> tuple[Path, Path]:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    paths = tmp_path / "a.json", tmp_path / "b.json"
    for path, rules in zip(paths, ("none", "all"), strict=True):
        out = tmp_path / path.stem
        words = ("--inputs", inputs, "--out", out, "--repairs", rules, "--json")
        path.write_text(halfwise_cli("fix", model, *words).out, encoding="utf-8")
    return paths


def test_in_the_terminal_and_as_json(two: tuple[Path, Path], halfwise_cli: CommandLine, says: Says) -> None:
    ended = halfwise_cli("compare", *two)
    assert ended.code == 0
    first, *rest = ended.out.splitlines()
    says(first)
    assert any(line.split()[:4] == ["/norm/Pow", "fp32", "-", "better"] for line in rest)
    document = halfwise_cli("compare", *two, "--json").document
    jsonschema.validate(document, strict(schema("compare")))
    assert document["kind"] == "fix"
    ended = halfwise_cli("compare", two[0], two[0])
    assert ended.out == f"{two[0]} against {two[0]} (fix): no difference\n"
