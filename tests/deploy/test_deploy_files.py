"""What `fix` hands over to a TensorRT target: files that say the plan, and what the compiler made of it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler import rtx
from halfwise.compiler.layers_model import compile_for_log
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.deploy.trtexec_grammar import (
    parse_command,
    parse_layer_output_types,
    parse_layer_precisions,
    parse_shapes,
)
from halfwise.report.fix import show_fix
from halfwise.report.terminal import Terminal
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from tests.support.command_line import CommandLine
from tests.support.deployed import WIDTH, big_square, fixed, model_of, needs_rtx, samples
from tests.support.messages import kinds, only
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def command_of(result: FixResult) -> list[str]:
    assert result.deploy_files.command is not None
    return shlex.split(result.deploy_files.command.read_text(encoding="utf-8").strip().splitlines()[-1])


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_neutral_target_gets_no_files_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rtx, "build", None)
    result = fixed(tmp_path, big_square(), "onnx")
    document = result.to_json()
    assert document["artifacts"]["trtexec"] is document["artifacts"]["script"] is document["audit"] is None
    assert document["violations"] == document["advisories"] == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"m.fp16.onnx", "m.plan.json"}


@needs_rtx
def test_weak_command_names_the_parsers_layers_and_their_types(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "trt-8.6")
    assert result.fp32_nodes
    argv = command_of(result)
    span = Target.parse("trt-8.6").span
    assert span is not None
    said = parse_command(argv, span)
    assert said["--onnx"] == "../m.onnx"
    precisions = parse_layer_precisions(said["--layerPrecisions"] or "", span)
    assert precisions == dict.fromkeys(result.fp32_nodes, "fp32")
    assert parse_layer_output_types(said["--layerOutputTypes"] or "", span) == dict.fromkeys(precisions, ("fp32",))
    assert {"--fp16", "--noTF32", "--precisionConstraints", "--exportLayerInfo"} <= set(said)
    assert NoteKind.PARSER_TOLD in kinds(result.notes)
    assert result.to_json()["audit"] is None  # a weakly typed engine shows only itself what it runs


@needs_rtx
def test_nodes_without_a_name_get_one_in_a_model_to_build_from(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(names=False), "trt-10.9+weak")
    given = result.deploy_files.model
    assert given is not None
    assert given.name == "m.fp32.onnx"
    stored = onnx.load(given)
    assert {node.name for node in stored.graph.node} == {"node_of_q", "node_of_r", "node_of_l", "node_of_y"}
    assert all(tensor.data_type == TensorProto.FLOAT for tensor in stored.graph.initializer)
    assert "--onnx=m.fp32.onnx" in command_of(result)


@needs_rtx
def test_functions_are_inlined_in_a_model_to_build_from(tmp_path: Path) -> None:
    model = big_square()
    model.graph.node[0].CopyFrom(helper.make_node("Squared", ["x"], ["q"], "square", domain="local"))
    body = [helper.make_node("Mul", ["a", "a"], ["b"], "inside")]
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("local", "Squared", ["a"], ["b"], body, imports))
    model.opset_import.append(helper.make_opsetid("local", 1))
    result = fixed(tmp_path, model, "trt-10.9+weak")
    assert result.deploy_files.model is not None
    assert "inside" in {node.name for node in onnx.load(result.deploy_files.model).graph.node}


def test_without_the_parser_names_are_predicted_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    result = fixed(tmp_path, big_square(), "trt-9.3+weak")
    assert any(f"--layerPrecisions={result.fp32_nodes[0]}:fp32" in word for word in command_of(result))
    assert NoteKind.PARSER_MISSING in kinds(result.notes)


@needs_rtx
@pytest.mark.parametrize(
    ("target", "flags", "absent"),
    [
        ("trt-10.9", {"--stronglyTyped", "--skipInference", "--noTF32"}, {"--fp16", "--layerPrecisions"}),
        ("trt-9.1", {"--stronglyTyped"}, {"--fp16"}),
        ("trt-11.1", {"--noTF32", "--skipInference"}, {"--stronglyTyped", "--fp16", "--precisionConstraints"}),
    ],
)
def test_strong_command_builds_the_typed_model(
    tmp_path: Path, target: str, flags: set[str], absent: set[str], says: Says
) -> None:
    result = fixed(tmp_path, big_square(), target)
    span = Target.parse(target).span
    assert span is not None
    said = set(parse_command(command_of(result), span))
    assert flags <= said
    assert not absent & said
    assert "--onnx=m.fp16.onnx" in command_of(result)
    says(result.deploy_files.audit_command)
    assert result.deploy_files.build == ("sh", str(result.deploy_files.command))


@needs_rtx
def test_rtx_target(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "rtx-1.7")
    assert command_of(result)[0] == "tensorrt_rtx"
    words = ["halfwise", "audit", "m.fp16.onnx", "--plan", "m.plan.json", "--inputs", "m.samples"]
    assert shlex.split(result.deploy_files.audit_command) == words
    assert NoteKind.NEAREST_COMPILER not in kinds(result.notes)
    files = result.deploy_files
    assert files.build == ("python", str(files.script))  # the tool's options are not verified


@needs_rtx
def test_the_audit_that_is_named_compiles_for_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halfwise_cli: CommandLine
) -> None:
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(4, 1, 400)).astype(np.float32), "w")
    window = helper.make_node("Conv", ["x", "w"], ["y"], "window", strides=[160])
    shapes = {"x": [1, 1, "samples"], "y": [1, 4, "frames"]}
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([window], "audio", sides[:1], sides[1:], [weight])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    samples = [{"x": np.random.default_rng(seed).normal(size=(1, 1, 4000)).astype(np.float32)} for seed in range(4)]
    result = fix(tmp_path / "m.onnx", samples, target="rtx-1.7", out=tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    for told, shape in ((result.deploy_files.audit_command, "1x1x4000"), ("halfwise audit m.fp16.onnx", "1x1x")):
        answer = halfwise_cli(*shlex.split(told)[1:], "--json")
        assert (answer.code, shape in answer.out) == (0, True), told


@needs_rtx
def test_where_only_the_script_can_be_written_it_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    model = big_square()
    for node in model.graph.node:
        node.name += ",comma"
    result = fixed(tmp_path, model, "trt-10.9+weak")
    files = result.deploy_files
    assert (files.command, files.build) == (None, ("python", str(files.script)))
    terminal = Terminal()
    show_fix(terminal, result)
    terminal.flush()
    told = capsys.readouterr().out
    assert f"next    python {result.deploy_files.script}\n" in told
    says(told, "next  ", "then  ")


@needs_rtx
def test_both_files_can_be_executed_and_the_script_is_python(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "trt-10.9")
    artifacts = result.to_json()["artifacts"]
    assert artifacts["trtexec"] == str(tmp_path / "out" / "m.trtexec.sh")
    for path in (artifacts["trtexec"], artifacts["script"]):
        assert os.access(path, os.X_OK)
    compile(Path(artifacts["script"]).read_text(encoding="utf-8"), "m.build.py", "exec")


@needs_rtx
def test_what_a_version_cannot_say_is_a_note_with_the_way_out(tmp_path: Path, says: Says) -> None:
    model = big_square()
    for node in model.graph.node:
        node.name += ",comma"
    result = fixed(tmp_path, model, "trt-8.5")
    assert result.met
    assert result.deploy_files.command is result.deploy_files.script is None
    error = only(result.notes, NoteKind.NO_COMMAND).values["error"]
    says(error)
    error = only(result.notes, NoteKind.NO_SCRIPT).values["error"]
    assert error.startswith("target trt-8.5: TensorRT before 8.6")


@needs_rtx
def test_a_name_that_breaks_the_lines_of_a_log_is_not_taken_for_folded(tmp_path: Path, says: Says) -> None:
    model = big_square()
    model.graph.node[0].name = "two\nlines"
    result = fixed(tmp_path, model, "trt-8.6")
    assert result.deploy_files.command is None
    assert result.deploy_files.script is not None
    note = only(result.notes, NoteKind.NO_COMMAND)
    says(note.values["error"])
    assert NoteKind.FOLDED not in kinds(result.notes)
    assert '"two\\nlines": "fp32"' in result.deploy_files.script.read_text(encoding="utf-8")


@needs_rtx
def test_open_shapes_come_from_the_inputs(tmp_path: Path) -> None:
    inputs = samples(600.0, (2, 5, 5, 9))
    result = fixed(tmp_path, big_square(rows="rows"), "trt-10.9", inputs=inputs)
    span = Target.parse("trt-10.9").span
    assert span is not None
    said = parse_command(command_of(result), span)
    shapes = [parse_shapes(said[f"--{kind}Shapes"] or "")["x"] for kind in ("min", "opt", "max")]
    assert shapes == [(2, WIDTH), (5, WIDTH), (9, WIDTH)]
    limits = f"x goes from 2x{WIDTH} to 9x{WIDTH}, tuned for 5x{WIDTH}"
    assert only(result.notes, NoteKind.SHAPE_LIMITS).values["limits"] == limits
    assert result.deploy_files.command is not None
    assert limits in result.deploy_files.command.read_text(encoding="utf-8")
    assert result.deploy_files.compiled is not None
    assert result.deploy_files.compiled.audit is not None


def test_values_of_an_input_that_holds_a_shape_are_told_like_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    model = big_square()
    model.graph.node[-1].output[0] = "z"
    model.graph.node.append(helper.make_node("Reshape", ["z", "sizes"], ["y"], "view"))
    for name in ("sizes", "unused"):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [2]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"]))
    held = [np.array(size) for size in ((8, 32), (16, 16), (16, 16), (4, 64))]
    inputs = [{**feed, "sizes": size, "unused": size} for feed, size in zip(samples(600.0), held, strict=True)]
    result = fixed(tmp_path, model, "trt-10.9", inputs=inputs)
    assert "--minShapes=sizes:4x16" in command_of(result)
    assert "--maxShapes=sizes:16x64" in command_of(result)
    assert result.deploy_files.script is not None
    assert '"sizes": [' in result.deploy_files.script.read_text(encoding="utf-8")


@needs_rtx
def test_a_model_with_an_input_that_holds_a_shape_is_audited(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"], "exp"), helper.make_node("Reshape", ["e", "sizes"], ["y"], "view")]
    model = model_of(nodes)
    model.graph.input.append(helper.make_tensor_value_info("sizes", TensorProto.INT64, [2]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"]))
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((8, WIDTH), np.float32), sizes=np.array([16, 16]))
    log = compile_for_log(tmp_path / "m.onnx", [tmp_path / "in.npz"])
    assert [node.op for node in log.structure.nodes.values()] == ["Exp", "Reshape"]


def test_narrow_inputs_and_outputs_are_told_to_a_weak_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    result = fixed(tmp_path, big_square(), "trt-10.9+weak", io_types=Format.FP16)
    assert {"--inputIOFormats=fp16:chw", "--outputIOFormats=fp16:chw"} <= set(command_of(result))


def test_bf16_is_refused_where_the_target_has_none(tmp_path: Path, says: Says) -> None:
    with says.raises(InputError):
        fixed(tmp_path, big_square(), "trt-10.9@t4", allow_bf16=True)
    assert not (tmp_path / "out").exists()
