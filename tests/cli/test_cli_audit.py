"""`halfwise audit` takes every kind of source, checks a plan, and answers with an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper
from typer.testing import CliRunner

from halfwise.cli import audit as verb
from halfwise.compiler import rtx
from halfwise.core.errors import InputError, MissingBackend
from halfwise.verbs.audit import audit
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.verify import verify
from tests.models.build import f32, node, value
from tests.models.build import model as build
from tests.models.typed_graphs import states_fp32
from tests.support.paths import DATA
from tests.support.says import Says

REGION_LOG = DATA / "logs" / "layernorm_8.6_region.log"

app = typer.Typer()
app.command()(verb.command)


def run(*arguments: object, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.output


def plan(folder: Path, document: object) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("source", "kernels"),
    [
        ("layers/inspector_8.6.json", 4),
        ("layers/inspector_10.16.json", 5),
        ("layers/inspector_11.json", 2),
        ("layers/names_8.4.json", 4),
        ("layers/dump_10.txt", 2),
        ("logs/layernorm_8.6_region.log", 3),
        ("logs/rtx_1.7_mixed_conv.log", 8),
    ],
)
def test_every_kind_of_source(source: str, kernels: int) -> None:
    document = json.loads(run(DATA / source, "--json"))
    assert document["schema"] == "halfwise.audit/1"
    assert document["engine"]["kernels"] == kernels


def test_what_a_later_step_makes_is_told_with_its_command(tmp_path: Path, says: Says) -> None:
    """The layer list before the engine was built: a plan of nearly the same name was offered instead."""
    onnx.save(build([node("Relu", "x", "y")], [value("x")], [value("y")]), tmp_path / "my model.onnx")
    feed = {"x": f32(1, -2, 3, 4)}
    fix(tmp_path / "my model.onnx", [feed], target="trt-10.9", out=tmp_path / "out")
    for name in ("layers.json", "engine"):
        with says.raises(InputError):
            audit(tmp_path / "out" / f"my model.{name}", tmp_path / "out" / "my model.plan.json")
    with says.raises(InputError):
        verify(tmp_path / "my model.onnx", tmp_path / "out" / "my model.engine-outputs", [feed])
    with says.raises(InputError):
        audit(tmp_path / "out" / "my model.fp16.onnx", tmp_path / "none" / "my model.plan.json")


def test_without_a_plan_lost_fp32_of_a_typed_model_is_a_no(tmp_path: Path) -> None:
    onnx.save(states_fp32(), tmp_path / "m.onnx")
    source = DATA / "layers" / "inspector_11.json"
    said = run(source, "--model", tmp_path / "m.onnx", exit_code=1)
    assert "note: 1 of 3 nodes that the model states in FP32 did not run so: 'mm'." in said
    assert "violation mm: " in said and "the plan" not in said
    document = json.loads(run(source, "--model", tmp_path / "m.onnx", "--json", exit_code=1))
    assert [each["node"] for each in document["violations"]] == ["mm"] and not document["unproven"]


def test_one_of_a_kind_is_counted_as_one() -> None:
    assert "1 cast, 1 reformat," in run(DATA / "layers/dump_10.txt")


def test_a_broken_plan_is_exit_code_1(tmp_path: Path, says: Says) -> None:
    path = plan(tmp_path, {"fp32_nodes": ["/norm/Pow", {"name": "/in/Conv", "why": "x"}]})
    output = run(REGION_LOG, "--plan", path, exit_code=1)
    says(output, "violation /norm/Pow")
    assert "violation /in/Conv" not in output and "/in/Conv" in output
    document = json.loads(run(REGION_LOG, "--plan", path, "--json", exit_code=1))
    assert [violation["node"] for violation in document["violations"]] == ["/norm/Pow"]


def test_a_plan_that_cannot_be_shown_to_be_kept_is_exit_code_1(tmp_path: Path, says: Says) -> None:
    path = plan(tmp_path, {"fp32_nodes": ["norm_sqrt"]})
    output = run(DATA / "layers" / "inspector_8.6.json", "--plan", path, exit_code=1)
    says(output, "unproven norm_sqrt")
    says(output, "--model", "the plan is not")


def test_the_plan_states_the_format_of_each_node(tmp_path: Path) -> None:
    bf16 = {"fp32_nodes": [{"name": "mm", "format": "bf16"}]}
    assert "no node breaks the plan" in run(DATA / "layers" / "inspector_11.json", "--plan", plan(tmp_path, bf16))
    wide = {"fp32_nodes": [{"name": "mm", "format": "fp32"}]}
    assert "got bf16" in run(DATA / "layers" / "inspector_11.json", "--plan", plan(tmp_path, wide), exit_code=1)


def test_an_empty_plan_is_nothing_to_check(tmp_path: Path, says: Says) -> None:
    output = run(REGION_LOG, "--plan", plan(tmp_path, {"fp32_nodes": []}))
    says(output, "the plan keeps")


def test_known_defects_of_the_version_in_the_log_are_mentioned(tmp_path: Path) -> None:
    output = run(REGION_LOG)
    assert "known for TensorRT 8.6.1: TRT-LN-MYELIN-86" in output
    assert f"(halfwise advise --target trt-8.6.1 {REGION_LOG})" in output
    document = json.loads(run(REGION_LOG, "--json"))
    assert document["target"] == "trt-8.6.1"
    applies = {advisory["id"]: advisory["applies"] for advisory in document["advisories"]}
    assert applies["TRT-LN-MYELIN-86"] == "yes"


def test_known_defects_of_a_stated_target(tmp_path: Path, says: Says) -> None:
    source = DATA / "layers" / "inspector_10.16.json"
    says(run(source), "--target")
    says(run(source, "--target", "trt-10.0.0@t4"), "TRT-MHA-V2-1000")
    planned = plan(tmp_path, {"target": "trt-10.0.0", "fp32_nodes": []})
    assert json.loads(run(source, "--plan", planned, "--json"))["target"] == "trt-10.0.0"
    with pytest.raises(InputError, match="TensorRT 7 is not known"):
        run(source, "--target", "trt-7")


def test_a_kept_plan_is_exit_code_0(tmp_path: Path) -> None:
    output = run(REGION_LOG, "--plan", plan(tmp_path, {"fp32_nodes": ["/in/Conv"]}))
    assert "no node breaks the plan" in output
    assert "\x1b" not in output


def test_attention_and_notes_are_told(says: Says) -> None:
    output = run(DATA / "layers" / "inspector_10.16.json")
    says(output, "_gemm_mha_v2")
    says(run(DATA / "layers" / "inspector_8.6.json"), "Myelin region")


@pytest.mark.parametrize(
    "document", ["{", {"nodes": []}, {"fp32_nodes": [3]}, {"fp32_nodes": [{"name": "a", "format": "fp8"}]}, []]
)
def test_plans_that_are_none(tmp_path: Path, document: object, says: Says) -> None:
    with says.raises(InputError):
        run(REGION_LOG, "--plan", plan(tmp_path, document))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        run(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        run(tmp_path)
    with pytest.raises(InputError, match="there is no such plan"):
        run(REGION_LOG, "--plan", tmp_path / "none.json")


@pytest.mark.parametrize("text", ['{"Layers": []}', "[]"])
def test_an_empty_list_of_layers_is_refused(tmp_path: Path, text: str, says: Says) -> None:
    path = tmp_path / "layers.json"
    path.write_text(text, encoding="utf-8")
    with says.raises(InputError):
        run(path)


def test_an_engine_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.plan"
    path.write_bytes(b"ftrt\0\0\0\1" * 100)
    with pytest.raises(InputError, match="not an ONNX model"):
        run(path)


def test_a_log_without_layers_says_how_to_get_them(says: Says) -> None:
    with says.raises(InputError):
        run(DATA / "logs" / "strong_11_failure.log")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"], name="e")],
        "g",
        [value("x", TensorProto.FLOAT16, ["n", 2])],
        [value("y", TensorProto.FLOAT16, ["n", 2])],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.skipif(not rtx.available(), reason="TensorRT-RTX is not installed (pip install 'halfwise[rtx]')")
def test_a_model_is_compiled_and_audited(model: Path, tmp_path: Path, says: Says) -> None:
    samples = tmp_path / "inputs.npz"
    np.savez(samples, x=np.ones((3, 2), np.float16))
    for inputs in ((), ("--inputs", samples)):
        output = run(model, "--plan", plan(tmp_path, {"fp32_nodes": ["e"]}), *inputs, exit_code=1)
        assert "1 kernel," in output
        assert ("generated inputs: x " in output) is not bool(inputs)
        assert ("the inputs given: x 3x2" in output) is bool(inputs)
        assert "--target" not in output
        says(output, "violation e")


def test_a_model_needs_the_compiler(model: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    with says.raises(MissingBackend):
        run(model)
