"""The audit says what each node ran in, how sure that is, and which nodes of a plan were not kept, and why."""

from __future__ import annotations

import json

import pytest

from halfwise.compiler.audit import NodeInfo, audit
from halfwise.compiler.buildlog import read_lines
from halfwise.compiler.layers import EngineLayers, read_layers
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from tests.support.audit_cases import DATA, REGION_LOG, fp32, nodes, of_log, verdict
from tests.support.messages import kinds

# Inspector JSON of each generation


def test_inspector_of_8() -> None:
    infos = [NodeInfo(name, "") for name in ("stem", "relu", "norm_mean", "norm_sqrt", "norm_div", "head")]
    result = audit(read_layers(DATA / "layers" / "inspector_8.6.json"), None, infos, fp32("norm_sqrt", "stem", "head"))
    assert verdict(result, "norm_sqrt") == ("unknown", "region-only")
    assert {v.node: v.got for v in result.violations} == {"norm_sqrt": "unproven", "stem": "mixed"}  # Half in, Int8 out
    assert verdict(result, "head") == ("unknown", "unknown")  # the inspector saw dynamic shapes without a context
    assert [v.node for v in result.unproven] == ["head"]
    assert result.cost.reformats == 1


def test_inspector_of_10() -> None:
    operators = {"conv": "Conv", "relu": "Relu", "fc": "Gemm", "fc_bias": "Add", "qk": "MatMul", "softmax": "Softmax",
                 "av": "MatMul", "square": "Mul", "mean": "ReduceMean", "sqrt": "Sqrt", "div": "Div"}  # fmt: skip
    infos = [NodeInfo(name, op) for name, op in operators.items()]
    wanted = fp32("conv", "fc", "softmax", "mean", "square", "sqrt")
    result = audit(read_layers(DATA / "layers" / "inspector_10.16.json"), None, infos, wanted)
    assert verdict(result, "conv") == ("fp32", "exact")
    math = Note.of(NoteKind.TACTIC_MATH, operand="tf32", accumulator="f32")
    assert nodes(result)["conv"].notes == (math,)
    assert verdict(result, "fc") == ("fp16", "exact")
    assert verdict(result, "softmax") == ("fp16", "mixed")
    assert nodes(result)["softmax"].attention == "_gemm_mha_v2"
    assert verdict(result, "square") == ("fp16", "exact")  # before the first cast
    assert verdict(result, "mean") == ("fp32", "mixed")  # between the only two casts
    assert kinds(nodes(result)["mean"].notes) == [NoteKind.BETWEEN_CASTS]
    assert {v.node: v.got for v in result.violations} == {"fc": "fp16", "softmax": "fp16", "square": "fp16"}
    engine = result.to_json()["engine"]
    assert engine["fused_attention"] == ["_gemm_mha_v2"]
    assert engine["kernels_with_casts"] == ["__myl_MulCasMeaSqrCasDiv_myl1_2"]
    assert engine["reformat_layers"] == ["Reformatting CopyNode for Input Tensor 0 to {ForeignNode[fc...softmax]}"]


def test_inspector_of_11_trusts_declared_types_where_the_kernel_casts() -> None:
    infos = [NodeInfo("mean", "ReduceMean", declared="fp32"), NodeInfo("sqrt", "Sqrt", declared="fp32"),
             NodeInfo("mm", "MatMul", declared="bf16")]  # fmt: skip
    result = audit(read_layers(DATA / "layers" / "inspector_11.json"), None, infos, fp32("mean", "sqrt", "mm"))
    assert verdict(result, "mean") == ("fp32", "mixed")
    assert kinds(nodes(result)["mean"].notes) == [NoteKind.AS_MODEL_STATES_CASTS]
    assert verdict(result, "mm") == ("bf16", "exact")  # alpha is Float whatever the product computes in
    assert [v.node for v in result.violations] == ["mm"]


