"""Every message of the catalogue is recognised, behind every prefix, and nothing is found in a healthy build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler.buildlog import (
    ModelNames,
    map_weights,
    model_names,
    read_lines,
    read_log,
    with_origins,
)
from halfwise.compiler.buildlog.layer_text import fused_parts, split_names
from halfwise.compiler.buildlog.prefixes import decode_version, split_line
from tests.support.build_logs import LOGS, V, one
from tests.support.says import Says

# Prefixes and versions


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("[07/07/2026-02:10:59] [W] [TRT] msg", "W"),
        ("[07/07/2026-02:10:59] [I] msg", "I"),
        ("[03/28/2024-08:27:29] [TRT] [V] msg", "V"),
        ("[W] msg", "W"),
        ("[2022-11-08 06:01:47 WARNING] msg", "W"),
        ("[2022-11-08 06:01:47    ERROR] msg", "E"),
        ("WARNING: [Torch-TensorRT TorchScript Conversion Context] - msg", "W"),
        ("WARNING:torch_tensorrt [TensorRT Conversion Context]:msg", "W"),
        ("2023-01-01 10:00:00.1: W tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:83] "
         "TF-TRT Warning: DefaultLogger msg", "W"),
        ("[TensorRT] WARNING: msg", "W"),
        ("\x1b[1;33m[W] msg\x1b[0m", "W"),
        ("[02/03/2025-10:11:12] [W] [TRT] msg\r\n", "W"),
    ],
)  # fmt: skip
def test_prefixes(line: str, severity: str) -> None:
    split = split_line(line)
    assert (split.severity, split.message) == (severity, "msg")


def test_a_line_without_prefix_comes_back_whole_and_keeps_its_indent() -> None:
    assert split_line("[layer one] x").message == "[layer one] x"
    assert split_line(V + "  List").message == "  List"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v8001] # trtexec", "8.0.1"),
        ("&&&& PASSED TensorRT.trtexec [TensorRT v8601] # trtexec", "8.6.1"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v9300] # trtexec", "9.3.0"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v100001] # trtexec", "10.0.1"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec", "10.16.1"),
        ("&&&& FAILED TensorRT.trtexec [TensorRT v110201] [b3] # trtexec", "11.2.1"),
        ("[I] TensorRT version: 8.5.3", "8.5.3"),
        ("TensorRT version: 10.3.0.26", "10.3.0"),
    ],
)
def test_versions(line: str, version: str) -> None:
    assert decode_version(line) == version
    assert read_lines([line]).trt_version == version


# Weights


def test_old_weight_warnings_count_each_weight_once() -> None:
    report = read_log(LOGS / "weights_8.5_python.log")
    assert report.trt_version == "8.5.3"
    fused = "stem.conv + PWN(PWN(stem.sigmoid), stem.mul).weight"
    assert one(report, "HW701").numbers == {
        "weights": 2,
        "names": ["scale.table + (Unnamed Layer* 12) [Shuffle]", fused],
    }
    assert one(report, "HW702").numbers == {"weights": 1, "names": [fused]}
    assert one(report, "HW703").numbers == {"weights": 1, "names": ["left.conv || right.conv.bias"]}


def test_new_weight_warnings_with_their_lists() -> None:
    report = read_log(LOGS / "weights_10.0_trtexec.log")
    assert (report.trt_version, report.precision, report.constraints) == ("10.0.1", "FP32+FP16", "obey")
    assert report.strongly_typed is False
    assert report.structure.layers_set == {"/head/Exp": "fp32"}
    subnormal, under, over = (one(report, rule) for rule in ("HW701", "HW702", "HW703"))
    assert (subnormal.numbers["weights"], under.numbers["weights"], over.numbers["weights"]) == (111, 4, 1)
    assert subnormal.numbers["names"] == [
        "/head/Gemm_7.bias",
        "/stem/Conv + PWN(PWN(/stem/Sigmoid), /stem/Mul).weight",
        "/stem/Conv.weight",
    ]
    assert over.numbers["names"] == ["gamma + /head/Mul.weight"]
    assert "--layerPrecisions" in over.remedy
    assert (subnormal.severity, over.severity) == ("warning", "error")


def test_remedies_fit_the_version() -> None:
    warning = "[W] - 4 weights are affected by this issue: Detected subnormal FP16 values."
    banner = "&&&& RUNNING TensorRT.trtexec [TensorRT v{}] # trtexec --onnx=m.onnx"
    old = one(read_lines([banner.format(100001), warning]), "HW701").remedy
    new = one(read_lines([banner.format(110201), warning]), "HW701").remedy
    unknown = one(read_lines([warning]), "HW701").remedy
    assert "--layerPrecisions" in old and "typed ONNX" not in old
    assert "typed ONNX" in new and "--layerPrecisions" not in new
    assert unknown == old  # the message is one of weak typing; the screen says once what holds from 11 on


def test_messages_of_strong_typing_tell_the_typing() -> None:
    report = read_lines(["[E] [TRT] /Sub: ElementWiseOperation SUB must have same input types. But they are of types "
                         "Half and Float"])  # fmt: skip
    assert report.strongly_typed is True
    assert read_lines(["[W] [TRT] hello"]).strongly_typed is None


def test_an_unknown_flag_is_told_with_its_history(says: Says) -> None:
    removed = read_lines(["[E] Unknown option: --fp16 "])
    assert removed.strongly_typed is True
    says(one(removed, "HW737").remedy)
    older = read_lines(["&&&& FAILED TensorRT.trtexec [TensorRT v100301]", "[E] Unknown option: --explicitBatch"])
    says(one(older, "HW737").remedy)
    assert one(read_lines(["[E] Unknown option: --bogus"]), "HW737").remedy.startswith("check the spelling")


def test_constraints_that_cannot_be_met_are_not_advised_again() -> None:
    line = "[W] No implementation of layer a + b obeys the requested constraints in strict mode. No conforming ..."
    remedy = one(read_lines([line]), "HW722").remedy
    assert "--precisionConstraints" not in remedy
    assert "asking again changes nothing" in remedy


@pytest.mark.parametrize(
    ("names", "count", "layers"),
    [
        (", , ,", 4, []),
        (", , , ", 4, []),
        ("", 1, []),
        ("/a/Pow, , /a/Div, ", 2, ["/a/Pow", "/a/Div"]),
        ("/a/Pow, /a/Sqrt", 2, ["/a/Pow", "/a/Sqrt"]),
    ],
)
def test_layernorm_layers_without_names_are_counted_by_their_places(names: str, count: int, layers: list[str]) -> None:
    finding = one(read_lines([f"[TRT] [W] Detected layernorm nodes in FP16: {names}"]), "HW711")
    assert (finding.numbers["count"], finding.numbers["layers"]) == (count, layers)
    assert ("does not name them" in finding.message) is not bool(layers)


def test_one_is_no_plural(says: Says) -> None:
    report = read_lines(["- 1 weights are affected by this issue: Detected subnormal FP16 values."])
    says(one(report, "HW701").message)
    report = read_lines(["[W] Detected layernorm nodes in FP16: /norm/Pow"])
    says(one(report, "HW711").message)


def test_the_gpu_that_trtexec_selected() -> None:
    report = read_lines(["[05/05/2024-10:00:00] [I] Selected Device: Tesla T4", "[I] Compute Capability: 7.5"])
    assert (report.device, report.capability) == ("Tesla T4", "7.5")


def test_a_foreign_log_is_told_from_one_that_says_nothing() -> None:
    assert not read_lines(["GET /index.html 200", "[W] disk is full"]).recognised
    assert not read_lines([]).recognised
    assert read_lines([V + "quiet"]).recognised
    assert read_lines(["- 4 weights are affected by this issue: Detected subnormal FP16 values."]).recognised


def test_lists_are_split_outside_parentheses_only() -> None:
    assert split_names("a.weight, b + PWN(PWN(c), d, e).weight, f") == ("a.weight", "b + PWN(PWN(c), d, e).weight", "f")
    assert split_names("a,b,c") == ("a", "b", "c")
    assert split_names("open(, b, c") == ("open(", "b", "c")


def test_fused_names_are_taken_apart() -> None:
    assert fused_parts("a + b || c") == ("a", "b", "c")
    assert fused_parts("a + PWN(PWN(b + c, d), e)") == ("a", "b", "c", "d", "e")
    assert fused_parts("x, y") == ("x, y",)
    assert fused_parts("f(a + b) + c)") == ("f(a + b)", "c)")
    assert fused_parts("a) + b") == ("a) + b",)
    assert fused_parts("a +  + b || ") == ("a", "b")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.ones(shape, np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], name="/stem/Conv"),
        helper.make_node("Sigmoid", ["c"], ["s"], name="/stem/Sigmoid"),
        helper.make_node("Mul", ["c", "s"], ["m"], name="/stem/Mul"),
        helper.make_node("Mul", ["m", "gamma"], ["g"], name="/head/Mul"),
        helper.make_node("Flatten", ["g"], ["f"], name="/head/Flatten"),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], name="/head/Gemm"),
        helper.make_node("Exp", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3, 3])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4])],
        [weight("w0", 2, 2, 1, 1), weight("b0", 2), weight("gamma", 1), weight("w1", 18, 4), weight("b1", 4)],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_weights_are_mapped_to_nodes_and_initializers(model: Path) -> None:
    report = with_origins(read_log(LOGS / "weights_10.0_trtexec.log"), model_names(model))
    assert one(report, "HW701").numbers["origins"] == {
        "/stem/Conv.weight": {"nodes": ["/stem/Conv"], "initializers": ["w0"]},
        "/stem/Conv + PWN(PWN(/stem/Sigmoid), /stem/Mul).weight": {
            "nodes": ["/stem/Conv", "/stem/Sigmoid", "/stem/Mul"],
            "initializers": ["w0"],
        },
        "/head/Gemm_7.bias": {"nodes": ["/head/Gemm"], "initializers": ["b1"]},  # by the log's own registration
    }
    assert one(report, "HW702").numbers["origins"]["/stem/Conv.bias"]["initializers"] == ["b0"]
    assert one(report, "HW703").numbers["origins"]["gamma + /head/Mul.weight"] == {
        "nodes": ["/head/Mul"],
        "initializers": ["gamma"],
    }


def test_weights_without_a_node_are_named_as_unknown() -> None:
    names = ModelNames({"conv": ("Conv", {1: "w", 2: "b"})}, frozenset({"w", "b", "table"}))
    mapped = map_weights(["conv_12 + gone.weight", "table + (Unnamed Layer* 118) [Shuffle]", "w"], names)
    assert mapped["conv_12 + gone.weight"].initializers == ("w",)
    assert mapped["conv_12 + gone.weight"].unknown == ("gone",)
    assert mapped["table + (Unnamed Layer* 118) [Shuffle]"].initializers == ("table",)
    assert mapped["w"].initializers == ("w",)


# LayerNorm


def test_layernorm_named_on_the_line_itself() -> None:
    report = read_log(LOGS / "layernorm_8.6_region.log")
    detected = one(report, "HW711")
    assert detected.numbers == {"count": 4, "layers": ["/norm/ReduceMean", "/norm/Sqrt", "/norm/Pow", "/norm/Div"]}
    assert one(report, "HW712").numbers["what"] == "FP16"


@pytest.mark.parametrize("separator", [", ", ","])
def test_layernorm_named_on_the_next_line(separator: str) -> None:
    report = read_lines(["[W] Detected layernorm nodes in FP16.", "[V] " + separator.join(["/n/Pow", "/n/Sqrt"])])
    assert one(report, "HW711").numbers == {"count": 2, "layers": ["/n/Pow", "/n/Sqrt"]}


def test_layernorm_without_names() -> None:
    assert one(read_lines(["[W] Detected layernorm nodes in FP16: , , ,"]), "HW711").numbers["layers"] == []
    quiet = read_lines(["[W] Detected layernorm nodes in FP16.", "[W] Running layernorm after self-attention ..."])
    assert one(quiet, "HW711").numbers["layers"] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("in FP16 may cause overflow. Forcing layernorm layers to run in FP32 precision can help", "FP16"),
        ("in FP16 may cause overflow. Exporting the model to the latest available ONNX opset", "FP16"),
        ("with FP16 Reduce or Pow may cause overflow. Forcing Reduce or Pow Layers in FP32", "FP16 Reduce or Pow"),
    ],
)
def test_the_three_layernorm_warnings(text: str, what: str) -> None:
    report = read_lines([f"[W] Running layernorm after self-attention {text}"])
    assert one(report, "HW712").numbers["what"] == what


# The build's facts and structure


@pytest.mark.parametrize(
    ("line", "precision", "constraints", "strong"),
    [
        ("[I] Precision: FP32", "FP32", None, False),
        ("[I] Precision: FP32+FP16+INT8 (prefer precision constraints)", "FP32+FP16+INT8", "prefer", False),
        ("[I] Precision: Strongly Typed", "Strongly Typed", None, True),
        ("[V] [TRT] Precision: something else", None, None, None),
    ],
)
def test_precision_line(line: str, precision: str | None, constraints: str | None, strong: bool | None) -> None:
    report = read_lines([line])
    assert (report.precision, report.constraints, report.strongly_typed) == (precision, constraints, strong)


def test_only_the_backend_strategy_chosen_last_counts() -> None:
    report = read_log(LOGS / "strategies_10.16_weak.log")
    assert report.structure.strategy == 2
    assert one(report, "HW721").where.name == "{ForeignNode[w1.../s/Softmax]}"
    (reformat,) = report.structure.reformats
    assert (reformat.tensor, reformat.source, reformat.target, reformat.casts) == ("y", "fp16", "fp32", True)


def test_regions_and_registered_layers() -> None:
    structure = read_log(LOGS / "strategies_10.16_weak.log").structure
    assert structure.foreign == {"{ForeignNode[w1.../s/Softmax]}": ("/m/MatMul", "/s/Softmax")}
    assert len(structure.engine_lines) == 2
    structure = read_log(LOGS / "weights_10.0_trtexec.log").structure
    assert structure.registered == {"/stem/Conv": "/stem/Conv", "/head/Gemm_7": "/head/Gemm"}


def test_declared_types() -> None:
    nodes = read_log(LOGS / "rtx_1.7_mixed_conv.log").structure.nodes
    assert (nodes["/c2/Conv"].op, nodes["/c2/Conv"].outputs) == ("Conv", (("c2", "fp32"),))
    assert nodes["/c1/Conv"].outputs == (("c1", "fp16"),)


def test_strong_failure() -> None:
    report = read_log(LOGS / "strong_11_failure.log")
    assert (report.trt_version, report.strongly_typed) == ("11.2.1", True)
    assert one(report, "HW741").where.name == "/block (1)/Sub"
