"""SARIF: what the standard asks for, what code hosts ask for besides, and names that want to be more than names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import numpy as np
import onnx
import pytest

from halfwise.compiler.buildlog import catalogue
from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.rules import RULES
from halfwise.report import sarif
from halfwise.report.sarif import sarif_text
from tests.models.report_models import HOSTILE, hostile_model
from tests.models.zoo import SHAPES, cnn_tiny_weights
from tests.models.zoo.graph_writer import GraphWriter
from tests.support.command_line import CommandLine
from tests.support.messages import saying
from tests.support.paths import DATA

_TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
_ARTIFACT = {
    "type": "object",
    "required": ["uri"],
    "properties": {
        "uri": {"type": "string", "pattern": r"^[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+$"},
        "uriBaseId": {"type": "string"},
        "index": {"type": "integer", "minimum": 0},
    },
    "additionalProperties": False,
}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
# The parts of the standard's schema for what is written here, closed; locations as code hosts want them.
ESSENTIALS: dict[str, Any] = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "pattern": "sarif-schema-2.1.0.json$"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"const": "halfwise"},
                                    "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id", "shortDescription", "fullDescription", "help"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string", "pattern": "^HW[0-9]{3}$"},
                                                "name": {"type": "string", "pattern": "^[A-Za-z0-9]{1,255}$"},
                                                "shortDescription": {**_TEXT, "additionalProperties": False},
                                                "fullDescription": {**_TEXT, "additionalProperties": False},
                                                "help": {**_TEXT, "additionalProperties": False},
                                                "defaultConfiguration": {
                                                    "type": "object",
                                                    "additionalProperties": False,
                                                    "properties": {"level": _LEVEL},
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "originalUriBaseIds": {"type": "object"},
                    "artifacts": {"type": "array", "items": {"type": "object", "properties": {"location": _ARTIFACT}}},
                    "properties": {"type": "object"},
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ruleId", "message", "locations", "level", "partialFingerprints"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": _LEVEL,
                                "message": {**_TEXT, "additionalProperties": False},
                                "partialFingerprints": {
                                    "type": "object",
                                    "required": ["primaryLocationLineHash"],
                                    "additionalProperties": {"type": "string"},
                                },
                                "properties": {"type": "object"},
                                "locations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "maxItems": 1,
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "additionalProperties": False,
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation", "region"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "artifactLocation": _ARTIFACT,
                                                    "region": {
                                                        "type": "object",
                                                        "required": ["startLine"],
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                                    },
                                                },
                                            },
                                            "logicalLocations": {
                                                "type": "array",
                                                "items": {
                                                    "type": "object",
                                                    "required": ["name", "fullyQualifiedName", "kind"],
                                                    "additionalProperties": {"type": "string"},
                                                },
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def checked(text: str) -> dict[str, Any]:
    """The run, after everything that must hold of it has been checked."""
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    faults = jsonschema.Draft202012Validator(ESSENTIALS).iter_errors(document)
    assert [f"{fault.json_path}: {fault.message[:300]}" for fault in faults] == []
    run: dict[str, Any] = document["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    hashes = [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]
    assert len(set(hashes)) == len(hashes), "two alerts of one hash"
    return run


def test_scan_writes_rules_and_places(
    halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my models").mkdir()
    onnx.save(cnn_tiny_weights("tensors").model, tmp_path / "my models" / "tiny#1.onnx")
    ended = halfwise_cli("scan", "my models/tiny#1.onnx", "--sarif", "out.sarif", "--json")
    assert ended.code == 0
    run = checked((tmp_path / "out.sarif").read_text(encoding="utf-8"))
    found = ended.document["findings"]
    assert len(run["results"]) == len(found)
    assert {rule["id"]: rule["defaultConfiguration"]["level"] for rule in run["tool"]["driver"]["rules"]} == {
        "HW102": "error",
        "HW101": "note",
    }
    first = run["results"][0]
    place = first["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "my%20models/tiny%231.onnx", "uriBaseId": "%SRCROOT%", "index": 0},
        "region": {"startLine": 1},
    }
    assert first["level"] == "error"
    names = {each["where"]["name"] for each in found if each["where"]["kind"] == "initializer"}
    assert first["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] in names
    assert first["message"]["text"].endswith(".")
    assert RULES["HW102"].remedy in first["message"]["text"]


def test_a_model_outside_the_folder_is_named_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model = tmp_path / "elsewhere" / "m.onnx"
    found = [finding("HW105", Where("initializer", "w"), saying("all of it is NaN"), {})]
    run = checked(sarif_text(found, model))
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert unquote(place["uri"]) == model.as_uri() and "uriBaseId" not in place


def test_nothing_found_is_an_empty_run() -> None:
    run = checked(sarif_text([], Path("m.onnx")))
    assert run["results"] == [] and run["tool"]["driver"]["rules"] == []


def _description(rule: str) -> str:
    """A log's own rule, or one on the command that it shows."""
    return catalogue.RULES[rule].description if rule in catalogue.RULES else RULES[rule].title


