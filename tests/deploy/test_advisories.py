"""Advisories: the shipped data is well-formed, and the right ones are found for a target, a GPU and a model."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Fit, Gpu, Target, Version, VersionRange
from halfwise.deploy.advisories import ModelFacts, facts_of_file, facts_of_model, load_entries, match
from halfwise.deploy.advisories.matcher import gpu_fit
from tests.support.messages import kinds
from tests.support.says import Says

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
ENTRIES = load_entries()
ATTENTION = ["MatMul", "Mul", "Softmax", "MatMul"]


def data(name: str) -> dict:
    return json.loads(files("halfwise.deploy.advisories").joinpath(name).read_text(encoding="utf-8"))


# The data


def test_the_file_follows_its_schema():
    schema = data("schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(data("advisories.json"))


def test_ids_are_unique_and_sorted_out_by_kind():
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES) == 50
    assert {entry.kind for entry in ENTRIES} == {"defect", "report", "behaviour", "tool"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_each_entry_is_well_formed(entry):
    ranges = [VersionRange.parse(text) for text in entry.versions]
    for pattern in entry.gpus + entry.seen_on:
        assert isinstance(gpu_fit(pattern, Gpu.parse("t4")), Fit)
    assert not (entry.versions and not entry.runtimes), "versions without a runtime"
    assert not (entry.kernels and not entry.ops), "kernels without operators"
    for op in (op for text in entry.ops for op in text.split(">")):
        assert onnx.defs.has(op) or op in own_operators(), op
    fixed = re.match(r"\d+(\.\d+)*", entry.fixed_in or "")
    if fixed:
        first_good = Version.parse(fixed[0])
        assert all(span.fit(Version(first_good.span.low).span) is Fit.NO for span in ranges)
    for source in entry.source:
        assert source.startswith(("https://", "github:", "public "))
    for text in (entry.symptom, entry.workaround, entry.note or "End."):
        assert text.endswith(".")


def own_operators() -> set[str]:
    """ONNX Runtime's, as it names them itself."""
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    return {schema.name for schema in runtime.get_all_operator_schema() if schema.domain == "com.microsoft"} | {
        "SimplifiedLayerNormalization"
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_each_entry_can_be_met_by_some_target(entry):
    versions = "8.4.3 8.5.3 8.6.0 8.6.1 9.2 10.0.0 10.0.1 10.3 10.7 10.8.0 10.10 10.13 10.15 10.16.0 10.16.1 11.1"
    gpu = f"@{entry.gpus[0].rstrip('+')}" if entry.gpus else ""
    typing = f"+{entry.typing}" if entry.typing else ""
    found = [advisory.applies for advisory in match(Target.parse("ort-cuda")) if advisory.entry is entry]
    for version in versions.split():
        try:
            target = Target.parse(f"trt-{version}{typing}{gpu}")
        except InputError:
            continue  # this version has no such typing
        found += [advisory.applies for advisory in match(target) if advisory.entry is entry]
    assert found


# Matching


def model(*chain: str) -> ModelFacts:
    """A model that is one chain of operators."""
    from halfwise.deploy.advisories.model_facts import Node

    return ModelFacts(nodes=tuple(Node(op, (place - 1,) if place else ()) for place, op in enumerate(chain)))


def found(target: str, facts: ModelFacts | None = None) -> dict[str, str]:
    return {advisory.entry.id: advisory.applies.value for advisory in match(Target.parse(target), facts)}


def why(target: str, advisory_id: str, facts: ModelFacts | None = None) -> tuple[Note, ...]:
    matched = match(Target.parse(target), facts)
    return next(advisory.because for advisory in matched if advisory.entry.id == advisory_id)


def test_the_attention_kernel_defect_is_of_one_version_only():
    facts = model(*ATTENTION)
    assert found("trt-10.0.0@t4", facts)["TRT-MHA-V2-1000"] == "yes"
    assert found("trt-10.0@t4", facts)["TRT-MHA-V2-1000"] == "maybe"
    assert found("trt-10", facts)["TRT-MHA-V2-1000"] == "maybe"
    assert "TRT-MHA-V2-1000" not in found("trt-10.0.1@t4", facts)
    assert "TRT-MHA-V2-1000" not in found("trt-10.0.0@t4", model("Conv", "Relu"))
    assert found("trt-10.0.0@t4")["TRT-MHA-V2-1000"] == "maybe"
    assert why("trt-10.0.0@t4", "TRT-MHA-V2-1000", facts) == (
        Note.of(NoteKind.OF_VERSIONS, "TensorRT 10.0.0", versions=("10.0.0",)),
        Note.of(NoteKind.WITH_OPERATORS, names=["MatMul>Softmax>MatMul"]),
    )
    assert why("trt-10", "TRT-MHA-V2-1000") == (
        Note.of(NoteKind.MAYBE_OF_VERSIONS, "TensorRT 10", versions=("10.0.0",)),
        Note.of(NoteKind.ONLY_WITH_OPERATORS, names=("MatMul>Softmax>MatMul",)),
    )


def test_an_engine_tells_by_its_kernels():
    name = "_gemm_mha_v2_myl0_6"
    with_kernel = ModelFacts(kernels=frozenset([name, "conv"]))
    assert found("trt-10.0.0", with_kernel)["TRT-MHA-V2-1000"] == "yes"
    assert why("trt-10.0.0", "TRT-MHA-V2-1000", with_kernel)[-1] == Note.of(NoteKind.WITH_KERNELS, names=[name])
    without = ModelFacts(kernels=frozenset(["conv"]))
    assert "TRT-MHA-V2-1000" not in found("trt-10.0.0", without)
    hidden = ModelFacts(kernels=frozenset(["{ForeignNode[a...b]}"]), kernels_hidden=True)
    assert found("trt-10.0.0", hidden)["TRT-MHA-V2-1000"] == "maybe"
    assert kinds(why("trt-10.0.0", "TRT-MHA-V2-1000", hidden))[-1] is NoteKind.ONLY_WITH_KERNELS
    # What only operators tell stays open for an engine.
    assert found("trt-10.8", with_kernel)["TRT-CUMSUM-108"] == "maybe"


def test_gpus():
    facts = model(*ATTENTION)
    assert found("trt-10.16.1@rtx5090", facts)["TRT-MHA-SM120-1016"] == "yes"
    assert found("trt-10.16.1", facts)["TRT-MHA-SM120-1016"] == "maybe"
    assert "TRT-MHA-SM120-1016" not in found("trt-10.16.1@l4", facts)
    assert found("trt-10.14@rtx5090", facts)["TRT-MHA-SM120-1016"] == "maybe"
    assert "TRT-MHA-SM120-1016" not in found("trt-10.12@rtx5090", facts)
    assert "TRT-TF32-DEFAULT" not in found("trt-10.3@t4", model("Conv"))
    assert found("trt-10.3@l4", model("Conv"))["TRT-TF32-DEFAULT"] == "yes"
    assert why("trt-10.3@l4", "TRT-TF32-DEFAULT", model("Conv"))[-2:] == (
        Note.of(NoteKind.ON_GPU, "l4 (compute capability 8.9)", gpus=("sm_80+",)),
        Note.of(NoteKind.WITH_OPERATORS, names=["Conv"]),
    )
    assert NoteKind.ONLY_ON_GPU in kinds(why("trt-10.16.1", "TRT-MHA-SM120-1016", facts))
    softmax = model("MatMul", "Softmax")
    assert NoteKind.SEEN_ON_THIS in kinds(why("trt-10.0@t4", "TRT-T4-SOFTMAX-10", softmax))
    assert found("trt-10.0@t4", softmax)["TRT-T4-SOFTMAX-10"] == "yes"


def test_what_was_reported_on_another_gpu_only_may_apply():
    softmax = model("MatMul", "Softmax")
    assert found("trt-10.0@l4", softmax)["TRT-T4-SOFTMAX-10"] == "maybe"
    assert NoteKind.SEEN_ON_OTHER in kinds(why("trt-10.0@l4", "TRT-T4-SOFTMAX-10", softmax))
    assert found("trt-10.0", softmax)["TRT-T4-SOFTMAX-10"] == "maybe"
    assert found("trt-10.0@sm_75", softmax)["TRT-T4-SOFTMAX-10"] == "maybe"
    assert NoteKind.SEEN_ON_MAYBE_THIS in kinds(why("trt-10.0@sm_75", "TRT-T4-SOFTMAX-10", softmax))
    assert NoteKind.SEEN_ON_UNNAMED in kinds(why("trt-10.0", "TRT-T4-SOFTMAX-10", softmax))
    # What NVIDIA confirmed and fixed is the version's, wherever it was first seen.
    assert found("trt-10.8@l4", model("CumSum"))["TRT-CUMSUM-108"] == "yes"


@pytest.mark.parametrize(
    ("lines", "target"),
    [
        (["&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec"], "trt-8.6.1"),
        (["&&&& RUNNING TensorRT.trtexec [TensorRT v100001] # t", "[I] Precision: FP32+FP16",
          "[I] Selected Device: Tesla T4", "[I] Compute Capability: 7.5"], "trt-10.0.1+weak@t4"),
        (["[I] TensorRT version: 10.3.0", "[I] Selected Device: NVIDIA A100-SXM4-40GB",
          "[I] Compute Capability: 8.0"], "trt-10.3.0@a100"),
        (["[I] TensorRT version: 10.3.0", "[I] Selected Device: NVIDIA RTX 2000 Ada Generation",
          "[I] Compute Capability: 8.9"], "trt-10.3.0@sm_89"),
        (["[I] TensorRT version: 10.3.0", "[I] Selected Device: NVIDIA H100 80GB HBM3"], "trt-10.3.0@h100"),
        (["&&&& RUNNING TensorRT.trtexec [TensorRT v110201] # t"], "trt-11.2.1"),
        (["[I] TensorRT version: 7.2.3"], "None"),
        (["[W] [TRT] hello"], "None"),
    ],
)  # fmt: skip
def test_the_target_that_a_log_states(lines, target):
    from halfwise.compiler.buildlog import read_lines
    from halfwise.deploy.advisories import target_of_log

    assert str(target_of_log(read_lines(lines))) == target


@pytest.mark.parametrize(
    ("pattern", "gpu", "fit"),
    [
        ("t4", "t4", Fit.YES),
        ("t4", "sm_75", Fit.MAYBE),
        ("t4", "rtx2080", Fit.NO),
        ("gtx16", "gtx1650", Fit.YES),
        ("rtx50", "rtx5080", Fit.YES),
        ("a10", "a100", Fit.NO),
        ("sm_120", "rtx5080", Fit.YES),
        ("sm_80+", "thor", Fit.YES),
        ("sm_80+", "t4", Fit.NO),
        ("jetson", "orin", Fit.YES),
        ("jetson", "sm_87", Fit.YES),
        ("jetson", "a100", Fit.NO),
    ],
)
def test_gpu_patterns(pattern, gpu, fit):
    assert gpu_fit(pattern, Gpu.parse(gpu)) is fit


def test_typing():
    weak_only = "TRT-WEIGHT-CLAMP"
    assert found("trt-8.6")[weak_only] == "yes"
    assert found("trt-10.3+weak")[weak_only] == "yes"
    assert found("trt-10.3")[weak_only] == "maybe"  # --fp16 is one option away
    assert NoteKind.ONLY_OF_TYPING in kinds(why("trt-10.3", weak_only))
    assert weak_only not in found("trt-11.1")
    norm = model("LayerNormalization")
    assert found("trt-10.3", norm)["TRT-NORM-STRONG"] == "yes"
    assert "TRT-NORM-STRONG" not in found("trt-10.3+weak", norm)


def test_conditions_that_nothing_tells_stay_open():
    assert found("trt-10.7", model("Conv"))["TRT-PROFILE-ACC-107"] == "maybe"
    assert kinds(why("trt-10.7", "TRT-PROFILE-ACC-107"))[-1] is NoteKind.ONLY_WITH
    assert "TRT-PROFILE-ACC-107" not in found("trt-10.8")
    assert found("trt-10.13@orin", model("Conv"))["TRT-YOLOV10-1013"] == "maybe"


def test_other_runtimes_have_only_what_holds_everywhere():
    everywhere = {"TRT-ORT-CPU-FP16-REF": "yes", "TRT-MASK-CONST": "maybe"}
    for target in ("onnx", "rtx-1.7"):
        assert found(target) == everywhere
    assert found("ort-cuda") == {**everywhere, "ORT-SKIPNORM-FP16-126": "maybe"}
    assert found("onnx", model("Relu")) == {"TRT-ORT-CPU-FP16-REF": "yes"}


@pytest.mark.parametrize("ops", [("SkipSimplifiedLayerNormalization",), ("Add", "LayerNormalization")])
def test_norms_that_onnx_runtime_fuses_with_an_addition_may_sum_in_fp16(ops):
    assert found("ort-cuda", model(*ops))["ORT-SKIPNORM-FP16-126"] == "maybe"
    assert "ORT-SKIPNORM-FP16-126" not in found(
        "ort-cuda", model(ops[-1], "Softmax") if len(ops) > 1 else model("Relu")
    )


def test_no_report_is_told_twice():
    told = [(entry.source, entry.versions, entry.ops) for entry in load_entries()]
    assert len(set(map(repr, told))) == len(told)


def test_removed_flags_are_news_for_11():
    assert found("trt-11.1", model("Relu"))["TRT-REMOVED-WEAK-11"] == "yes"
    assert "TRT-REMOVED-WEAK-11" not in found("trt-10.16")


@given(
    st.sampled_from(
        ["trt-8.4@v100", "trt-8.6@a100", "trt-10", "trt-10.7+weak", "trt-10.16.1@rtx5080", "trt-11.1", "onnx"]
    )
)
def test_the_most_certain_come_first_and_every_answer_has_a_reason(text):
    advisories = match(Target.parse(text))
    order = [(a.applies is Fit.MAYBE, ["high", "medium", "low"].index(a.entry.confidence)) for a in advisories]
    assert order == sorted(order)
    for advisory in advisories:
        assert advisory.because
        assert bool(advisory.open_questions) == (advisory.applies is Fit.MAYBE)
        assert set(advisory.open_questions) <= set(advisory.because)


def test_document():
    target = Target.parse("trt-10.0.0@t4")
    first = match(target, model(*ATTENTION))[0].document().to_json()
    assert {"id", "applies", "why", "fixed_in", "workaround", "source", "confidence"} <= set(first)
    assert (first["id"], first["applies"], first["fixed_in"]) == ("TRT-MHA-V2-1000", "yes", "10.0.1")
    assert first["source"] == ["https://github.com/NVIDIA/TensorRT/issues/3777"]
    assert json.loads(json.dumps(first)) == first


# What a model shows


def test_paths_go_over_passing_operators_only():
    assert model(*ATTENTION).has("MatMul>Softmax>MatMul")
    assert model("MatMul", "Mul", "Add", "Softmax", "Dropout", "Reshape", "MatMul").has("MatMul>Softmax>MatMul")
    assert not model("MatMul", "Relu", "Softmax", "MatMul").has("MatMul>Softmax>MatMul")
    assert not model("MatMul", "MatMul", "Softmax").has("MatMul>Softmax>MatMul")
    assert model("ReduceMean", "Add", "Sqrt", "Div").has("ReduceMean>Sqrt>Div")
    assert model("Where", "Softmax").has("Where")
    assert not model("Where").has("Softmax")
    assert not ModelFacts(kernels=frozenset()).has("Where")


def value(name: str):
    return helper.make_tensor_value_info(name, FLOAT, [1])


def save(path: Path, nodes, functions=(), **options) -> Path:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=list(functions)), path, **options)
    return path


