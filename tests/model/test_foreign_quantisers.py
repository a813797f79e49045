"""NVIDIA's ModelOpt exports FP8 with ONNX's operators under its own domain, and zero points as lists of one."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from halfwise.core.errors import InputError
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load_to_run
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.scan import scan
from halfwise.verbs.scan.result import ModelFacts
from halfwise.verbs.trace import trace
from tests.models.build import model, node, value, weight
from tests.models.quantised import whole

STEP = np.float32(0.02)


def exported(domain: str = "trt", op: str = "QuantizeLinear") -> onnx.ModelProto:
    held = [weight("s", STEP), helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, (1,), [0.0])]
    held += [whole("w", np.arange(-8, 8).reshape(4, 4), TensorProto.FLOAT8E4M3FN), weight("t", np.float32(0.25))]
    nodes = [
        node(op, "x s z", "q", domain=domain),
        node("DequantizeLinear", "q s", "d", domain=domain),
        node("DequantizeLinear", "w t", "v", domain=domain),
        node("MatMul", "d v", "y"),
    ]
    given = model(nodes, [value("x", shape=(2, 4))], [value("y", shape=(2, 4))], held, opset=20, ir_version=10)
    given.opset_import.append(helper.make_opsetid("trt", 1))
    return given


@pytest.mark.parametrize("as_file", [True, False])
def test_they_are_read_as_onnxs_own(as_file: bool, tmp_path: Path) -> None:
    proto = exported()
    onnx.save(proto, tmp_path / "model.onnx")
    given = load_to_run(tmp_path / "model.onnx" if as_file else proto)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    quantised = (x / STEP).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * STEP
    weights = np.arange(-8, 8).reshape(4, 4).astype(np.float32) * np.float32(0.25)
    answer = Emulator().session(Assignment(Sites(given), {})).run({"x": x})["y"]
    assert np.allclose(answer, quantised @ weights, rtol=1e-5, atol=1e-5)
    assert [each.domain for each in proto.graph.node] == ["trt", "trt", "trt", ""]


def test_the_type_that_the_exporter_wrote_beside_them_is_not_believed() -> None:
    """It calls FP8 UINT8, for which ONNX has no such operator: each node by itself would not load."""
    proto = exported()
    proto.graph.value_info.append(value("q", TensorProto.UINT8, shape=(2, 4)))
    proto.graph.value_info.append(value("d", shape=(2, 4)))
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    traced = trace(proto, [{"x": x}])
    seen = next(each for each in traced.tensors if each.name == "d")
    assert (
        max(-seen.min, seen.max) == np.abs((x / STEP).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * STEP).max()
    )


def test_operators_of_tensorrts_own_stay_unknown() -> None:
    with pytest.raises(
        InputError, match="no operator TRT_MXFP8DynamicQuantize of trt; give the model before it was quantised"
    ):
        load_to_run(exported(op="TRT_MXFP8DynamicQuantize"))


def packed(kind: int, op: str) -> onnx.ModelProto:
    """What reads a weight of a type for which the runtime may have no kernel, by a scale that is dequantised itself."""
    held = [whole("w", np.ones((2, 4), np.int64), kind), weight("t", np.float32(0.25))]
    held.append(helper.make_tensor("s8", TensorProto.FLOAT8E4M3FN, (), [2.0]))
    unpack = (
        node("Cast", "w", "v", name="unpack", to=TensorProto.FLOAT)
        if op == "Cast"
        else node("DequantizeLinear", "w s", "v", name="unpack")
    )
    nodes = [node("DequantizeLinear", "s8 t", "s"), unpack, node("MatMul", "x v", "p"), node("Mul", "p s", "y")]
    ends = [value("x", shape=(2, 2))], [value("y", shape=(2, 4))]
    return model(nodes, *ends, held, opset=24, ir_version=11)


RARE = [
    (TensorProto.FLOAT4E2M1, "DequantizeLinear"),
    (TensorProto.FLOAT4E2M1, "Cast"),
    (TensorProto.FLOAT8E8M0, "Cast"),
]


@pytest.mark.parametrize(("kind", "op"), RARE)
def test_weights_without_a_kernel_are_refused_before_anything_runs(kind: int, op: str, tmp_path: Path) -> None:
    proto = packed(kind, op)
    onnx.save(proto, tmp_path / "model.onnx")
    try:
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        named = TensorProto.DataType.Name(kind)
        with pytest.raises(InputError, match=rf"'unpack': .* {op} for {named}; .* quantised"):
            load_to_run(proto)
        found = scan(tmp_path / "model.onnx")
        (told,) = [each for each in found.findings if each.rule == "HW303"]
        assert "before it was quantised" in told.remedy
        assert isinstance(found.facts, ModelFacts) and not found.facts.next
    else:
        load_to_run(proto)


@pytest.mark.parametrize("stored", ["outside", "inside", "constant"])
def test_those_that_a_body_reads_are_refused_before_anything_runs(stored: str, tmp_path: Path) -> None:
    """A decoder whose layers are chosen by an If was looked at for seconds first."""
    held = {each.name: each for each in packed(*RARE[0]).graph.initializer}
    inner = {"outside": [], "inside": list(held.values()), "constant": []}[stored]
    constants = [node("Constant", "", name, value=each) for name, each in held.items() if stored == "constant"]
    nodes = [node("DequantizeLinear", "s8 t", "s"), node("DequantizeLinear", "w s", "v", name="unpack")]
    made = helper.make_graph([*constants, *nodes, node("MatMul", "x v", "p")], "a", [], [value("p")], inner)
    other = helper.make_graph([node("Identity", "x", "p2")], "b", [], [value("p2")])
    chosen = node("If", "c", "y", then_branch=made, else_branch=other)
    ends = [value("x", shape=(2, 2)), value("c", TensorProto.BOOL, shape=())], [value("y")]
    proto = model([chosen], *ends, list(held.values()) if stored == "outside" else [], opset=24, ir_version=11)
    onnx.save(proto, tmp_path / "model.onnx")
    try:
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        with pytest.raises(InputError, match=r"'unpack': .* FLOAT4E2M1; .* quantised"):
            load_to_run(proto)
        found = scan(tmp_path / "model.onnx")
        assert isinstance(found.facts, ModelFacts) and not found.facts.next
    else:
        load_to_run(proto)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.FLOAT8E4M3FN])
def test_those_with_a_kernel_are_read(kind: int) -> None:
    assert load_to_run(packed(kind, "DequantizeLinear")).nodes


def test_no_part_in_front_of_tensorrts_quantisers_is_of_use() -> None:
    with pytest.raises(InputError, match=r"MXFP8DequantizeLinear of trt; .* quantised"):
        load_to_run(exported(op="TRT_MXFP8DequantizeLinear"))
