"""The audit says what each node ran in, how sure that is, and which nodes of a plan were not kept, and why."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.engine.audit import Audit, NodeAudit, NodeInfo, audit, nodes_from_log
from halfwise.engine.buildlog import LogReport, read_lines, read_log
from halfwise.engine.layers import EngineLayers, layers_from_log, read_layers
from halfwise.engine.layers_fields import region_ends
from halfwise.engine.layers_model import compile_for_log, nodes_of_model
from halfwise.formats import Format

DATA = Path(__file__).parent / "data"
REGION_LOG = DATA / "logs" / "layernorm_8.6_region.log"
NORM = ("/norm/ReduceMean", "/norm/Sub", "/norm/Pow", "/norm/ReduceMean_1", "/norm/Sqrt", "/norm/Div")

needs_rtx = pytest.mark.skipif(
    find_spec("tensorrt_rtx_bindings") is None, reason="TensorRT-RTX is not installed (pip install 'halfwise[rtx]')"
)


def fp32(*names: str) -> dict[str, Format]:
    return dict.fromkeys(names, Format.FP32)


def of_log(log: LogReport, *wanted: str) -> Audit:
    return audit(layers_from_log(log), log, None, fp32(*wanted))


def nodes(result: Audit) -> dict[str, NodeAudit]:
    return {node.node: node for node in result.nodes}


def verdict(result: Audit, name: str) -> tuple[str, str]:
    node = nodes(result)[name]
    return node.precision, node.coverage


# TensorRT 8.6: a LayerNorm asked for in FP32 that a Myelin region swallowed


def test_layernorm_in_a_half_region_is_a_violation_proven_by_the_warning() -> None:
    """TensorRT itself names four of the layers as LayerNorm in FP16: those ran in FP16, whatever was asked for."""
    result = of_log(read_log(REGION_LOG), "/norm/Pow")
    (violation,) = result.violations
    assert (violation.node, violation.wanted, violation.got) == ("/norm/Pow", "fp32", "fp16")
    assert violation.kernels == ("{ForeignNode[/norm/ReduceMean.../out/MatMul]}",)
    assert "TensorRT's own warning" in violation.why


def test_what_no_warning_names_is_unproven_and_still_a_violation() -> None:
    """Nothing visible shows an FP32 value (the region's borders are Half), so the wish counts as broken, not as met."""
    result = of_log(read_log(REGION_LOG), *NORM)
    assert {v.node: v.got for v in result.violations} == {
        "/norm/ReduceMean": "fp16",
        "/norm/Sub": "unproven",
        "/norm/Pow": "fp16",
        "/norm/ReduceMean_1": "unproven",
        "/norm/Sqrt": "fp16",
        "/norm/Div": "fp16",
    }
    assert result.unproven == ()
    assert verdict(result, "/norm/Sub") == ("unknown", "region-only")
    assert "types inside are not visible" in nodes(result)["/norm/Sub"].note
    assert verdict(result, "/in/Conv") == ("fp32", "exact")


def test_a_region_with_float_borders_can_neither_be_proven_nor_blamed() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8").replace("(Half[", "(Float[").replace("Detected layernorm", "x")
    result = of_log(read_lines(lines.split("\n")), "/norm/Sub")
    assert result.violations == ()
    assert [violation.node for violation in result.unproven] == ["/norm/Sub"]


def test_a_build_that_allowed_fp32_only_proves_its_regions() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8").replace("(Half[", "(Float[").replace("Detected layernorm", "x")
    plain = lines.replace("Precision: FP32+FP16 (obey precision constraints)", "Precision: FP32")
    result = of_log(read_lines(plain.split("\n")), *NORM)
    assert (result.violations, result.unproven) == ((), ())
    assert verdict(result, "/norm/Sub") == ("fp32", "region-only")


def test_nodes_outside_the_region_are_not_put_into_it() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8")
    extra = (
        "[V] /late/Exp [Exp] outputs: [z -> (1)[FLOAT]], \n[V] Registering layer: /late/Exp for ONNX node: /late/Exp\n"
    )
    marker = "[02/03/2025-10:11:12] [W] [TRT] Detected"
    result = of_log(read_lines(lines.replace(marker, extra + marker).split("\n")))
    assert verdict(result, "/late/Exp") == ("unknown", "unknown")


def test_the_logs_own_list_of_a_region_decides_where_there_is_one() -> None:
    log = read_log(DATA / "logs" / "strategies_10.16_weak.log")
    infos = [NodeInfo(name, "X") for name in ("/a/Conv", "/a/Relu", "/m/MatMul", "/s/Softmax", "/gone")]
    result = audit(layers_from_log(log), log, infos)
    assert {node.node: node.coverage for node in result.nodes} == {
        "/a/Conv": "exact",
        "/a/Relu": "exact",
        "/m/MatMul": "region-only",
        "/s/Softmax": "region-only",
        "/gone": "folded",
    }
    assert result.notes[0].startswith("1 Myelin regions are listed as one layer each")


def region_json(*regions: str, fmt: str = "Row major linear FP16 format") -> EngineLayers:
    tensor = {"Name": "t", "Dimensions": [1, 8], "Format/Datatype": fmt}
    shapes = {"Name": "[HostToDeviceCopy 0]", "LayerType": "ShapeHostToDevice", "Inputs": [], "Outputs": [tensor]}
    moved = {"Name": "/view", "LayerType": "Shuffle", "Inputs": [tensor], "Outputs": [tensor]}
    found = [{"Name": name, "LayerType": "Myelin", "Inputs": [tensor], "Outputs": [tensor]} for name in regions]
    return read_layers(json.dumps({"Layers": [shapes, moved, *found], "Bindings": ["t"]}))


def test_without_a_model_a_region_names_its_two_ends_and_nothing_else_is_made_up() -> None:
    result = audit(region_json("{ForeignNode[/norm/Mean...(Unnamed Layer* 7) [Shuffle] + /norm/Div]}"))
    assert {node.node: (node.coverage, node.compute) for node in result.nodes} == {
        "/view": ("exact", False),
        "/norm/Mean": ("region-only", True),
        "/norm/Div": ("region-only", True),
    }
    assert all("every border of the region is FP16" in node.note for node in result.nodes if node.compute)


def test_without_a_model_a_node_that_may_be_in_a_region_is_no_pass() -> None:
    engine = region_json("{ForeignNode[/norm/Mean.../norm/Div]}")
    result = audit(engine, None, None, fp32("/norm/Sqrt"))
    assert [(v.node, v.why) for v in result.unproven] == [
        ("/norm/Sqrt", "no layer bears its name; it may be inside the Myelin region: give the model that was built "
                       "(--model)")
    ]  # fmt: skip
    assert not result.kept
    infos = [NodeInfo(name, "X") for name in ("/norm/Mean", "/norm/Sqrt", "/norm/Div")]
    told = audit(engine, None, infos, fp32("/norm/Sqrt"))
    assert [v.why for v in told.violations] == [
        "inside a Myelin region; every border of the region is FP16, and types inside are not visible"
    ]


def test_a_region_begins_and_ends_where_its_fused_ends_do() -> None:
    engine = region_json("{ForeignNode[PWN(PWN(s1, s2), s3)...e1 + e2]}")
    names = ("before", "s1", "s2", "s3", "middle", "e1", "e2", "behind")
    result = audit(engine, None, [NodeInfo(name, "X") for name in names])
    inside = {node.node for node in result.nodes if node.coverage == "region-only"}
    assert inside == set(names) - {"before", "behind"}


def test_the_borders_of_a_region_are_told_as_they_are() -> None:
    def why(fmt: str) -> str:
        return audit(region_json("{ForeignNode[a...b]}", fmt=fmt), None, None, fp32("a")).nodes[-1].note

    assert "every border of the region is FP32," in why("Row major linear FP32")
    assert "the types at its borders are not stated," in why("N/A due to dynamic shapes")


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("{ForeignNode[a...b]}", ("a", "b")),
        ("{ForeignNode[m.emb.weight.../Sub]}", ("m.emb.weight", "/Sub")),
        ("{ForeignNode[dot....b]}", ("dot.", "b")),
        ("{ForeignNode[w + ONNXTRT_Broadcast_4...ONNXTRT_castHelper_9]}", ("w",)),
        ("{ForeignNode[only]}", ("only",)),
        ("{ForeignNode[a[0]...b, c]}", ("a[0]", "b, c")),
    ],
)
def test_the_ends_of_a_region(name: str, ends: tuple[str, ...]) -> None:
    assert region_ends(name) == ends


def test_the_members_of_a_region_come_from_the_log_where_it_lists_them() -> None:
    log = read_lines(
        [
            "[V] ForeignNode {ForeignNode[w.../d]} metadata: [ONNX Layer: /m]\x1e[ONNX Layer: /d]",
            "[V] Engine Layer Information:",
            "Layer(Myelin): {ForeignNode[w.../d]}, Tactic: 0x0, x (Half[4]) -> y (Half[4])",
        ]
    )
    assert [(node.node, node.coverage) for node in of_log(log).nodes] == [("/m", "region-only"), ("/d", "region-only")]


def test_a_wish_for_bf16_in_a_region() -> None:
    engine = region_json("{ForeignNode[a...b]}", fmt="Row major linear BFloat16 format")
    assert audit(engine, None, None, {"a": Format.BF16}).violations == ()
    assert [v.node for v in audit(engine, None, None, fp32("a")).violations] == ["a"]


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
    assert nodes(result)["conv"].note == "tf32 in, f32 accumulated"
    assert verdict(result, "fc") == ("fp16", "exact")
    assert verdict(result, "softmax") == ("fp16", "mixed")
    assert nodes(result)["softmax"].attention == "_gemm_mha_v2"
    assert verdict(result, "square") == ("fp16", "exact")  # before the first cast
    assert verdict(result, "mean") == ("fp32", "mixed")  # between the only two casts
    assert "by the kernel's name only" in nodes(result)["mean"].note
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
    assert "strong typing" in nodes(result)["mean"].note
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
    assert any("--profilingVerbosity=detailed" in note for note in result.notes)


def test_a_wish_for_fp16_or_bf16() -> None:
    engine = read_layers(DATA / "layers" / "inspector_11.json")
    wanted = {"mm": Format.BF16, "mean": Format.FP16}
    assert audit(engine, None, [NodeInfo("mm", "MatMul"), NodeInfo("mean", "ReduceMean")], wanted).violations == ()


def test_a_wanted_node_that_the_model_lacks_is_unproven() -> None:
    result = audit(read_layers(DATA / "layers" / "inspector_11.json"), None, None, fp32("gone"))
    (unproven,) = result.unproven
    assert (unproven.node, "give the model that was built (--model)" in unproven.why) == ("gone", True)
    assert not result.kept
    known = audit(read_layers(DATA / "layers" / "inspector_11.json"), None, [NodeInfo("mm", "MatMul")], fp32("gone"))
    assert known.unproven[0].why == "the engine's model has no node of that name; is this the plan of another model?"
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


# TensorRT-RTX


def test_rtx_log_of_a_mixed_network() -> None:
    result = of_log(read_log(DATA / "logs" / "rtx_1.7_mixed_conv.log"), "/c2/Conv", "/c2/Sigmoid", "/c2/Mul")
    assert result.violations == ()
    assert result.coverage() == {"exact": 9, "mixed": 0, "region-only": 0, "folded": 0, "unknown": 0}
    assert verdict(result, "/c2/Sigmoid") == ("fp32", "exact")
    assert verdict(result, "/gap/GlobalAveragePool") == ("fp16", "exact")
    assert nodes(result)["/fc/Gemm"].kernels == ("__myl_ReshMulSum_myl0_6", "__myl_AddMaxrSubExpSumDiv_myl0_7")
    assert (result.cost.kernels, result.cost.casts) == (8, 2)


def test_json_document() -> None:
    document = audit(read_layers(DATA / "layers" / "inspector_11.json"), source="e.json").to_json()
    assert (document["schema"], document["source"]) == ("halfwise.audit/1", "e.json")
    assert {"kernels", "bytes_moved", "casts", "reformats"} <= document["engine"].keys()
    assert {"node", "precision", "coverage", "kernels"} <= document["nodes"][0].keys()


def _half(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape).astype(np.float16), name)


Shapes = dict[str, list[int | str]]


def _save(
    path: Path, steps: list[onnx.NodeProto], inputs: Shapes, outputs: Shapes, weights: list[onnx.TensorProto]
) -> Path:
    graph = helper.make_graph(
        steps,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in outputs.items()],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _node(op: str, inputs: str, output: str, name: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=name, **attributes)


@needs_rtx
def test_rtx_compiles_a_model_and_keeps_an_fp32_island(tmp_path: Path) -> None:
    steps = [
        _node("Mul", "x x", "xx", "square"),
        _node("Cast", "xx", "wide", "to32", to=TensorProto.FLOAT),
        _node("ReduceMean", "wide", "mean", "mean", axes=[-1]),
        _node("Sqrt", "mean", "root", "root"),
        _node("Cast", "root", "narrow", "to16", to=TensorProto.FLOAT16),
        _node("MatMul", "x w", "xw", "product"),
        _node("Div", "xw narrow", "y", "ratio"),
    ]
    path = _save(tmp_path / "m.onnx", steps, {"x": ["n", 64]}, {"y": ["n", 64]}, [_half("w", 64, 64)])
    log = compile_for_log(path)
    wanted = fp32("mean", "root", "square", "product")
    result = audit(layers_from_log(log), log, nodes_of_model(path), wanted)
    assert nodes(result)["mean"].precision == "fp32"
    assert nodes(result)["root"].precision == "fp32"
    assert {v.node: v.got for v in result.violations} == {"square": "fp16", "product": "fp16"}
    assert result.coverage()["unknown"] == 0


@needs_rtx
@pytest.mark.parametrize("follower", [None, "Relu"])
def test_rtx_takes_a_lone_fp32_product_back_to_fp16(tmp_path: Path, follower: str | None) -> None:
    """Between two casts alone a product with a constant runs in FP16, weights and all; one more FP32 node saves it."""
    weight = numpy_helper.from_array(np.full((64, 64), 1e5, np.float32), "w")
    steps = [_node("Cast", "x", "wide", "to32", to=TensorProto.FLOAT), _node("MatMul", "wide w", "p", "product")]
    if follower:
        steps.append(_node(follower, "p", "f", "follower"))
    steps.append(_node("Cast", "f" if follower else "p", "y", "to16", to=TensorProto.FLOAT16))
    path = _save(tmp_path / "m.onnx", steps, {"x": [8, 64]}, {"y": [8, 64]}, [weight])
    result = of_log(compile_for_log(path), "product")
    if follower:
        assert result.violations == ()
        assert verdict(result, "product") == ("fp32", "exact")
    else:
        (violation,) = result.violations
        assert (violation.got, violation.why) == (
            "fp16",
            "the model states fp32, but all that its kernel reads and writes is fp16",
        )


@needs_rtx
def test_rtx_hides_an_fp32_softmax_in_fused_attention(tmp_path: Path) -> None:
    """A Cast, Softmax, Cast island does not keep the fused kernel away; inside it nothing shows an FP32 value."""
    steps = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        steps += [
            _node("MatMul", f"x w{name}", f"{name}0", f"{name}/MatMul"),
            _node("Add", f"{name}0 b{name}", f"{name}1", f"{name}/Add"),
            _node("Reshape", f"{name}1 heads", f"{name}2", f"{name}/Reshape"),
            _node("Transpose", f"{name}2", name, f"{name}/Transpose", perm=perm),
        ]
    steps += [
        _node("MatMul", "q k", "scores", "qk"),
        _node("Mul", "scores scale", "scaled", "scale"),
        _node("Cast", "scaled", "wide", "to32", to=TensorProto.FLOAT),
        _node("Softmax", "wide", "weights", "softmax", axis=-1),
        _node("Cast", "weights", "narrow", "to16", to=TensorProto.FLOAT16),
        _node("MatMul", "narrow v", "y", "av"),
    ]
    weights = [_half(f"w{name}", 64, 64) for name in "qkv"] + [_half(f"b{name}", 64) for name in "qkv"]
    weights += [
        numpy_helper.from_array(np.array([1, 64, 4, 16]), "heads"),
        numpy_helper.from_array(np.array(0.25, np.float16), "scale"),
    ]
    path = _save(tmp_path / "m.onnx", steps, {"x": [1, 64, 64]}, {"y": [1, 4, 64, 16]}, weights)
    log = compile_for_log(path)
    result = of_log(log, "softmax")
    if "_gemm_mha_v2" not in result.attention_kernels:
        pytest.skip("this version of TensorRT-RTX does not fuse this attention")
    (violation,) = result.violations
    assert (violation.node, violation.got) == ("softmax", "unproven")
    assert "inside _gemm_mha_v2" in violation.why


@needs_rtx
def test_nodes_of_the_model_and_of_its_log_agree(tmp_path: Path) -> None:
    steps = [_node("Exp", "x", "e", ""), _node("Reshape", "e s", "r", "flat"), _node("Neg", "r", "y", "neg")]
    path = _save(tmp_path / "m.onnx", steps, {"x": [4, 4]}, {"y": [16]}, [numpy_helper.from_array(np.array([16]), "s")])
    assert nodes_of_model(path) == nodes_from_log(compile_for_log(path))
    assert [info.compute for info in nodes_of_model(path)] == [True, False, True]


@needs_rtx
@pytest.mark.parametrize("name", ["gtcrn_stream", "nanotrack_v3_head", "silero_vad_16k", "ultraface_rfb320"])
def test_every_compute_node_of_real_models_is_classified(name: str) -> None:
    path = Path(__file__).resolve().parents[1].parent / "shared" / "models" / name / "model.onnx"
    if not path.exists():
        pytest.skip(f"the shared model {name} is not here")
    result = of_log(compile_for_log(path))
    counts = result.coverage()
    assert counts["unknown"] == counts["region-only"] == 0
    assert counts["exact"] + counts["mixed"] >= 0.95 * sum(counts.values())


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


def test_a_kernel_of_which_one_border_is_not_stated_is_not_known() -> None:
    layers = engine(kernel("k", "Float", "N/A due to dynamic shapes", Metadata="[ONNX Layer: a]"))
    result = audit(layers, None, None, fp32("a"))
    assert verdict(result, "a") == ("unknown", "unknown")
    assert not result.kept
    assert "not all types at its kernel's borders are stated; those that are: fp32" in result.unproven[0].why


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
    assert result.notes == (
        "the model given has no FP16, but the engine has: it was built from another, give that one",
    )


def test_an_engine_without_fp16_is_told_as_such() -> None:
    result = audit(engine(kernel("k", "Float", "Float", Metadata="[ONNX Layer: a]")), None, None, fp32("a"))
    assert result.kept
    assert result.notes == (
        "no kernel reads or writes anything but FP32: nothing of this engine is shown to run in FP16",
    )


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
    assert f"multiplies in {operands} by its tactic" in result.violations[0].why


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
    assert "the list of layers may not be whole" in result.unproven[0].why
