"""What `fix` hands over to a TensorRT target: files that say the plan, and what the compiler made of it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler import rtx
from halfwise.compiler.audit import Violation
from halfwise.compiler.build import BuildError
from halfwise.compiler.compiled import Compiler, compile_and_adjust
from halfwise.compiler.isolated_matmuls import companions, find_isolated_matmuls
from halfwise.compiler.layers_model import compile_for_log
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.deploy.trtexec_grammar import (
    parse_command,
    parse_layer_output_types,
    parse_layer_precisions,
    parse_shapes,
)
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.report.fix import show_fix
from halfwise.report.terminal import Terminal
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from tests.models.encoder_attention import encoder_attention
from tests.support.messages import kinds, only

needs_rtx = pytest.mark.skipif(not rtx.available(), reason="TensorRT-RTX is not installed")

WIDTH = 32


def model_of(nodes: list[onnx.NodeProto], *weights: onnx.TensorProto, rows: int | str = 8) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, WIDTH])],
        list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def weight(name: str, value: float, spread: float = 0.0) -> onnx.TensorProto:
    rng = np.random.default_rng(7)
    values = value * (1 + spread * rng.standard_normal((WIDTH, WIDTH)))
    return numpy_helper.from_array(values.astype(np.float32), name)


def isolated_product() -> onnx.ModelProto:
    """Weights beyond FP16's range, so that this one product must stay in FP32; all around it is healthy."""
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["s"], "shrink"),
        helper.make_node("MatMul", ["s", "w"], ["p"], "product"),
        helper.make_node("Transpose", ["p"], ["t"], "turn", perm=[1, 0]),
        helper.make_node("Relu", ["t"], ["u"], "bend"),
        helper.make_node("Transpose", ["u"], ["y"], "back", perm=[1, 0]),
    ]
    large = numpy_helper.from_array((1e5 * np.eye(WIDTH)).astype(np.float32), "w")
    return model_of(nodes, large, numpy_helper.from_array(np.array(0.01, np.float32), "small"))