def test_operators_of_subgraphs_and_functions_count(tmp_path):
    node = helper.make_node
    branch = helper.make_graph([node("MatMul", ["s", "s"], ["t"])], "then", [], [value("t")])
    other = helper.make_graph([node("CumSum", ["x", "x"], ["t"])], "else", [], [value("t")])
    block = helper.make_function(
        "own",
        "Block",
        ["a"],
        ["c"],
        [node("Exp", ["a"], ["b"]), node("Log", ["b"], ["c"])],
        [helper.make_opsetid("", 17)],
    )
    nodes = [
        node("MatMul", ["x", "x"], ["q"]),
        node("Block", ["q"], ["p"], domain="own"),
        node("Softmax", ["p"], ["s"]),
        node("If", ["x"], ["y"], then_branch=branch, else_branch=other),
    ]
    facts = facts_of_model(save(tmp_path / "m.onnx", nodes, [block]))
    assert facts.ops == {"MatMul", "Identity", "Softmax", "If", "CumSum", "Exp", "Log"}
    assert facts.has("MatMul>Softmax>MatMul")
    assert facts.has("Exp>Log")
    assert not facts.has("CumSum>MatMul")


def save_with_weight(path: Path, **options) -> Path:
    weight = helper.make_tensor("w", FLOAT, [512], bytes(2048), raw=True)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x")], [value("y")], [weight])
    onnx.save(helper.make_model(graph), path, **options)
    return path


