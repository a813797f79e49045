"""Each document is as its shipped schema says, and holds nothing that the schema does not speak of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest

import halfwise
from halfwise.cli.schemas import NAMES, schema
from halfwise.compiler import rtx
from halfwise.core.errors import InputError
from tests.models.report_models import HOSTILE, hostile_model
from tests.models.zoo import SHAPES, cnn_tiny_weights, norm_log_head
from tests.support.command_line import CommandLine, save
from tests.support.documents import check, strict
from tests.support.paths import DATA
from tests.support.says import Says

ROOM = Path(halfwise.__file__).parent


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Path, Path]:
    model, inputs = tmp_path / "hostile.onnx", tmp_path / "hostile_inputs"
    onnx.save(hostile_model(), model)
    inputs.mkdir()
    for index in range(4):
        np.savez(inputs / f"{index}.npz", **{"x<b>": np.full(4, 1 + index / 4, np.float32)})
    return model, inputs


# -- the schemas themselves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_named_by_its_version(name: str) -> None:
    document = schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$id"] == f"urn:halfwise:{name}:1"
    assert document["properties"]["schema"] == {"const": f"halfwise.{name}/1"}
    assert document["title"]


def test_every_document_of_the_source_has_a_schema() -> None:
    """The other way round, too: no schema is of a document that nothing makes."""
    texts = "".join(path.read_text(encoding="utf-8") for path in ROOM.rglob("*.py"))
    assert set(re.findall(r'"halfwise\.([a-z-]+)/1"', texts)) >= set(NAMES)


def test_an_unknown_name_is_one_line(halfwise_cli: CommandLine, says: Says) -> None:
    ended = halfwise_cli("schema", "engine")
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
    with pytest.raises(InputError):
        schema("../scan")


def test_the_verb_prints_it(halfwise_cli: CommandLine) -> None:
    assert halfwise_cli("schema", "plan").document == schema("plan")


def test_drift_is_caught() -> None:
    closed = strict(schema("verify"))
    document = {
        "schema": "halfwise.verify/1",
        "status": "met",
        "tolerance": {"*:rel_l2": 0.01},
        "inputs": {"origin": "given", "samples": 1},
        "outputs": {},
        "notes": [],
    }
    jsonschema.validate(document, closed)
    for change in ({"more": 1}, {"status": "maybe"}, {"inputs": {"origin": "given"}}, {"outputs": {"y": {"rms": 0}}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, **change}, closed)


# -- the documents ----------------------------------------------------------------------------------------------------


def test_scan(halfwise_cli: CommandLine, tmp_path: Path, hostile: tuple[Path, Path]) -> None:
    onnx.save(cnn_tiny_weights("tensors").model, tmp_path / "m.onnx")
    document = halfwise_cli("scan", tmp_path / "m.onnx", "--json").document
    check(document, "scan")
    assert document["findings"] and document["weights"]["initializers"]
    check(halfwise_cli("scan", hostile[0], "--json").document, "scan")


def test_trace_and_verify_with_what_is_not_finite(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    document = halfwise_cli("trace", model, "--inputs", inputs, "--json").document
    check(document, "trace")
    assert "inf" in [node["local_error"] for node in document["nodes"]]
    document = halfwise_cli("verify", model, model, "--inputs", inputs, "--json").document
    check(document, "verify")
    assert document["outputs"]


def test_fix_plan_and_gate(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    zoo = norm_log_head()
    model, inputs = save(zoo, tmp_path)
    words = ("--inputs", inputs, "--tol", f"*:rel_l2<={zoo.tolerance}", "--repairs", "none")
    document = halfwise_cli("fix", model, *words, "--out", tmp_path / "out", "--curve", "--json").document
    check(document, "fix")
    assert document["curve"] and document["nodes"]
    plan = Path(document["artifacts"]["plan"])
    check(json.loads(plan.read_text(encoding="utf-8")), "plan")
    document = halfwise_cli("gate", model, "--plan", plan, "--inputs", inputs, "--json").document
    check(document, "gate")
    assert document["status"] == "holds"


def test_repairs_and_advisories_of_a_target(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    words = ("--inputs", inputs, "--out", tmp_path / "out", "--target", "trt-10.9@t4", "--json")
    document = halfwise_cli("fix", model, *words).document
    check(document, "fix")
    assert document["repairs"]
    check(json.loads(Path(document["artifacts"]["plan"]).read_text(encoding="utf-8")), "plan")


@pytest.mark.skipif(not rtx.available(), reason="TensorRT-RTX is not installed (pip install 'halfwise[rtx]')")
def test_fix_with_a_compiler(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    words = ("--inputs", inputs, "--out", tmp_path / "out", "--target", "rtx-1.7", "--repairs", "none", "--json")
    document = halfwise_cli("fix", model, *words).document
    check(document, "fix")
    assert document["audit"]["builds"]


def test_what_a_real_backend_said(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    words = ("--inputs", inputs, "--out", tmp_path / "out", "--confirm", "ort-cpu", "--json")
    document = halfwise_cli("fix", model, *words).document
    check(document, "fix")
    assert document["confirmation"]["backend"]["backend"] == "ort-cpu"
    words = (model, document["artifacts"]["onnx"], "--backend", "ort-cpu", "--inputs", inputs, "--json")
    document = halfwise_cli("verify", *words).document
    check(document, "verify")
    assert document["backend"]["library"] == "ONNX Runtime"


def test_inputs_in_fp16(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    words = ("--inputs", inputs, "--out", tmp_path / "out", "--io-types", "fp16", "--json")
    document = halfwise_cli("fix", model, *words).document
    check(document, "fix")
    assert document["io"]["inputs"]


def test_a_hostile_fix(halfwise_cli: CommandLine, hostile: tuple[Path, Path], tmp_path: Path) -> None:
    model, inputs = hostile
    words = ("--inputs", inputs, "--out", tmp_path / "out", "--repairs", "none", "--json")
    document = halfwise_cli("fix", model, *words).document
    check(document, "fix")
    assert set(document["fp32_nodes"]) & set(HOSTILE)


@pytest.mark.parametrize("by_hand", [{"fp32_nodes": ["a", {"name": "b"}]}, {"fp32_nodes": []}])
def test_a_plan_by_hand(by_hand: dict[str, Any]) -> None:
    check({"schema": "halfwise.plan/1", **by_hand}, "plan")


@pytest.mark.parametrize("source", sorted((DATA / "layers").iterdir()), ids=lambda path: path.name)
def test_audit(source: Path, halfwise_cli: CommandLine, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"schema": "halfwise.plan/1", "fp32_nodes": ["/norm/Pow", "/gone"]}', encoding="utf-8")
    document = halfwise_cli("audit", source, "--plan", plan, "--json").document
    check(document, "audit")
    assert document["unproven"] or document["violations"]


@pytest.mark.parametrize("source", sorted((DATA / "logs").iterdir()), ids=lambda path: path.name)
def test_log(source: Path, halfwise_cli: CommandLine) -> None:
    check(halfwise_cli("log", source, "--json").document, "log")


def test_advise(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, _ = save(SHAPES["layer_norm_overflow"](), tmp_path)
    for words in (("--target", "trt-10.0.0@t4"), ("--target", "trt-10.0.0@t4", model)):
        document = halfwise_cli("advise", *words, "--json").document
        check(document, "advise")
        assert document["advisories"]


def test_stages(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(norm_log_head(), tmp_path)
    document = halfwise_cli("stages", model, "--inputs", inputs, "--json").document
    check(document, "stages")
    assert any(stage["culprits"] for stage in document["stages"])


def test_bisect(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["layer_norm_overflow"](), tmp_path)
    for judge in (("--backend", "ort-cpu"), ("--check", "true")):
        words = (*judge, "--inputs", inputs, "--out", tmp_path / judge[1])
        check(halfwise_cli("bisect", model, *words, "--json").document, "bisect")


def test_demo(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    document = halfwise_cli("demo", "--out", tmp_path / "demo", "--json").document
    check(document, "demo")
    check(document["scan"], "scan")
    check(document["fix"], "fix")