def big_square(rows: int | str = 8, names: bool = True) -> onnx.ModelProto:
    """Squares beyond 65504, brought back by a logarithm: both nodes at that tensor must stay in FP32."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["q"], "square"),
        helper.make_node("Add", ["q", "one"], ["r"], "guard"),
        helper.make_node("Log", ["r"], ["l"], "log"),
        helper.make_node("Relu", ["l"], ["y"], "relu"),
    ]
    if not names:
        for node in nodes:
            node.name = ""
    return model_of(nodes, numpy_helper.from_array(np.array(1, np.float32), "one"), rows=rows)


def samples(scale: float, rows: tuple[int, ...] = (8, 8, 8, 8)) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [{"x": (scale * rng.standard_normal((n, WIDTH))).astype(np.float32)} for n in rows]


def fixed(folder: Path, model: onnx.ModelProto, target: str, scale: float = 600.0, **options: Any) -> FixResult:
    path = folder / "m.onnx"
    onnx.save(model, path)
    options.setdefault("repairs", ("none",))  # these tests are about what stays in FP32
    return fix(path, options.pop("inputs", samples(scale)), out=folder / "out", target=target, **options)


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
def test_strong_command_builds_the_typed_model(tmp_path: Path, target: str, flags: set[str], absent: set[str]) -> None:
    result = fixed(tmp_path, big_square(), target)
    span = Target.parse(target).span
    assert span is not None
    said = set(parse_command(command_of(result), span))
    assert flags <= said
    assert not absent & said
    assert "--onnx=m.fp16.onnx" in command_of(result)
    assert result.deploy_files.audit_command == "halfwise audit m.layers.json --plan m.plan.json --model m.fp16.onnx"
    assert result.deploy_files.build == ("sh", str(result.deploy_files.command))


@needs_rtx
def test_rtx_target(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "rtx-1.7")
    assert command_of(result)[0] == "tensorrt_rtx"
    assert result.deploy_files.audit_command == "halfwise audit m.fp16.onnx --plan m.plan.json"
    assert NoteKind.NEAREST_COMPILER not in kinds(result.notes)
    files = result.deploy_files
    assert files.build == ("python", str(files.script))  # the tool's options are not verified


@needs_rtx
def test_where_only_the_script_can_be_written_it_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "then    halfwise audit m.layers.json --plan m.plan.json --model" in told


@needs_rtx
def test_both_files_can_be_executed_and_the_script_is_python(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "trt-10.9")
    artifacts = result.to_json()["artifacts"]
    assert artifacts["trtexec"] == str(tmp_path / "out" / "m.trtexec.sh")
    for path in (artifacts["trtexec"], artifacts["script"]):
        assert os.access(path, os.X_OK)
    compile(Path(artifacts["script"]).read_text(encoding="utf-8"), "m.build.py", "exec")


@needs_rtx
def test_what_a_version_cannot_say_is_a_note_with_the_way_out(tmp_path: Path) -> None:
    model = big_square()
    for node in model.graph.node:
        node.name += ",comma"
    result = fixed(tmp_path, model, "trt-8.5")
    assert result.met
    assert result.deploy_files.command is result.deploy_files.script is None
    error = only(result.notes, NoteKind.NO_COMMAND).values["error"]
    assert "splits its layer lists at every comma" in error
    assert "build the typed ONNX model with TensorRT 9.1 or later" in error
    error = only(result.notes, NoteKind.NO_SCRIPT).values["error"]
    assert error.startswith("target trt-8.5: TensorRT before 8.6")


@needs_rtx
def test_a_name_that_breaks_the_lines_of_a_log_is_not_taken_for_folded(tmp_path: Path) -> None:
    model = big_square()
    model.graph.node[0].name = "two\nlines"
    result = fixed(tmp_path, model, "trt-8.6")
    assert result.deploy_files.command is None
    assert result.deploy_files.script is not None
    note = only(result.notes, NoteKind.NO_COMMAND)
    assert "'two\\nlines' breaks the lines of the log" in note.values["error"]
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


def test_bf16_is_refused_where_the_target_has_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--allow bf16: t4 \(compute capability 7.5\) has no BF16; it needs 8.0"):
        fixed(tmp_path, big_square(), "trt-10.9@t4", allow_bf16=True)
    assert not (tmp_path / "out").exists()


# -- the compiler ------------------------------------------------------------------------------------------------------


@needs_rtx
def test_the_audit_of_the_compiled_model_goes_into_the_result(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "trt-10.9")
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["violations"] == []
    assert document["audit"]["compiler"].startswith("TensorRT-RTX ")
    assert document["audit"]["builds"] == 1
    assert document["audit"]["engine"]["kernels"] >= 1
    assert set(document["audit"]["engine"]) >= {"kernels", "bytes_moved", "casts", "reformats"}
    assert document["audit"]["coverage"]["unknown"] == 0
    assert NoteKind.NEAREST_COMPILER in kinds(result.notes)


@needs_rtx
def test_a_lone_product_gets_company_and_stays_fp32(tmp_path: Path) -> None:
    result = fixed(tmp_path, isolated_product(), "trt-10.9", scale=1.0)
    compiled = result.deploy_files.compiled
    assert compiled is not None
    assert compiled.audit is not None
    assert result.met
    assert compiled.builds == 2
    assert compiled.audit.violations == ()
    assert "product" in result.fp32_nodes
    added = [node for node in result.plan.nodes if node.why == "compiler"]
    assert added
    assert all(node.because == (Note.of(NoteKind.KEEPS_PRODUCT, "product"),) for node in added)
    joined = only(result.notes, NoteKind.PRODUCTS_JOINED).values
    assert (joined["products"], joined["nodes"], joined["before"], joined["after"]) == (["product"], ["shrink"], 1, 0)
    again = fix(tmp_path / "m.onnx", samples(1.0), target="trt-10.9", plan=result.plan)
    assert again.to_json()["violations"] == []


@needs_rtx
def test_what_is_forced_joins_no_lone_product(tmp_path: Path) -> None:
    result = fixed(tmp_path, isolated_product(), "trt-10.9", scale=1.0, force=["name:shrink"])
    assert "shrink" not in result.fp32_nodes and not [node for node in result.plan.nodes if node.why == "compiler"]
    assert only(result.notes, NoteKind.PRODUCT_FORCED).values["nodes"] == ["shrink"]


@needs_rtx
def test_isolated_products_of_a_real_model_are_kept(shared_models: Path) -> None:
    path = shared_models / "nanotrack_v3_head" / "model.onnx"
    if not path.exists():
        pytest.skip("the shared model nanotrack_v3_head is not here")
    model = load(path)
    sites, node = Sites(model), model.node_by_name
    isolated = [node[name] for name in ("Conv_113", "Conv_103", "Conv_108", "Conv_20")]
    compiled = compile_and_adjust(
        Decision(sites, dict.fromkeys(isolated, Format.FP32), Format.FP32),
        samples=load_samples(model.inputs, None).search,
        sizes={value: 1 for each in model.nodes for value in each.outputs},
        suspects=(),
        holds=lambda assignment: True,
        folder=None,
        notify=lambda text: None,
    )
    assert compiled.audit is not None
    assert compiled.audit.violations == ()
    joined = only(compiled.notes, NoteKind.PRODUCTS_JOINED).values
    assert (joined["before"], joined["after"]) == (4, 0)
    assert {node.op for node in compiled.added} <= {"Clip", "Sigmoid"}


@needs_rtx
def test_a_given_plan_is_not_changed_and_what_breaks_it_is_told(tmp_path: Path) -> None:
    first = fixed(tmp_path, isolated_product(), "onnx", scale=1.0)
    assert first.fp32_nodes == ("product",)
    result = fix(tmp_path / "m.onnx", samples(1.0), target="trt-10.9", plan=first.plan)
    (violation,) = result.to_json()["violations"]
    assert (violation["node"], violation["wanted"], violation["got"]) == ("product", "fp32", "fp16")
    assert result.fp32_nodes == ("product",)
    broken = only(result.notes, NoteKind.NOT_KEPT)
    assert (broken.subject, broken.values["wanted"], broken.values["got"]) == ("product", "fp32", "fp16")


@needs_rtx
def test_a_wrong_attention_kernel_is_kept_out_where_the_version_is_known_for_it(tmp_path: Path) -> None:

    onnx.save(encoder_attention(), tmp_path / "m.onnx")
    rng = np.random.default_rng(5)
    inputs = [{"x": rng.standard_normal((1, 64, 64)).astype(np.float32)} for _ in range(3)]
    results = {target: fix(tmp_path / "m.onnx", inputs, target=target) for target in ("trt-10.0.0", "trt-10.0.1")}
    assert results["trt-10.0.1"].fp32_nodes == ()
    result = results["trt-10.0.0"]
    assert result.fp32_nodes == ("softmax", "av")
    assert result.met
    document = result.to_json()
    assert document["audit"]["engine"]["fused_attention"] == []
    assert document["audit"]["island"]["nodes"] == ["softmax", "av"]
    assert "TRT-MHA-V2-1000" in [advisory["id"] for advisory in document["advisories"]]
    assert only(result.notes, NoteKind.KNOWN_DEFECTS).values["ids"] == ["TRT-MHA-V2-1000"]


def test_without_the_compiler_the_result_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    result = fixed(tmp_path, big_square(), "trt-10.9")
    assert result.met
    assert result.deploy_files.command is not None
    assert result.to_json()["audit"] is None
    assert only(result.notes, NoteKind.NOT_COMPILED).values == {"install": rtx.INSTALL}


def refused() -> onnx.ModelProto:
    """A model with a determinant, which NVIDIA's parser does not take."""
    nodes = [helper.make_node("Det", ["m"], ["d"], "determinant"), helper.make_node("Add", ["x", "d"], ["y"], "add")]
    nodes.insert(0, helper.make_node("MatMul", ["x", "w"], ["h"], "product"))
    nodes.insert(1, helper.make_node("Slice", ["h", "zero", "two"], ["m"], "corner"))
    bounds = [numpy_helper.from_array(np.array(v), n) for n, v in (("zero", [0, 0]), ("two", [2, 2]))]
    return model_of(nodes, weight("w", 0.1, 1.0), *bounds)


