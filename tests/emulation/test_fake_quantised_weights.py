"""Weights in FP32 behind QuantizeLinear and DequantizeLinear: beside ONNX Runtime's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.kept_walks import identity_of
from halfwise.emulation.packed_weights import with_unpacked
from halfwise.emulation.quantised_tensor import quantised_weight
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.emulation.streamed import StreamedSession
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites
from tests.support.packed_products import kernel

Array = NDArray[Any]
FP8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
KINDS = [
    (TensorProto.INT8, (512, 544), 1),
    (TensorProto.INT8, (512, 544), 0),
    (TensorProto.UINT8, (512, 544), None),
    (TensorProto.UINT8, (512, 544), -1),
    (TensorProto.FLOAT8E4M3FN, (512, 544), None),
    (TensorProto.FLOAT8E5M2, (512, 544), 1),
    (TensorProto.INT8, (96, 320, 3, 3), 0),
    (TensorProto.INT8, (8, 128, 272), 2),
]
IDS = [f"{TensorProto.DataType.Name(kind)}-{len(shape)}-{axis}" for kind, shape, axis in KINDS]


def quantised(kind: int, shape: tuple[int, ...], axis: int | None) -> onnx.ModelProto:
    """The table behind a sum with an input; some numbers lie beyond the range, some half way between two steps."""
    rng, dtype = np.random.default_rng(kind), helper.tensor_dtype_to_np_dtype(kind)
    many = () if axis is None else (shape[axis],)
    table = rng.standard_normal(shape).astype(np.float32)
    table.reshape(-1)[:8] = 0.125, 0.375, -0.125, -0.375, 1e4, -1e4, 300.0, 0.0
    scales = (
        np.full(many, 0.25, np.float32) if kind in FP8 else rng.choice([0.25, 0.02, 0.013], many).astype(np.float32)
    )
    zeros = np.zeros(many) if kind in FP8 else rng.integers(0, 9, many)
    held = [
        numpy_helper.from_array(table, "v"),
        numpy_helper.from_array(scales, "s"),
        numpy_helper.from_array(zeros.astype(dtype), "z"),
    ]
    stated = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["v", "s", "z"], ["q"], "narrow", **stated),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], "wide", **stated),
        helper.make_node("Add", ["x", "w"], ["y"], "sum"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def weights_of(model: onnx.ModelProto) -> dict[str, Weight]:
    held = load(model).graph.initializers.items()
    return {name: Weight(name, value.const_value, None) for name, value in held if value.const_value is not None}


@pytest.mark.parametrize(("kind", "shape", "axis"), KINDS, ids=IDS)
def test_the_numbers_are_what_the_kernel_makes(kind: int, shape: tuple[int, ...], axis: int | None) -> None:
    model = quantised(kind, shape, axis)
    found = quantised_weight(model.graph.node[0], weights_of(model))
    assert found is not None
    made = found.numpy()
    assert made.dtype == helper.tensor_dtype_to_np_dtype(kind)
    if kind in FP8:  # ONNX Runtime hands none to NumPy
        wide, zero = made.astype(np.float32) * np.float32(0.25), np.zeros(1, np.float32)
        np.testing.assert_array_equal(wide, kernel(model, "w", zero))
    else:
        np.testing.assert_array_equal(made, kernel(model, "q", np.zeros(1, np.float32)))


def test_a_weight_in_fp16_is_rounded_before() -> None:
    model = quantised(TensorProto.INT8, (512, 544), 1)
    held = weights_of(model)
    tensor = held["v"].tensor
    narrow = quantised_weight(model.graph.node[0], {**held, "v": Weight("v", tensor, Format.FP16)})
    plain = quantised_weight(model.graph.node[0], held)
    assert narrow is not None and plain is not None and narrow.recipe != plain.recipe
    rounded = np.clip(tensor.numpy(), -65504, 65504).astype(np.float16).astype(np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(rounded, "v"))
    np.testing.assert_array_equal(narrow.numpy(), kernel(model, "q", np.zeros(1, np.float32)))


def test_the_same_weight_is_the_same_object() -> None:
    model = quantised(TensorProto.INT8, (512, 544), 1)
    held = weights_of(model)
    assert quantised_weight(model.graph.node[0], held) is quantised_weight(model.graph.node[0], held)


def test_others_stay_with_the_kernel() -> None:
    small = quantised(TensorProto.INT8, (64, 64), 1)
    assert quantised_weight(small.graph.node[0], weights_of(small)) is None
    inner = quantised(TensorProto.INT8, (8, 128, 272), 1)
    assert quantised_weight(inner.graph.node[0], weights_of(inner)) is None
    wraps = quantised(TensorProto.FLOAT8E4M3FN, (512, 544), None)
    wraps.graph.node[0].attribute.append(helper.make_attribute("saturate", 0))
    assert quantised_weight(wraps.graph.node[0], weights_of(wraps)) is None


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("kind", "shape", "axis"), KINDS, ids=IDS)
def test_a_large_model_gives_what_the_whole_gives(
    kind: int, shape: tuple[int, ...], axis: int | None, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = quantised(kind, shape, axis)
    sites = Sites(load(model))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    feeds: list[dict[str, Array]] = [{"x": np.float32(each).reshape(1)} for each in (0.0, 1.0)]
    wanted = list(Emulator().session(assignment).answers(feeds))
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    emulator = Emulator()
    session = emulator.session(assignment)
    assert isinstance(session, StreamedSession)
    for given, right in zip(session.answers(feeds), wanted, strict=True):
        assert not isinstance(given, Exception) and not isinstance(right, Exception)
        np.testing.assert_array_equal(given["y"], right["y"])


@pytest.mark.parametrize("narrow", [False, True])
def test_nothing_is_left_of_the_way_there(narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    sites = Sites(load(quantised(TensorProto.INT8, (512, 544), 1)))
    written = Emulator().write(Assignment.all_narrow(sites) if narrow else Assignment(sites, {}))
    proto, weights = with_unpacked(written.proto, written.weights)
    assert {node.op_type for node in proto.graph.node} <= {"Add", "Cast"}
    assert [weight.tensor.shape.numpy() for weight in weights] == [(512, 544)]
    assert identity_of(b"", [weights[0].tensor], {}) == ""  # of a weight in memory it is not known


def test_numbers_that_somebody_else_reads_are_made_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quantised(TensorProto.INT8, (512, 544), 1)
    model.graph.output.append(helper.make_tensor_value_info("q", TensorProto.INT8, None))
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    feed = {"x": np.zeros(1, np.float32)}
    (found,) = Emulator().session(Assignment(Sites(load(model)), {})).answers([feed])
    assert not isinstance(found, Exception)
    np.testing.assert_array_equal(found["q"], kernel(model, "q", feed["x"]))
    np.testing.assert_array_equal(found["y"], kernel(model, "y", feed["x"]))


@pytest.mark.parametrize("narrow", [False, True])
def test_node_by_node_they_are_made_once_for_all(narrow: bool) -> None:
    model = quantised(TensorProto.INT8, (512, 544), 1)
    sites = Sites(load(model))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    stepper, beside = Stepper(Emulator()), list[Store]()
    feeds = [{"x": np.float32(each).reshape(1)} for each in (0.0, 1.0)]
    stores = [Store(stepper.emulator, assignment, feed, beside) for feed in feeds]
    walks = [stepper.walk(store) for store in stores]
    for steps in zip(*walks, strict=True):
        made = [next(iter(step.outputs.values())) for step in steps]
        if steps[0].node.op_type != "Add":
            assert made[0] is made[1]
    wanted = list(Emulator().session(assignment).answers(feeds))
    last = [step.outputs for step in steps]
    for (found,), right in zip((each.values() for each in last), wanted, strict=True):
        assert not isinstance(right, Exception)
        np.testing.assert_array_equal(found, right["y"])


def test_zero_points_that_do_not_fit_are_told_in_the_runtimes_words(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quantised(TensorProto.INT8, (512, 544), 1)
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.zeros(3, np.int8), "z"))
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    session = Emulator().session(Assignment(Sites(load(model)), {}))
    (found,) = session.answers([{"x": np.zeros(1, np.float32)}])
    assert isinstance(found, InputError)
    assert str(found).startswith("at 'narrow': ONNX Runtime")