def test_a_quantised_kernel_does_not_pass_for_fp32() -> None:
    log = read_lines(
        [
            "Engine Layer Information:",
            "Layer(CaskConvolution): c, Tactic: 0x1, x (Int8[4]), s (Int32[1]) -> y (Int8[4])",
        ]
    )
    assert verdict(of_log(log), "c") == ("int8", "exact")
    assert [v.got for v in of_log(log, "c").violations] == ["int8"]


def test_shape_arithmetic_breaks_no_plan() -> None:
    log = read_lines(["Engine Layer Information:", "Layer(Shape): c, Tactic: 0x1, x (Int64[4]) -> y (Int64[4])"])
    assert verdict(of_log(log), "c") == ("int64", "exact")
    assert of_log(log, "c").violations == ()


def test_names_only_engine_tells_nothing_and_says_so() -> None:
    result = audit(read_layers(DATA / "layers" / "names_8.4.json"), None, None, fp32("stem"))
    assert verdict(result, "stem") == ("unknown", "unknown")
    assert [v.node for v in result.unproven] == ["stem"]
    assert NoteKind.NAMES_ONLY in kinds(result.notes)


def test_a_wish_for_fp16_or_bf16() -> None:
    engine = read_layers(DATA / "layers" / "inspector_11.json")
    wanted = {"mm": Format.BF16, "mean": Format.FP16}
    assert audit(engine, None, [NodeInfo("mm", "MatMul"), NodeInfo("mean", "ReduceMean")], wanted).violations == ()


def test_a_wanted_node_that_the_model_lacks_is_unproven() -> None:
    result = audit(read_layers(DATA / "layers" / "inspector_11.json"), None, None, fp32("gone"))
    (unproven,) = result.unproven
    assert (unproven.node, kinds(unproven.messages)) == ("gone", [NoteKind.NO_LAYER_HAS_IT])
    assert not result.kept
    known = audit(read_layers(DATA / "layers" / "inspector_11.json"), None, [NodeInfo("mm", "MatMul")], fp32("gone"))
    assert kinds(known.unproven[0].messages) == [NoteKind.NODE_NOT_IN_ENGINE]
    assert not known.kept


def test_a_compute_node_in_no_kernel_is_unproven_and_a_mover_is_fine() -> None:
    infos = [NodeInfo("gone", "Conv"), NodeInfo("moved", "Reshape", compute=False), NodeInfo("mm", "MatMul")]
    result = audit(read_layers(DATA / "layers" / "inspector_11.json"), None, infos, fp32("gone", "moved"))
    assert [node.coverage for node in result.nodes] == ["folded", "folded", "exact"]
    assert ([v.node for v in result.unproven], result.violations) == (["gone"], ())
    assert result.kept  # what was folded away ran in no type at all


def test_layers_are_mapped_by_registration_where_names_collide() -> None:
    log = read_lines(
        [
            "[V] Registering layer: lin_1 for ONNX node: lin",
            "[V] Registering layer: lin_1_2 for ONNX node: lin_1",
            "[V] Engine Layer Information:",
            "Layer(gemm): lin_1_2, Tactic: 0x1, a (Float[4]) -> b (Float[4])",
        ]
    )
    assert verdict(of_log(log), "lin_1") == ("fp32", "exact")


def test_json_document() -> None:
    document = audit(read_layers(DATA / "layers" / "inspector_11.json"), source="e.json").to_json()
    assert (document["schema"], document["source"]) == ("halfwise.audit/1", "e.json")
    assert {"kernels", "bytes_moved", "casts", "reformats"} <= document["engine"].keys()
    assert {"node", "precision", "coverage", "kernels"} <= document["nodes"][0].keys()


# What must not pass for FP32, though nothing of it is shown to be FP16


def kernel(name: str, reads: str, writes: str, **more: str) -> dict[str, object]:
    def tensor(fmt: str) -> dict[str, object]:
        return {"Name": fmt, "Dimensions": [1, 8], "Format/Datatype": fmt}

    return {"Name": name, "LayerType": "kgen", "Inputs": [tensor(reads)], "Outputs": [tensor(writes)], **more}