@needs_rtx
def test_a_model_that_another_compiler_refuses_is_a_note_with_its_reason(tmp_path: Path) -> None:
    result = fixed(tmp_path, refused(), "trt-10.9", scale=1.0)
    assert result.deploy_files.command is not None
    assert result.good
    assert result.to_json()["refusal"] is None
    error = only(result.notes, NoteKind.NOT_PROVEN).values["error"]
    assert "refuses the typed model" in error
    assert "Det" in error


@needs_rtx
def test_a_model_that_the_targets_own_compiler_refuses_is_a_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fixed(tmp_path, refused(), "rtx-1.7", scale=1.0)
    assert result.met
    assert not result.good
    document = result.to_json()
    assert document["status"] == "not-met"
    assert document["refusal"].startswith("TensorRT-RTX ")
    assert result.deploy_files.build == ()  # building it is no next step
    assert "refuses the typed model: node 'determinant' (Det)" in document["refusal"]
    terminal = Terminal()
    show_fix(terminal, result)
    terminal.flush()
    assert "but the model cannot be built for rtx-1.7: TensorRT-RTX" in capsys.readouterr().out


@needs_rtx
def test_a_time_limit_is_the_users(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "rtx-1.7", time_limit_s=0.01)
    assert "did not finish within 0.01 s" in only(result.notes, NoteKind.NOT_PROVEN).values["error"]
    assert result.good  # nothing was refused


