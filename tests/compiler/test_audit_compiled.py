"""The audit of engines that TensorRT-RTX compiles here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler.audit import audit, nodes_from_log
from halfwise.compiler.buildlog import read_log
from halfwise.compiler.kernel_names import hides_steps, may_hold, place_of
from halfwise.compiler.layers import layers_from_log
from halfwise.compiler.layers_model import compile_for_log, nodes_of_model
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from tests.support.audit_cases import DATA, fp32, nodes, of_log, verdict
from tests.support.paths import REAL_MODELS

needs_rtx = pytest.mark.skipif(
    find_spec("tensorrt_rtx_bindings") is None, reason="TensorRT-RTX is not installed (pip install 'halfwise[rtx]')"
)


def test_rtx_log_of_a_mixed_network() -> None:
    result = of_log(read_log(DATA / "logs" / "rtx_1.7_mixed_conv.log"), "/c2/Conv", "/c2/Sigmoid", "/c2/Mul")
    assert result.violations == ()
    assert result.coverage() == {"exact": 9, "mixed": 0, "region-only": 0, "folded": 0, "unknown": 0}
    assert verdict(result, "/c2/Sigmoid") == ("fp32", "exact")
    assert verdict(result, "/gap/GlobalAveragePool") == ("fp16", "exact")
    assert nodes(result)["/fc/Gemm"].kernels == ("__myl_ReshMulSum_myl0_6", "__myl_AddMaxrSubExpSumDiv_myl0_7")
    assert (result.cost.kernels, result.cost.casts) == (8, 2)


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
def test_rtx_compiles_a_model_and_keeps_an_fp32_region(tmp_path: Path) -> None:
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


BENT = ("Sin", "Cos", "Tanh", "Abs", "Neg", "Sigmoid")


def _behind_steps(before: int, path: Path) -> Path:
    """So many steps in FP16, then a root mean square in FP32, all of which one kernel takes."""
    steps = [_node(BENT[i % 6], f"v{i}", f"v{i + 1}", f"step{i}") for i in range(before)]
    steps += [
        _node("Cast", f"v{before}", "wide", "to32", to=TensorProto.FLOAT),
        _node("Mul", "wide wide", "square", "square"),
        _node("ReduceMean", "square", "mean", "mean", axes=[-1]),
        _node("Sqrt", "mean", "root", "root"),
        _node("Cast", "root", "narrow", "to16", to=TensorProto.FLOAT16),
        _node("Neg", "narrow", "y", "end"),
    ]
    return _save(path, steps, {"v0": [4, 64]}, {"y": [4, 1]}, [])


@needs_rtx
@pytest.mark.parametrize(
    ("before", "shown"),
    [(4, ("fp32", "mixed")), (23, ("fp32", "mixed")), (30, ("unknown", "unknown"))],
    ids=["whole name", "one cast shown", "no cast shown"],
)
def test_casts_that_a_long_kernel_name_hides_are_not_denied(
    before: int, shown: tuple[str, str], tmp_path: Path
) -> None:
    path = _behind_steps(before, tmp_path / "m.onnx")
    log = compile_for_log(path)
    island = ("square", "mean", "root")
    result = audit(layers_from_log(log), log, nodes_of_model(path), fp32(*island))
    (kernel,) = nodes(result)["mean"].kernels
    assert hides_steps(kernel) == (before > 4)
    assert {verdict(result, name) for name in island} == {shown}
    assert result.violations == ()
    if shown[0] == "unknown":
        assert nodes(result)["mean"].notes == (Note.of(NoteKind.NAME_HIDES_STEPS, types=["fp16"]),)


def test_a_step_that_a_name_does_not_show_has_no_place() -> None:
    whole, long = "__myl_MulCastMeanSqrtCast_myl0_1", "__myl_MulCastMeanSqrtEtc_myl0_1"
    assert (place_of("ReduceMean", whole), place_of("Mul", whole)) == ("inside", "before")
    assert (place_of("ReduceMean", long), place_of("Mul", long)) == (None, None)
    assert may_hold("Softmax", long) and not may_hold("Softmax", whole)


@needs_rtx
def test_made_up_sizes_fit_the_model_or_the_refusal_says_what_to_give(tmp_path: Path) -> None:
    def spectrum(size: int) -> Path:
        steps = [_node("Conv", "x w", "c", "window"), _node("Reshape", "c s", "y", "flat")]
        weights = [_half("w", 4, 1, 40), numpy_helper.from_array(np.array([size]), "s")]
        return _save(tmp_path / f"{size}.onnx", steps, {"x": [1, 1, "n"]}, {"y": ["m"]}, weights)

    assert {node.op for node in compile_for_log(spectrum(-1)).structure.nodes.values()} == {"Conv", "Reshape"}
    with pytest.raises(InputError) as refused:
        compile_for_log(spectrum(4 * 9973))
    assert "--shapes" not in str(refused.value)  # which audit does not have


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
        assert violation.got == "fp16"
        assert list(violation.messages) == [Note.of(NoteKind.STATED_OTHERWISE, stated="fp32", found="fp16")]


@needs_rtx
def test_rtx_hides_an_fp32_softmax_in_fused_attention(tmp_path: Path) -> None:
    """A Cast, Softmax, Cast region does not keep the fused kernel away; inside it nothing shows an FP32 value."""
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
    (told,) = violation.messages
    assert (told.kind, told.values["kernel"]) == (NoteKind.IN_ATTENTION, "_gemm_mha_v2")


@needs_rtx
def test_nodes_of_the_model_and_of_its_log_agree(tmp_path: Path) -> None:
    steps = [_node("Exp", "x", "e", ""), _node("Reshape", "e s", "r", "flat"), _node("Neg", "r", "y", "neg")]
    path = _save(tmp_path / "m.onnx", steps, {"x": [4, 4]}, {"y": [16]}, [numpy_helper.from_array(np.array([16]), "s")])
    assert nodes_of_model(path) == nodes_from_log(compile_for_log(path))
    assert [info.compute for info in nodes_of_model(path)] == [True, False, True]


@needs_rtx
@pytest.mark.parametrize("name", ["gtcrn_stream", "nanotrack_v3_head", "silero_vad_16k", "ultraface_rfb320"])
def test_every_compute_node_of_real_models_is_classified(name: str) -> None:
    path = REAL_MODELS / name / "model.onnx"
    if not path.exists():
        pytest.skip(f"the shared model {name} is not here")
    result = of_log(compile_for_log(path))
    counts = result.coverage()
    assert counts["unknown"] == counts["region-only"] == 0
    assert counts["exact"] + counts["mixed"] >= 0.95 * sum(counts.values())
