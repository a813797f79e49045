"""What the audit makes of kernels of TensorRT-RTX whose names or types alone would mislead."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler.audit import Audit, NodeInfo, audit
from halfwise.compiler.compiled import node_infos
from halfwise.compiler.layers import layers_from_log
from halfwise.compiler.layers_fields import EngineLayers, Layer, LayerTensor
from halfwise.compiler.layers_model import compile_for_log, nodes_of_model
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from tests.support.audit_cases import fp32, nodes, verdict

needs_rtx = pytest.mark.skipif(
    find_spec("tensorrt_rtx_bindings") is None, reason="TensorRT-RTX is not installed (pip install 'halfwise[rtx]')"
)
KEPT = ("fp32", "mixed")
BOOL = TensorProto.BOOL


def _node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def _up(source: str, target: str) -> onnx.NodeProto:
    return _node("Cast", source, target, to=TensorProto.FLOAT)


def _down(source: str, target: str) -> onnx.NodeProto:
    return _node("Cast", source, target, to=TensorProto.FLOAT16)


def _constant(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape).astype(np.float32), name)


def _audited(
    folder: Path,
    steps: list[onnx.NodeProto],
    wanted: tuple[str, ...],
    shape: tuple[int, ...] = (4, 64),
    constants: tuple[onnx.TensorProto, ...] = (),
    output: int = TensorProto.FLOAT16,
) -> Audit:
    """A model that reads `x` in FP16, `f` in FP32 and a mask `m`, and writes `y`, each node named after its output."""
    inputs = {"x": TensorProto.FLOAT16, "f": TensorProto.FLOAT, "m": BOOL}
    read = {name for step in steps for name in step.input}
    graph = helper.make_graph(
        steps,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind in inputs.items() if name in read],
        [helper.make_tensor_value_info("y", output, None)],
        constants,
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    log = compile_for_log(path)
    return audit(layers_from_log(log), log, nodes_of_model(path), fp32(*wanted))


# A region in FP32 that ends in truth values is cast up, and not down again; one of two constants, down alone.
SQUARE = [_up("x", "wide"), _node("Mul", "wide wide", "square")]
CHOICES = {
    "picks": [*SQUARE, _node("Greater", "square one", "more"), _node("Sin", "x", "s"), _node("Where", "more x s", "y")],
    "is not a number": [
        _up("x", "wide"),
        _node("Log", "wide", "square"),
        _node("IsNaN", "square", "bad"),
        _node("Sin", "x", "s"),
        _node("Where", "bad x s", "y"),
    ],
    "not less": [
        _up("x", "wide"),
        _node("Exp", "wide", "square"),
        _node("Less", "square one", "less"),
        _node("Not", "less", "more"),
        _node("Sin", "x", "s"),
        _node("Where", "more s x", "y"),
    ],
    "two casts": [
        _node("Sin", "x", "s"),
        _up("x", "wide"),
        _up("s", "wides"),
        _node("Sub", "wide wides", "square"),
        _node("Greater", "square one", "more"),
        _node("Where", "more x s", "y"),
    ],
    "of constants": [
        _node("Where", "m one low", "bias"),
        _node("Exp", "bias", "square"),
        _down("square", "narrow"),
        _node("Add", "narrow x", "sum"),
        _node("Softmax", "sum", "y"),
    ],
}


@needs_rtx
@pytest.mark.parametrize("steps", CHOICES.values(), ids=CHOICES.keys())
def test_a_region_beside_a_choice_is_not_told_as_narrow(steps: list[onnx.NodeProto], tmp_path: Path) -> None:
    scalars = tuple(numpy_helper.from_array(np.float32(each), name) for name, each in (("one", 0.5), ("low", -1e9)))
    result = _audited(tmp_path, steps, ("square",), constants=scalars)
    (kernel,) = (layer for layer in result.layers if "square" in layer.onnx_nodes)
    assert {tensor.dtype for tensor in (*kernel.inputs, *kernel.outputs)} <= {"fp16", "bool"}
    assert verdict(result, "square") == KEPT
    assert result.violations == ()


@needs_rtx
def test_a_region_whose_kernel_writes_truth_values_is_not_told_as_narrow(tmp_path: Path) -> None:
    one = numpy_helper.from_array(np.float32(0.5), "one")
    steps = [*SQUARE, _node("Greater", "square one", "y")]
    result = _audited(tmp_path, steps, ("square",), constants=(one,), output=BOOL)
    assert verdict(result, "square") == KEPT
    assert result.violations == ()


@needs_rtx
@pytest.mark.parametrize(("rows", "columns"), [((64, 1), (1, 8)), ((1, 64), (64, 1)), ((1, 64), (64, 4))])
@pytest.mark.parametrize("beside", [False, True])
def test_a_small_product_is_told_by_its_weight(
    rows: tuple[int, int], columns: tuple[int, int], beside: bool, tmp_path: Path
) -> None:
    """It becomes steps as any others, in a kernel that casts for another region; isolated, it was taken back."""
    steps = [_node("Sin", "x", "s"), _up("s", "wide"), _node("MatMul", "wide w", "product")]
    steps += [_node("Neg", "product", "flipped")] if beside else []
    steps += [
        _down("flipped" if beside else "product", "narrow"),
        _node("Exp", "narrow", "grown"),
        _up("grown", "again"),
        _node("Exp", "again", "twice"),
        _down("twice", "y"),
    ]
    result = _audited(tmp_path, steps, ("product", "twice"), rows, (_constant("w", *columns),))
    kernel = next(layer for layer in result.layers if "product" in layer.onnx_nodes)
    assert "Cast" in kernel.name
    if beside:
        assert result.violations == ()
        assert nodes(result)["product"].precision == "fp32"
        return
    (violation,) = result.violations
    assert (violation.node, violation.got) == ("product", "fp16")
    assert violation.messages == (Note.of(NoteKind.WEIGHT_NARROWED, stated="fp32", found="fp16"),)


@needs_rtx
def test_what_is_computed_of_constants_is_not_told_as_narrow(tmp_path: Path) -> None:
    steps = [
        _node("Exp", "c", "e"),
        _node("Sin", "e", "waves"),
        _down("waves", "narrow"),
        _node("Add", "x narrow", "y"),
    ]
    result = _audited(tmp_path, steps, ("e", "waves"), constants=(_constant("c", 4, 64),))
    assert result.violations == ()
    assert {each.node for each in result.unproven} == {"e", "waves"}
    assert nodes(result)["waves"].notes == (Note.of(NoteKind.STEP_NOT_SHOWN, types=["fp16"]),)


@needs_rtx
def test_a_step_whose_node_no_kernel_names_was_not_folded(tmp_path: Path) -> None:
    steps = [_node("Sin", "x", "s"), _up("s", "wide"), _node("Elu", "wide", "bent"), _down("bent", "narrow")]
    result = _audited(tmp_path, [*steps, _node("Cos", "narrow", "y")], ("bent",))
    assert verdict(result, "bent") == ("unknown", "unknown")
    assert nodes(result)["bent"].notes == (Note.of(NoteKind.STEP_UNNAMED, count=1),)
    assert [each.got for each in result.unproven] == ["unproven"]


@needs_rtx
def test_a_kernel_that_multiplies_tells_more_of_a_product_than_one_that_pads(tmp_path: Path) -> None:
    """A second channel is made for the convolution, in a kernel that bears its name and reads FP32."""
    steps = [
        _down("f", "cut"),
        _up("cut", "wide"),
        _node("Conv", "wide w", "product", kernel_shape=[3, 3]),
        _down("product", "narrow"),
        _node("Relu", "narrow", "y"),
    ]
    result = _audited(tmp_path, steps, ("product",), (1, 1, 76, 32), (_constant("w", 24, 1, 3, 3),))
    assert len(nodes(result)["product"].kernels) > 1
    assert {each.node: each.got for each in result.violations} == {"product": "fp16"}


@needs_rtx
def test_moving_values_breaks_no_wish(tmp_path: Path) -> None:
    """The casts around the movers cancel out: they move what they were given."""
    shape = numpy_helper.from_array(np.array([1, 16, 4, 32]), "shape")
    scale = numpy_helper.from_array(np.float16(0.2), "scale")
    steps = [
        _node("Sin", "x", "s"),
        _up("s", "wide"),
        _node("Reshape", "wide shape", "split"),
        _node("Transpose", "split", "turned", perm=[0, 2, 3, 1]),
        _down("turned", "narrow"),
        _node("Transpose", "x", "q", perm=[0, 2, 1, 3]),
        _node("MatMul", "q narrow", "scores"),
        _node("Mul", "scores scale", "scaled"),
        _node("Softmax", "scaled", "shares"),
        _node("MatMul", "shares q", "y"),
    ]
    result = _audited(tmp_path, steps, ("split", "turned"), (1, 16, 4, 32), (shape, scale))
    assert verdict(result, "split") == ("fp16", "exact")
    assert (result.violations, result.unproven) == ((), ())


def test_what_decides_is_stated_by_what_it_takes_and_what_holds_bodies_computes_nothing() -> None:
    def body(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}/y", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], [f"{name}/y"], f"{name}/node")], name, [], [out])

    steps = [
        _node("ReduceMax", "x", "most", keepdims=0),
        _node("Equal", "x most", "is_most"),
        _node("Greater", "most x0", "high"),
        _node("If", "high", "y", then_branch=body("then", "Exp"), else_branch=body("else", "Sin")),
    ]
    graph = helper.make_graph(
        steps,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("is_most", BOOL, [4]),
        ],
        [numpy_helper.from_array(np.float32(1), "x0")],
    )
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    sites = Sites(model)
    formats = {model.node_by_name["is_most"]: Format.FP32}
    infos = {info.name: info for info in node_infos(Decision(sites, formats, Format.FP32))}
    assert (infos["is_most"].declared, infos["high"].declared) == ("fp32", "fp16")
    assert [infos[name].compute for name in ("is_most", "y", "then/node")] == [True, False, True]


@pytest.mark.parametrize("op", ["Reshape", "If"])
def test_a_mover_that_no_kernel_names_leaves_nothing_unproven(op: str) -> None:
    value = (LayerTensor("v", "fp16", (4, 64)),)
    nameless = Layer("__mye7_myl0_0", "gemm", value, value, metadata="")
    named = Layer("__myl_Exp_myl0_1", "kgen", value, value, ("grown",), metadata="[ONNX Layer: grown]")
    infos = [NodeInfo("mover", op, (), False, "fp32"), NodeInfo("grown", "Exp", (), True, "fp16")]
    wide = audit(EngineLayers((nameless, named), "rtx", "build-log"), None, infos, fp32("mover"))
    assert verdict(wide, "mover") == ("unknown", "unknown")
    assert (wide.violations, wide.unproven) == ((), ())
