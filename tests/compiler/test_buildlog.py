"""Every message of the catalogue is recognised, behind every prefix, and nothing is found in a healthy build."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from benchmarks.log_speed import clean_lines
from halfwise.compiler.buildlog import (
    LogReport,
    ModelNames,
    map_weights,
    model_names,
    read_lines,
    read_log,
    reader,
    with_origins,
)
from halfwise.compiler.buildlog.catalogue import MESSAGES
from halfwise.compiler.buildlog.layer_text import fused_parts, split_names
from halfwise.compiler.buildlog.prefixes import decode_version, split_line
from halfwise.core.errors import InputError
from halfwise.core.finding import Finding
from tests.support.paths import DATA

LOGS = DATA / "logs"
V = "[02/03/2025-10:11:12] [V] [TRT] "


def one(report: LogReport, rule: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.rule == rule]
    return finding


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


def test_an_unknown_flag_is_told_with_its_history() -> None:
    removed = read_lines(["[E] Unknown option: --fp16 "])
    assert removed.strongly_typed is True
    assert one(removed, "HW737").remedy.startswith("--fp16 exists from TensorRT 8.4 to 10.x; this version has no such")
    older = read_lines(["&&&& FAILED TensorRT.trtexec [TensorRT v100301]", "[E] Unknown option: --explicitBatch"])
    assert one(older, "HW737").remedy.startswith("--explicitBatch exists from TensorRT 8.4 to 9.3; check the spelling")
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


def test_one_is_no_plural() -> None:
    assert one(
        read_lines(["- 1 weights are affected by this issue: Detected subnormal FP16 values."]), "HW701"
    ).message == ("1 weight holds values that are subnormal in FP16 and lose bits")
    report = read_lines(["[W] Detected layernorm nodes in FP16: /norm/Pow"])
    assert one(report, "HW711").message == "1 layer of a LayerNorm pattern runs in FP16"


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


# The rest of the catalogue: id, line, where, words in the message

CASES = [
    ("NONCONF", "For layer {ForeignNode[a...b]} a non-conforming implementation was chosen than was requested i.e. x",
     "{ForeignNode[a...b]}", "ignored"),
    ("NOIMPL", "No implementation of layer Conv_1[Conv] + Add_2[E] obeys the requested constraints in strict mode. x",
     "Conv_1[Conv] + Add_2[E]", "the fastest one runs"),
    ("NOIMPL_OLD", "Warning: no implementation of c obeys the requested constraints, using a higher precision type",
     "c", "higher one"),
    ("REFORMAT_FREE", "No implementation obeys reformatting-free rules, at least 3 reformatting nodes are needed",
     "", "3 reformatting"),
    ("NOIMPL_ERR", "10: Could not find any implementation for node {ForeignNode[a...b]}.", "{ForeignNode[a...b]}",
     "no implementation"),
    ("SKIP_TACTIC", "Skipping tactic 0x0000000000000001 due to exception out of memory", "0x0000000000000001",
     "out of memory"),
    ("TYPE_DIFF_INFER", "Input 0's element type (half) differs from input 1's element type (float).", "",
     "half and float"),
    ("SHAPE_INT32", "A shape layer can only run in INT32 precision", "", "INT32"),
    ("EW_WARN", "IElementWiseLayer with inputs a and b: first input has type Half but second input has type Float.",
     "b", "Half (a) and Float"),
    ("SKIPPED_ALL", "Skipped setting precisions for some layers. Check verbose logs for more details.", "", "wildcard"),
    ("SKIPPED_LAYER", "Skipped setting precision for layer s because this layer operates on a shape tensor.", "s",
     "shape tensor"),
    ("NO_EFFECT",
     '--layerPrecision/--layerOutputTypes flags have no effect when --precisionConstraints flag is set to "none".',
     "", "no effect"),
    ("WEAK_DEPRECATED", "Weakly-typed networks have been deprecated in TensorRT.", "", "deprecated"),
    ("STRONG_FLAG", "Invalid usage, setting fp16 mode is not allowed if graph is strongly typed. Disabling it.",
     "", "--fp16 was ignored"),
    ("TF32_HINT", "TF32 is enabled by default. Add --noTF32 flag to further improve accuracy.", "", "TF32"),
    ("UNKNOWN_OPTION", "Unknown option: --fp16", "--fp16", "does not know --fp16"),
    ("EW_TYPES", "x: Error Code 4: API Usage Error (/b (1)/Sub: ElementWiseOperation SUB must have same input types. "
     "But they are of types Half and Float.)", "/b (1)/Sub", "SUB reads Half and Float"),
    ("FLAG_AND_STRONG", "Parameter check failed, condition: !config.getFlag(BuilderFlag::kFP16)", "", "FP16"),
    ("SET_TYPE_STRONG", "INetworkLayer::setOutputType cannot be called for a strongly typed network", "",
     "INetworkLayer::setOutputType"),
    ("IO_TYPE", 'Input tensor "x": Requested input type FP16 via --inputIOFormats does not match the inferred type '
     "FP32 for a strongly typed network. Failing build.", "x", "FP16"),
    ("RTX_STRONG", "In JIT build, strongly typed is enabled by default.", "", "ONNX model"),
]  # fmt: skip


@pytest.mark.parametrize(("identity", "line", "where", "words"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("prefix", [V, "[03/28/2024-08:27:29] [TRT] [W] ", "[2022-11-08 06:01:47 ERROR] ", ""])
def test_catalogue(identity: str, line: str, where: str, words: str, prefix: str) -> None:
    (message,) = [message for message in MESSAGES if message.id == identity]
    finding = one(read_lines([prefix + line]), message.rule.id)
    assert finding.where.name == where
    assert words in finding.message
    assert finding.remedy


def test_every_message_of_the_catalogue_is_tested() -> None:
    assert {case[0] for case in CASES} == {message.id for message in MESSAGES}
    assert len({message.rule.id for message in MESSAGES}) == len(MESSAGES)


def test_a_message_that_repeats_is_one_finding() -> None:
    finding = one(read_lines(["[E] Unknown option: --fp16"] * 3), "HW737")
    assert finding.numbers == {"times": 3}


def test_ignored_constraints_weigh_more_where_constraints_were_set() -> None:
    line = V + "For layer a a non-conforming implementation was chosen than was requested i.e. x"
    assert one(read_lines([line]), "HW721").severity == "info"
    assert (
        one(read_lines(["[I] Precision: FP32+FP16 (prefer precision constraints)", line]), "HW721").severity
        == "warning"
    )


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


# Robustness


def test_nothing_is_found_in_a_clean_build() -> None:
    report = read_lines(islice(clean_lines(), 10_000))
    assert report.findings == ()
    assert report.lines == 10_000
    assert len(report.structure.nodes) > 50


@given(st.lists(st.text(max_size=60), max_size=20))
def test_no_line_is_an_error(lines: list[str]) -> None:
    read_lines(lines)


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.glob("*.log")))
@given(size=st.integers(1, 3000))
def test_the_report_does_not_depend_on_where_blocks_are_cut(name: str, size: int) -> None:
    whole = read_log(LOGS / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", size)
        cut = read_log(LOGS / name)
    assert cut == whole


def test_bytes_lines_and_files_read_alike(tmp_path: Path) -> None:
    path = LOGS / "weights_10.0_trtexec.log"
    raw = path.read_bytes()
    from_bytes = read_lines(iter(raw.split(b"\n")[:-1]), str(path))
    assert from_bytes.to_json() == read_log(path).to_json()
    crlf = tmp_path / "crlf.log"
    crlf.write_bytes(raw.replace(b"\n", b"\r\n"))
    assert read_log(crlf).findings == read_log(path).findings
    utf16 = tmp_path / "utf16.log"
    utf16.write_bytes(raw.decode().encode("utf-16"))
    assert read_log(utf16).findings == read_log(path).findings


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.glob("*.log")))
def test_what_containers_and_ci_services_put_in_front_changes_nothing(name: str) -> None:
    lines = (LOGS / name).read_text(encoding="utf-8").split("\n")
    plain = read_lines(lines)
    for front in ("2024-08-20T20:57:50.1234567Z ", "trt-1  | ", "trt-1  | 2024-08-20T20:57:50+00:00 "):
        told = read_lines([front + line for line in lines])
        assert (told.findings, told.precision, told.structure) == (plain.findings, plain.precision, plain.structure)


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
def test_a_line_ends_as_windows_or_a_progress_bar_ends_it(
    ending: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = LOGS / "layernorm_8.6_region.log"
    path = tmp_path / "build.log"
    path.write_bytes(plain.read_bytes().replace(b"\n", ending))
    for size in (1, 7, 1 << 19):
        monkeypatch.setattr(reader, "_BLOCK", size)
        told = read_log(path)
        assert (told.findings, told.structure) == (read_log(plain).findings, read_log(plain).structure)


def test_control_characters_do_not_end_a_line() -> None:
    text = V + "ForeignNode {ForeignNode[a...b]} metadata: [ONNX Layer: a]\x1e[ONNX Layer: b]"
    assert read_lines([text]).structure.foreign == {"{ForeignNode[a...b]}": ("a", "b")}


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_log(tmp_path / "none.log")
    with pytest.raises(InputError, match="is a folder"):
        read_log(tmp_path)
    engine = tmp_path / "engine.plan"
    engine.write_bytes(b"ftrt\0\0\0\1" * 100)
    with pytest.raises(InputError, match="is not a text; give the build log"):
        read_log(engine)
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"")
    assert read_log(empty).findings == ()


def test_json_document() -> None:
    document = read_log(LOGS / "strategies_10.16_weak.log").to_json()
    assert (document["schema"], document["trt_version"]) == ("halfwise.log/1", "10.16.1")
    assert {finding["rule"] for finding in document["findings"]} == {"HW721", "HW734"}


def test_a_large_log_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    block = "\n".join(islice(clean_lines(), 2_000)) + "\n"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(block for _ in range(150))
    tracemalloc.start()
    try:
        report = read_log(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 40_000_000
    assert report.lines == 300_000
    assert peak < 10_000_000


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "line.log"
    with path.open("wb") as file:
        file.writelines(b"x" * (1 << 20) for _ in range(40))
        file.write(b"\n[E] Unknown option: --fp16\n")
    tracemalloc.start()
    try:
        report = read_log(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [finding.rule for finding in report.findings] == ["HW737"]
    assert peak < 80_000_000