def test_weights_are_not_read(tmp_path):
    path = save_with_weight(tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert facts_of_file(path).ops == {"Add"}


def test_a_file_is_known_by_what_is_in_it(tmp_path):
    layers = {
        "Layers": [
            {"Name": "_gemm_mha_v2_myl0_6", "LayerType": "kgen", "Inputs": [], "Outputs": [], "TacticName": "t_f16"},
            {"Name": "conv", "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [], "TacticName": ""},
        ],
        "Bindings": ["x"],
    }
    engine = tmp_path / "layers.json"
    engine.write_text(json.dumps(layers))
    facts = facts_of_file(engine)
    assert facts.kernels == {"_gemm_mha_v2_myl0_6", "t_f16", "conv"}
    assert (facts.ops, facts.kernels_hidden) == (None, False)
    engine.write_text(json.dumps({"Layers": ["a", "{ForeignNode[a...b]}"], "Bindings": []}))
    assert facts_of_file(engine).kernels_hidden
    assert facts_of_file(save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])])).ops == {"Relu"}
    assert facts_of_file(save_with_weight(tmp_path / "renamed.bin")).ops == {"Add"}


@pytest.mark.parametrize(
    ("name", "content"),
    [("m.onnx", b"no protobuf"), ("m.onnx", b""), ("layers.json", b"{}"), ("build.log", b"[I] nothing\n")],
)
def test_files_that_are_neither(tmp_path, name, content, says: Says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        facts_of_file(tmp_path / name)
    says(caught.value)


def test_a_model_without_nodes_meets_nothing(tmp_path: Path) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [x], [x])), path)
    assert facts_of_file(path).nodes == ()


def test_paths_that_are_no_files(tmp_path, says: Says):
    with pytest.raises(InputError) as caught:
        facts_of_file(tmp_path / "gone.onnx")
    says(caught.value)
    with pytest.raises(InputError) as caught:
        facts_of_file(tmp_path)
    says(caught.value)