def engine(*kernels: dict[str, object], key: str = "Bindings") -> EngineLayers:
    return read_layers(json.dumps({"Layers": kernels, key: []}))


def test_a_log_that_loads_an_engine_does_not_tell_how_it_was_built() -> None:
    """trtexec prints its default, `Precision: FP32`, whatever the loaded engine holds."""
    lines = REGION_LOG.read_text(encoding="utf-8").replace("(Half[", "(Float[").replace("Detected layernorm", "x")
    lines = lines.replace("--onnx=", "--loadEngine=").replace("Precision: FP32+FP16", "Precision: FP32")
    log = read_lines(lines.split("\n"))
    assert log.precision is None
    assert verdict(of_log(log), "/norm/Sub") == ("unknown", "region-only")


def test_a_build_that_says_fp32_and_shows_fp16_proves_nothing() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8").replace("Precision: FP32+FP16", "Precision: FP32")
    assert verdict(of_log(read_lines(lines.split("\n"))), "/norm/Sub") == ("unknown", "region-only")


def test_a_kernel_of_which_one_type_is_not_stated_is_not_known() -> None:
    layers = engine(kernel("k", "Float", "N/A due to dynamic shapes", Metadata="[ONNX Layer: a]"))
    result = audit(layers, None, None, fp32("a"))
    assert verdict(result, "a") == ("unknown", "unknown")
    assert not result.kept
    assert list(result.unproven[0].messages) == [Note.of(NoteKind.KERNEL_PARTLY_TYPED, types=["fp32"])]


def test_a_node_may_be_in_a_kernel_that_does_not_tell_whose_it_is() -> None:
    layers = engine(
        kernel("__myl_MulMeanSqrtDiv_myl0_1", "Half", "Half", Metadata=""),
        kernel("g_myl0_2", "Half", "Half", Metadata="[ONNX Layer: fc]\x1f[ONNX Layer: add]"),
    )
    model = (NodeInfo("square", "Pow"), NodeInfo("wave", "Sin"), NodeInfo("fc", "MatMul"), NodeInfo("add", "Add"))
    result = audit(layers, None, model, fp32("square", "wave"))
    assert verdict(result, "square") == ("unknown", "unknown")
    assert verdict(result, "wave") == ("unknown", "folded")  # its steps are not in that kernel
    assert not result.kept


@pytest.mark.parametrize("model", [None, (NodeInfo("fc", "Gemm"), NodeInfo("fc_1", "Gemm"))])
def test_a_layer_that_may_be_another_nodes_proves_neither(model: tuple[NodeInfo, ...] | None) -> None:
    """`fc_1` is the bias of `fc`, and `fc_1_2` and `fc_1_5` are the node `fc_1`; the names alone do not tell."""
    names = {"fc": "Half", "fc_1": "Float", "fc_1_2": "Half", "fc_1_5": "Half"}
    result = audit(engine(*(kernel(name, fmt, fmt) for name, fmt in names.items())), None, model, fp32("fc_1"))
    assert verdict(result, "fc_1") == ("mixed", "mixed")
    assert not result.kept


def test_counted_names_that_do_not_collide_are_their_own_nodes() -> None:
    layers = engine(kernel("/l/MatMul", "Half", "Half"), kernel("/l/MatMul_1", "Float", "Float"))
    model = (NodeInfo("/l/MatMul", "MatMul"), NodeInfo("/l/MatMul_1", "MatMul"))
    for given in (None, model):
        assert verdict(audit(layers, None, given), "/l/MatMul_1") == ("fp32", "exact")


def test_a_further_layer_counts_for_its_node_where_the_model_is_known() -> None:
    layers = engine(kernel("fc", "Float", "Float"), kernel("fc_7", "Half", "Half"))
    assert verdict(audit(layers, None, (NodeInfo("fc", "Gemm"),)), "fc") == ("mixed", "mixed")


