"""Quantised weights that TensorRT does not dequantise are stored as floats, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.own_operators import read_by
from tests.models.build import model, node, value, weight
from tests.models.quantised import layers, quantised, whole
from tests.support.deployed import needs_rtx
from tests.support.messages import kinds, only

Array = NDArray[Any]
RTX = Target.parse("rtx-1.7")
X = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)


def product(
    kind: int, least: int, most: int, zero: Array | None = None, scale: Array | None = None, **attributes: int
) -> onnx.ModelProto:
    """x times a weight that is quantised to a type, with one zero point for each column or block."""
    rng = np.random.default_rng(2)
    scales = np.geomspace(0.01, 0.1, 16).astype(np.float32) if scale is None else scale
    held = [whole("w", rng.integers(least, most, (16, 16)), kind), weight("s", scales)]
    if zero is not None:
        held.append(whole("z", zero, kind))
    names = "w s z" if zero is not None else "w s"
    nodes = [node("DequantizeLinear", names, "v", **(attributes or {"axis": 1})), node("MatMul", "x v", "y")]
    return model(nodes, [value("x", shape=(4, 16))], [value("y", shape=(4, 16))], held, opset=21, ir_version=10)


BLOCKS = np.geomspace(0.01, 0.1, 64).astype(np.float32).reshape(4, 16)
UNREAD = {
    "bytes": product(TensorProto.UINT8, 0, 256),
    "bytes about 128": product(TensorProto.UINT8, 0, 256, np.full(16, 128)),
    "off zero": product(TensorProto.INT8, -128, 128, np.arange(16) - 8),
    "off zero, one": product(TensorProto.INT8, -128, 128, np.array(3), np.float32(0.05)),
    "four bits": product(TensorProto.UINT4, 0, 16, np.arange(16)),
    "short": product(TensorProto.UINT4, 0, 16, np.arange(48).reshape(3, 16) % 16, BLOCKS[:3], axis=0, block_size=6),
    "rows": product(
        TensorProto.INT4, -8, 8, np.arange(64).reshape(16, 4) % 16 - 8, BLOCKS.T.copy(), axis=-1, block_size=4
    ),
}


def answers(given: Model) -> Array:
    return np.asarray(ReferenceEvaluator(typed_proto(Assignment(Sites(given), {}))).run(None, {"x": X})[0])


@pytest.mark.parametrize("name", UNREAD)
def test_weights_that_are_not_read_are_stored_as_floats(name: str) -> None:
    given = load(UNREAD[name])
    told, notes = read_by(RTX, given)
    assert [each.op_type for each in told.nodes] == ["MatMul"]
    note = only(notes, NoteKind.QUANTISED_STORED)
    assert (note.values["node"], note.values["count"]) == ("n_v", 1)
    assert np.array_equal(answers(told), answers(given))


@pytest.mark.parametrize("proto", [product(TensorProto.INT8, -128, 128), product(TensorProto.INT4, -8, 8)])
def test_weights_that_are_read_stay_small(proto: onnx.ModelProto) -> None:
    given = load(proto)
    assert read_by(RTX, given) == (given, ())


def test_weights_stay_small_where_a_quantiser_keeps_the_target_from_reading_the_model() -> None:
    proto = quantised(layers(1))
    for held in proto.graph.initializer:
        if held.name == "zero":
            held.CopyFrom(whole("zero", np.array(5), TensorProto.INT8))
        elif held.name == "w0":
            held.CopyFrom(whole("w0", np.full((16, 16), 9), TensorProto.UINT8))
    given = load(proto)
    told, notes = read_by(RTX, given)
    assert (told, kinds(notes)) == (given, [NoteKind.QUANTISED_NOT_READ])


@pytest.mark.parametrize(
    ("number", "scale"), [(127, 0.01), ([[5, -7]], 2e-8), ([[3, 4]], [0.5, 0.0]), ([[3, 4]], [0.5, -0.25])]
)
def test_single_numbers_and_scales_that_are_refused_are_stored_as_floats(number: Any, scale: Any) -> None:
    held = [whole("w", np.array(number), TensorProto.INT8), weight("s", np.array(scale, np.float32))]
    nodes = [node("DequantizeLinear", "w s", "v"), node("Mul", "x v", "y")]
    given = load(model(nodes, [value("x", shape=(4, 2))], [value("y", shape=(4, 2))], held, opset=21, ir_version=10))
    told, notes = read_by(RTX, given)
    assert ([each.op_type for each in told.nodes], notes) == (["Mul"], ())
    stored = told.nodes[0].inputs[1]
    assert stored is not None and stored.const_value is not None
    wanted = np.array(number, np.float32) * np.array(scale, np.float32)
    assert np.array_equal(stored.const_value.numpy(), wanted)


def casts(kind: int) -> onnx.ModelProto:
    """As an exporter writes what torchao quantised: a cast of 8-bit floats, times the scales."""
    numbers = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)
    held = [onnx.helper.make_tensor("w", kind, [16, 16], numbers.ravel().tolist())]
    held.append(weight("s", np.geomspace(0.01, 0.1, 16).astype(np.float32)))
    nodes = [node("Cast", "w", "c", to=TensorProto.FLOAT), node("Mul", "c s", "v"), node("MatMul", "x v", "y")]
    return model(nodes, [value("x", shape=(4, 16))], [value("y", shape=(4, 16))], held, opset=21, ir_version=10)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_casts_of_8_bit_floats_are_stored_as_floats(kind: int) -> None:
    given = load(casts(kind))
    told, notes = read_by(RTX, given)
    assert [each.op_type for each in told.nodes] == ["Mul", "MatMul"]
    assert only(notes, NoteKind.QUANTISED_STORED).values["node"] == "n_c"
    assert np.array_equal(answers(told), answers(given))
    assert read_by(Target.parse("onnx"), given) == (given, ())


@needs_rtx
@pytest.mark.parametrize("name", ["bytes about 128", "short", "a cast"])
def test_what_is_stored_as_floats_is_built(name: str) -> None:
    """NVIDIA's compiler refuses it as given."""
    given = casts(TensorProto.FLOAT8E4M3FN) if name == "a cast" else UNREAD[name]
    result = fix(given, [{"x": X}, {"x": X[::-1].copy()}], target="rtx-1.7")
    assert result.met
    assert NoteKind.COMPILED_ALL_NARROW in kinds(result.notes)