@needs_rtx
def test_a_build_that_takes_too_long_ends_in_one_line(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path, {}, time_limit_s=0.01)
    with pytest.raises(BuildError, match=r"TensorRT-RTX .* while building") as caught:
        compiler(Decision(Sites(load(big_square())), {}, Format.FP32))
    assert caught.value.failure == "timeout"
    assert compiler.builds == 1


# -- isolated products, decided without a compiler -------------------------------------------------------------------


def test_the_cheapest_neighbour_joins_with_what_lies_between() -> None:
    model = load(isolated_product())
    sites = Sites(model)
    node = model.node_by_name
    formats = {node["product"]: Format.FP32}
    (product,) = find_isolated_matmuls([Violation("product", "fp32", "fp16", (), "")], sites, formats)
    sizes = {value: 8 * WIDTH for each in model.nodes for value in each.outputs}
    assert companions(product, sites, formats, sizes) == (node["shrink"],)
    sizes[node["shrink"].outputs[0]] = 9 * WIDTH
    assert companions(product, sites, formats, sizes) == (node["turn"], node["bend"])


def test_an_fp32_node_behind_a_narrow_move_is_no_company() -> None:
    model = load(isolated_product())
    sites, node = Sites(model), model.node_by_name
    formats = {node["product"]: Format.FP32, node["bend"]: Format.FP32}
    (product,) = find_isolated_matmuls([Violation("product", "fp32", "fp16", (), "")], sites, formats)
    sizes = {value: 8 * WIDTH for each in model.nodes for value in each.outputs}
    assert companions(product, sites, formats, sizes) == (node["turn"],)


def test_a_product_in_company_or_of_another_kind_is_left_alone() -> None:
    model = load(isolated_product())
    sites, node = Sites(model), model.node_by_name
    broken = Violation("product", "fp32", "fp16", (), "")
    company = dict.fromkeys((node["product"], node["turn"], node["bend"]), Format.FP32)
    assert find_isolated_matmuls([broken], sites, company) == []
    assert find_isolated_matmuls([Violation("bend", "fp32", "fp16", (), "")], sites, {node["bend"]: Format.FP32}) == []
    hidden = Violation("product", "fp32", "unproven", (), "")
    assert find_isolated_matmuls([hidden], sites, {node["product"]: Format.FP32}) == []
