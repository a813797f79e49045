"""Layer lists of every TensorRT version and form are read to the same layers; bad ones are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.compiler.buildlog.layer_text import dtype_of, nodes_of_metadata, nodes_of_name, shape_of
from halfwise.compiler.kernel_names import cast_count, fused_attention, is_copy, place_of, steps, tactic_math
from halfwise.compiler.layers import EngineLayers, Layer, LayerTensor, looks_like_json, read_layers
from halfwise.compiler.layers_cost import cost_of
from halfwise.compiler.layers_text import layer_from_line
from halfwise.core.errors import InputError
from tests.support.paths import DATA
from tests.support.says import Says

LAYERS = DATA / "layers"


def by_name(engine: EngineLayers) -> dict[str, Layer]:
    return {layer.name: layer for layer in engine.layers}


def test_names_only_engine() -> None:
    engine = read_layers(LAYERS / "names_8.4.json")
    assert (engine.schema, engine.source_kind, engine.bindings) == ("names-only", "inspector-json", ("x", "y"))
    assert [layer.onnx_nodes for layer in engine.layers] == [("stem", "sig", "mul"), ("left", "right"), (), ()]
    assert [layer.is_region for layer in engine.layers] == [False, False, False, True]
    assert all(layer.inputs == () for layer in engine.layers)


def test_schema_with_sentences_for_types() -> None:
    engine = read_layers(LAYERS / "inspector_8.6.json")
    assert engine.schema == "8.2-10.16"
    reformat, stem, region, head = engine.layers
    assert [tensor.dtype for tensor in (*reformat.inputs, *reformat.outputs)] == ["fp32", "fp16"]
    assert (stem.inputs[0].dtype, stem.outputs[0].dtype, stem.weights) == ("fp16", "int8", "fp16")
    assert stem.onnx_nodes == ("stem", "relu")
    assert region.is_region
    assert (region.metadata, region.onnx_nodes) == (None, ())
    assert [tensor.dtype for tensor in (*head.inputs, *head.outputs)] == ["unknown", "unknown"]
    assert head.inputs[0].shape == (-1, 16, 8, 8)


def test_schema_with_short_types_and_metadata() -> None:
    layers = by_name(read_layers(LAYERS / "inspector_10.16.json"))
    assert layers["conv + relu"].onnx_nodes == ("conv", "relu")
    assert layers["fc_myl1_0"].onnx_nodes == ("fc", "fc_bias")
    assert layers["_gemm_mha_v2_myl1_1"].inputs[2] == LayerTensor("v", "fp16", (4, 16, 8), "Half")
    assert layers["_gemm_mha_v2_myl1_1"].onnx_nodes == ("qk", "softmax", "av")


def test_schema_of_11_in_both_spellings_of_the_type() -> None:
    engine = read_layers(LAYERS / "inspector_11.json")
    assert (engine.schema, engine.bindings) == ("11", ("x", "y"))
    first, second = engine.layers
    assert (first.inputs[0].dtype, first.inputs[0].format) == ("fp16", "(Linear) Row major linear format")
    assert (second.inputs[0].dtype, second.outputs[0].dtype) == ("bf16", "bf16")
    assert [(tensor.name, tensor.dtype) for tensor in second.constants] == [("w", "bf16"), ("alpha", "fp32")]


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"layers": v}, lambda v: {"LayerInfo": v}, lambda v: v[0]])
def test_other_roots(wrap: object) -> None:
    entries = json.loads((LAYERS / "inspector_8.6.json").read_text(encoding="utf-8"))["Layers"]
    engine = read_layers(json.dumps(wrap(entries)))  # type: ignore[operator]
    assert engine.layers[0] == read_layers(LAYERS / "inspector_8.6.json").layers[0]


def test_one_line_dump_with_commas_and_brackets_in_names() -> None:
    engine = read_layers(LAYERS / "dump_10.txt")
    assert (engine.schema, engine.source_kind) == ("8.2-10.16", "layer-dump")
    gemm, reformat, shape_call = engine.layers
    assert gemm.name == "mat, mul (odd) [q]_myl5_2"
    assert gemm.onnx_nodes == ("mat, mul (odd) [q]", "bias")
    assert gemm.inputs == (
        LayerTensor("r, 1 [a]_4_myl5", "fp16", (-1, 3136), "Half"),
        LayerTensor("s_myl5", "fp16", (4,), "Half"),
    )
    assert gemm.tactic == "sm90_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64"
    assert (reformat.inputs[0].dtype, reformat.outputs[0].dtype) == ("fp32", "fp16")
    assert (shape_call.inputs, shape_call.outputs, shape_call.metadata) == ((), (), "")


def test_a_dump_without_its_heading_is_read_too() -> None:
    text = (LAYERS / "dump_10.txt").read_text(encoding="utf-8")
    body = "\n".join(line for line in text.split("\n") if line.startswith("Name: "))
    assert read_layers(body).layers == read_layers(LAYERS / "dump_10.txt").layers


def test_a_dump_of_names_only() -> None:
    engine = read_layers("[I] Layers:\nstem + relu\nhead\n\nBindings:\nx\n")
    assert (engine.schema, [layer.name for layer in engine.layers]) == ("names-only", ["stem + relu", "head"])


def test_engine_layer_lines_of_a_verbose_log() -> None:
    engine = read_layers(DATA / "logs" / "strategies_10.16_weak.log")
    assert (engine.schema, engine.source_kind) == ("log", "build-log")
    conv, region = engine.layers
    assert conv.onnx_nodes == ("/a/Conv", "/a/Relu")
    assert conv.inputs == (LayerTensor("x", "fp16", (-1, 64, 14, 14), "Half[-1,64:8,14,14]"),)
    assert (region.type, region.is_region) == ("Myelin", True)
    assert [(tensor.name, tensor.dtype) for tensor in region.outputs] == [
        ("y", "fp32"),
        ("(Unnamed Layer* 9) [TopK], output_1", "int64"),
    ]


def test_layer_line_without_inputs_and_of_tensorrt_7() -> None:
    copy = layer_from_line(
        "Layer(ShapeHostToDevice): [HostToDeviceCopy 0], Tactic: 0x0000000000000000,  -> m (Int32[])"
    )
    assert copy is not None
    assert (copy.inputs, copy.outputs) == ((), (LayerTensor("m", "int32", (), "Int32[]"),))
    old = layer_from_line("Layer(Softmax): prob, Tactic: 1001, ip2[Half(170,1,1)] -> prob[Float(170,1,1)]")
    assert old is not None
    assert [(t.name, t.dtype, t.shape) for t in (*old.inputs, *old.outputs)] == [
        ("ip2", "fp16", (-1, -1, -1)),  # these are strides, not sizes
        ("prob", "fp32", (-1, -1, -1)),
    ]


def test_rtx_layer_list_with_constants() -> None:
    engine = read_layers(DATA / "logs" / "rtx_1.7_mixed_conv.log")
    assert (engine.schema, engine.source_kind, len(engine.layers)) == ("rtx", "build-log", 8)
    layers = by_name(engine)
    conv = layers["/c2/Conv_myl0_4"]
    assert [tensor.dtype for tensor in (*conv.inputs, *conv.outputs)] == ["fp32", "fp32"]
    assert [tensor.shape for tensor in conv.constants] == [(16, 16, 3, 3), (1,), (1,), (1, 16, 1, 1)]
    silu = layers["__myl_SiluCastMean_myl0_5"]
    assert silu.onnx_nodes == ("/c2/Sigmoid", "/c2/Mul", "/gap/GlobalAveragePool", "/c2/CastOut")
    assert (silu.inputs[0].dtype, silu.outputs[0].dtype) == ("fp32", "fp16")


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("Row major linear FP32", "fp32"),
        ("Row major linear FP16 format", "fp16"),
        ("Channel major FP16 format where channel % 8 == 0.", "fp16"),
        ("Two wide channel vectorized row major FP16 format", "fp16"),
        ("Row major linear BFloat16 format", "bf16"),
        ("Row major linear BOOL", "bool"),
        ("Float", "fp32"),
        ("FP4E2M1", "fp4"),
        ("None", "unknown"),
        ("N/A due to dynamic shapes", "unknown"),
        ("Unknown format", "unknown"),
        ("", "unknown"),
    ],
)
def test_types(text: str, dtype: str) -> None:
    assert dtype_of(text) == dtype


def test_dimensions() -> None:
    assert shape_of("-1,64:8,14,14") == (-1, 64, 14, 14)
    assert shape_of("[]") == ()


def test_metadata_of_every_parser() -> None:
    assert nodes_of_metadata("[ONNX Layer: a]\x1e[ONNX Layer: b]\x1f[ONNX Layer: a]") == ("a", "b")
    assert nodes_of_metadata("[ONNX Layer: a][ONNX Layer: b]") == ("a", "b")
    assert nodes_of_metadata(
        "[ONNX Layer: odd [x], y | call one (Norm)]\x1f[ONNX Layer: m | el (else_branch) | i (If)]"
    ) == (
        "odd [x], y",
        "m",
    )
    assert nodes_of_metadata("[ONNX Layer: left | right]") == ("left | right",)
    assert nodes_of_metadata("[ONNX Layer: a]__gemm_from_conv1x1\x1f[ONNX Layer: b]") == ("a", "b")
    assert nodes_of_metadata("") == ()


@given(st.lists(st.text("abc_/[](),.: ", min_size=1).map(str.strip).filter(bool), unique=True, max_size=6))
def test_metadata_gives_back_the_names_it_was_made_of(names: list[str]) -> None:
    assert nodes_of_metadata("\x1f".join(f"[ONNX Layer: {name}]" for name in names)) == tuple(names)


def test_nodes_of_fused_names() -> None:
    assert nodes_of_name("a + PWN(PWN(b), c) [profile 1]") == ("a", "b", "c")
    assert nodes_of_name("a, b || c") == ("a, b", "c")
    assert nodes_of_name("Reformatting CopyNode for Input Tensor 0 to a") == ()
    assert nodes_of_name("(Unnamed Layer* 3) [Shuffle]") == ()


@pytest.mark.parametrize(
    "content",
    [
        '{"Layers": [{"Name": "a", "LayerType": "x"',
        '{"Layers": [{"Name": "a}',
        '{"Layers": oops, "Bindings": []}',
        '{"nodes": []}',
        "[1, 2]",
        '{"Layers": [3]}',
        '{"Layers": [{"LayerType": "x"}]}',
        "an ordinary text\n",
        "",
        "Name: a, LayerType: kgen, Inputs: [ { Name: x, Dim\n",
        "Layers:\nName: a, LayerType: kgen, Inputs: [], Outputs: []\nName: b, La",
    ],
)
def test_what_is_no_layer_list_is_refused_in_one_line(tmp_path: Path, content: str, says: Says) -> None:
    path = tmp_path / "layers.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_layers(path)
    says(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["Layers", "Name", "LayerType", "Inputs", "Outputs", "Dimensions", "Datatype", "Weights",
                         "Metadata", "Bindings", "I/O Tensors", "Format/Datatype"]),
        inner,
        max_size=5,
    ),
)  # fmt: skip


@given(_JSON)
def test_any_json_is_read_or_refused(inner: object) -> None:
    for document in (inner, {"Layers": inner}, {"Layers": [{"Name": "a", "LayerType": "x", "Inputs": inner}]},
                     {"Layers": [inner], "Bindings": inner}):  # fmt: skip
        try:
            engine = read_layers("\n" + json.dumps(document))
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert all(isinstance(layer.name, str) for layer in engine.layers)
            cost_of(engine.layers)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_layers(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        read_layers(tmp_path)


def test_json_is_told_from_logs() -> None:
    assert looks_like_json('\ufeff {"Layers": []}')
    assert looks_like_json('["a"]')
    assert not looks_like_json("[02/03/2025-10:11:12] [V] [TRT] x")
    assert not looks_like_json("[V] [TRT] x")


def test_utf16_json(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_bytes((LAYERS / "names_8.4.json").read_text(encoding="utf-8").encode("utf-16"))
    assert len(read_layers(path).layers) == 4


def test_steps_and_casts_of_kernel_names() -> None:
    assert steps("__myl_MulCastMaxrSubCast_myl0_1") == ("Mul", "Cast", "Maxr", "Sub", "Cast")
    assert steps("__myl_AddCas_0x574acd01") == ("Add", "Cas")
    assert steps("/l0/q/MatMul_myl0_1") == ()
    assert cast_count("__myl_FcAddDivCastErfCastAddMulMul_myl0_8") == 2
    assert is_copy("__myl_ReshTran_myl0_2")
    assert not is_copy("__myl_AddTran_myl0_2")


def test_fused_attention_by_name() -> None:
    assert fused_attention("_gemm_mha_v2_myl3_6") == "_gemm_mha_v2"
    assert fused_attention("__mye8037_gemm_mha_v2") == "_gemm_mha_v2"
    assert fused_attention("_gemv_mha_v1_0xbb5c0638") == "_gemv_mha_v1"
    assert fused_attention("/mha/q/MatMul_myl0_1") is None


def test_place_of_an_operator_among_the_casts() -> None:
    kernel = "__myl_FcAddDivCastErfCastAddMulMul_myl0_8"
    assert place_of("MatMul", kernel) == "before"
    assert place_of("Erf", kernel) == "inside"
    assert place_of("Add", kernel) is None  # one before, one after
    assert place_of("GlobalAveragePool", "__myl_SiluCastMean_myl0_5") == "after"
    assert place_of("Sigmoid", "__myl_Silu_myl0_5") is None  # no cast, nothing to tell


def test_math_of_matrix_tactics() -> None:
    assert tactic_math("sm90_xmma_gemm_f16f16_f16f16_f16_tn_n") == ("f16", "f16")
    assert tactic_math("sm80_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc") == ("tf32", "f32")
    assert tactic_math("sm80_xmma_fprop_i8i8_i8i32_f32_nchw") == ("i8", "i32")
    assert tactic_math("__myl_MulSum_0x12") is None


def test_cost_counts_borders_casts_and_reformats() -> None:
    cost = cost_of(read_layers(LAYERS / "inspector_10.16.json").layers)
    moved = (3 * 64 + 512) * 4 + (512 * 4 + 512 * 2) + (512 + 64) * 2 + 4 * 512 * 2 + 2 * 512 * 2
    assert (cost.kernels, cost.bytes_moved, cost.casts, cost.reformats, cost.unsized) == (5, moved, 3, 1, 0)


def test_cost_says_what_it_could_not_size() -> None:
    cost = cost_of(read_layers(LAYERS / "dump_10.txt").layers)
    assert cost.unsized == 2