def test_the_types_of_a_model_that_was_not_built_are_not_believed() -> None:
    """An FP32 model beside a typed engine: its nodes all state FP32, the ones in FP16 kernels as well."""
    layers = engine(
        kernel("__myl_CastMeanSubMulMeanSqrtDivCast_myl0_1", "Float", "Half", Metadata="[ONNX Layer: sub]"),
        key="I/O Tensors",
    )
    model = (NodeInfo("sub", "Sub", declared="fp32"),)
    result = audit(layers, None, model, fp32("sub"))
    assert not result.kept
    assert kinds(result.notes) == [NoteKind.OTHER_MODEL]


def test_an_engine_without_fp16_is_told_as_such() -> None:
    result = audit(engine(kernel("k", "Float", "Float", Metadata="[ONNX Layer: a]")), None, None, fp32("a"))
    assert result.kept
    assert kinds(result.notes) == [NoteKind.NOTHING_IN_FP16]


def test_fp16_that_begins_and_ends_within_its_kernel_is_not_called_missing() -> None:
    model = (NodeInfo("a", "Exp", declared="fp16"),)
    for name, told in (("__myl_CastExpCast_myl0_0", []), ("__myl_Exp_myl0_0", [NoteKind.NOTHING_IN_FP16])):
        layers = engine(kernel(name, "Float", "Float", Metadata="[ONNX Layer: a]"), key="I/O Tensors")
        assert kinds(audit(layers, None, model).notes) == told


@pytest.mark.parametrize(
    ("tactic", "operands"),
    [
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64", "fp16"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "bf16"),
        ("ampere_h16816gemm_128x128_ldg8_stages_32x5_tn", "fp16"),
        ("ampere_s16816gemm_fp16_128x128_ldg8", "fp16"),
    ],
)
def test_a_tactic_that_multiplies_in_fp16_is_no_fp32(tactic: str, operands: str) -> None:
    layers = engine(kernel("g_myl0_1", "Float", "Float", TacticName=tactic, Metadata="[ONNX Layer: fc]"))
    result = audit(layers, None, None, fp32("fc"))
    assert verdict(result, "fc") == ("mixed", "mixed")
    told = Note.of(NoteKind.MULTIPLIES_NARROW, operands=operands, tactic=tactic)
    assert list(result.violations[0].messages) == [told]


@pytest.mark.parametrize(
    "tactic", ["sm80_xmma_gemm_f32f32_tf32f32_f32_tn", "__myl_MulAdd_0x12bf16", "ampere_sgemm_128"]
)
def test_other_tactics_of_fp32_kernels_are_fp32(tactic: str) -> None:
    layers = engine(kernel("g_myl0_1", "Float", "Float", TacticName=tactic, Metadata="[ONNX Layer: fc]"))
    assert verdict(audit(layers, None, None), "fc") == ("fp32", "exact")


def test_metadata_that_was_cut_off_may_have_named_any_node() -> None:
    cut = "[ONNX Layer: a]\x1f[ONNX Layer: norm/Po"
    layers = engine(kernel("k", "Half", "Half", Metadata=cut))
    result = audit(layers, None, (NodeInfo("a", "Add"), NodeInfo("norm/Pow", "Pow")), fp32("norm/Pow"))
    assert verdict(result, "norm/Pow") == ("unknown", "unknown")
    assert not result.kept


def test_one_layer_of_an_engine_folds_no_node_away() -> None:
    """What the inspector says of a single layer is no engine: the other nodes are not in it, and not gone either."""
    layer = kernel("g_myl0_1", "Half", "Half", LayerType="gemm", Metadata="[ONNX Layer: fc]")
    model = tuple(NodeInfo(name, op) for name, op in (("norm", "Sqrt"), ("fc", "MatMul"), ("act", "Erf")))
    result = audit(read_layers(json.dumps(layer)), None, model, fp32("norm"))
    assert verdict(result, "norm") == ("unknown", "unknown")
    assert not result.kept
    assert kinds(result.unproven[0].messages) == [NoteKind.LIST_NOT_WHOLE]