@pytest.mark.parametrize("source", sorted((DATA / "logs").iterdir()), ids=lambda path: path.name)
def test_logs(source: Path, halfwise_cli: CommandLine, tmp_path: Path) -> None:
    ended = halfwise_cli("log", source, "--sarif", tmp_path / "log.sarif", "--json")
    run = checked((tmp_path / "log.sarif").read_text(encoding="utf-8"))
    assert len(run["results"]) == len(ended.document["findings"])
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["shortDescription"]["text"].lower() == _description(rule["id"]).lower()


def test_a_rule_of_logs_is_described_without_what_a_log_fills_in() -> None:
    assert [rule.id for rule in catalogue.RULES.values() if "{" in rule.description] == []


def test_audits(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"schema": "halfwise.plan/1", "fp32_nodes": ["/norm/Pow", "/gone"]}', encoding="utf-8")
    source = DATA / "logs" / "layernorm_8.6_region.log"
    ended = halfwise_cli("audit", source, "--plan", plan, "--sarif", tmp_path / "a.sarif")
    assert ended.code == 1
    run = checked((tmp_path / "a.sarif").read_text(encoding="utf-8"))
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("HW801", "error"),
        ("HW802", "warning"),
    ]
    place = run["results"][0]["locations"][0]["logicalLocations"][0]
    assert place == {"name": "/norm/Pow", "fullyQualifiedName": "/norm/Pow", "kind": "function"}


def test_every_rule_can_be_written() -> None:
    found = [finding(rule, Where("node", "n"), saying("told"), {}) for rule in RULES]
    run = checked(sarif_text(found, Path("m.onnx")))
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(RULES)


def test_hostile_names_are_names(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    onnx.save(hostile_model(), tmp_path / "h.onnx")
    assert halfwise_cli("scan", tmp_path / "h.onnx", "--sarif", tmp_path / "h.sarif").code == 0
    checked((tmp_path / "h.sarif").read_text(encoding="utf-8"))
    found = [
        finding("HW201", Where("node", name), saying(f"{name} overflows"), {"list": list(range(999))})
        for name in HOSTILE
    ]
    found.append(finding("HW201", Where("node", "[here](http://x.example) {0}"), saying("is no link"), {}))
    text = sarif_text(found, Path("m.onnx"))
    run = checked(text)
    assert not set(text) & set("\x00\x1b\u202e\u2066\u200b\u2028")
    messages = [result["message"]["text"] for result in run["results"]]
    assert "\\[here\\](http://x.example) {{0}}: is no link" in messages[-1]
    kept = [result["locations"][0]["logicalLocations"][0]["name"] for result in run["results"]]
    assert kept[:-1] == list(HOSTILE)
    assert all(len(message) < 25_000 for message in messages)


def test_two_findings_of_one_rule_in_one_place_are_two_alerts() -> None:
    found = [finding("HW201", Where("node", "n"), saying(message), {}) for message in ("one", "two")]
    assert len(checked(sarif_text(found, Path("m.onnx")))["results"]) == 2


def test_no_more_than_code_hosts_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sarif._MOST == 5_000
    monkeypatch.setattr(sarif, "_MOST", 50)
    info = [Finding("HW301", "info", Where("node", f"i{index}"), {}, "x", "y") for index in range(60)]
    bad = Finding("HW105", "error", Where("node", "bad"), {}, "x", "y")
    run = checked(sarif_text([*info, bad], Path("m.onnx")))
    assert len(run["results"]) == 50
    assert run["results"][0]["ruleId"] == "HW105"
    assert run["properties"]["omittedResults"] == 11


def test_findings_in_one_place_stay_apart(tmp_path: Path, halfwise_cli: CommandLine) -> None:
    writer = GraphWriter("two")
    x = writer.input("x", [1, 4])
    for index in range(3):
        x = writer.op("MatMul", [x, writer.weight(f"w{index}", np.full((4, 4), 1e-7))], "")
    writer.output(x, "y", [1, 4])
    onnx.save(writer.model(), tmp_path / "m.onnx")
    halfwise_cli("scan", tmp_path / "m.onnx", "--sarif", tmp_path / "m.sarif")
    run = checked((tmp_path / "m.sarif").read_text(encoding="utf-8"))
    assert [result["ruleId"] for result in run["results"]].count("HW102") == 3


@pytest.mark.parametrize("name", ["layer_norm_overflow", "large_phase", "inverse_sigmoid"])
def test_findings_of_many_kinds(name: str, tmp_path: Path, halfwise_cli: CommandLine) -> None:
    onnx.save(SHAPES[name]().model, tmp_path / "m.onnx")
    halfwise_cli("scan", tmp_path / "m.onnx", "--sarif", tmp_path / "m.sarif")
    checked((tmp_path / "m.sarif").read_text(encoding="utf-8"))
