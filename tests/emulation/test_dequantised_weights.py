"""Weights behind DequantizeLinear with a scale for each row, each column, or all: beside ONNX Runtime's own kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.packed_weights import dequantised_weight
from halfwise.emulation.streamed import StreamedSession
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites
from tests.support.packed_products import kernel

Array = NDArray[Any]
FP8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)


def table(kind: int, shape: tuple[int, ...], axis: int | None, *, zeros: bool = False) -> onnx.ModelProto:
    """The table itself, behind a sum with an input; a scale for each index along the axis."""
    rng, dtype = np.random.default_rng(kind), helper.tensor_dtype_to_np_dtype(kind)
    bits = 4 if kind in (TensorProto.INT4, TensorProto.UINT4) else 8
    low = 0 if kind in (TensorProto.UINT4, TensorProto.UINT8) else -(1 << (bits - 1))
    numbers = rng.integers(low, low + (1 << bits), shape)
    many = () if axis is None else (shape[axis],)
    scales = rng.uniform(0.01, 0.02, many).astype(np.float32)
    held = [
        numpy_helper.from_array(
            rng.normal(0.0, 20.0, shape).astype(dtype) if kind in FP8 else numbers.astype(dtype), "q"
        ),
        numpy_helper.from_array(scales, "s"),
    ]
    if zeros:
        held.append(numpy_helper.from_array(rng.integers(low, low + (1 << bits), many).astype(dtype), "z"))
    stated = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", [each.name for each in held], ["w"], "table", **stated),
        helper.make_node("Add", ["x", "w"], ["y"], "sum"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def found_in(model: onnx.ModelProto) -> Any:
    held = load(model).graph.initializers.items()
    weights = {name: Weight(name, value.const_value, None) for name, value in held if value.const_value is not None}
    return dequantised_weight(model.graph.node[0], weights)


KINDS = [
    (TensorProto.INT8, (512, 544), 1, False),
    (TensorProto.INT8, (512, 544), 0, False),
    (TensorProto.INT8, (512, 544), None, True),
    (TensorProto.UINT8, (512, 544), -1, True),
    (TensorProto.UINT8, (512, 544), 0, True),
    (TensorProto.INT4, (512, 544), 1, True),
    (TensorProto.UINT4, (512, 544), 0, True),
    (TensorProto.INT4, (512, 544), None, False),
    (TensorProto.FLOAT8E4M3FN, (512, 544), None, False),
    (TensorProto.FLOAT8E4M3FN, (512, 544), 1, False),
    (TensorProto.FLOAT8E5M2, (512, 544), 0, False),
    (TensorProto.INT8, (96, 320, 3, 3), 0, False),  # of a convolution
    (TensorProto.UINT8, (96, 320, 3, 3), None, True),
    (TensorProto.INT8, (8, 128, 272), 2, True),  # of experts
    (TensorProto.FLOAT8E4M3FN, (8, 128, 272), None, False),
]


@pytest.mark.parametrize(("kind", "shape", "axis", "zeros"), KINDS)
def test_it_is_what_the_kernel_makes(kind: int, shape: tuple[int, ...], axis: int | None, zeros: bool) -> None:
    model = table(kind, shape, axis, zeros=zeros)
    found = found_in(model)
    wanted = kernel(model, "w", np.zeros(1, np.float32))
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert np.abs(wanted).max() <= found.most
    part = (slice(3, 7),)
    into = np.full(wanted[part].shape, np.nan, np.float32)
    found.begin()(part, into)
    np.testing.assert_array_equal(into, wanted[part])
    weights, places = RoundedWeights(), np.array([[7, -1], [7, 0]])
    np.testing.assert_array_equal(weights.picked(Weight("w", found, Format.FP32), places), wanted[places])
    np.testing.assert_array_equal(weights.of(Weight("w", found, Format.FP16)), wanted.astype(np.float16))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((8, 128, 272), 1), ((8, 64, 272), None), ((1 << 19,), None)],
    ids=["neither rows nor columns", "small", "one axis"],
)
def test_others_stay_with_the_kernel(shape: tuple[int, ...], axis: int | None) -> None:
    assert found_in(table(TensorProto.INT8, shape, axis)) is None


def test_what_has_another_type_stays_with_the_kernel() -> None:
    model = table(TensorProto.INT8, (512, 544), None)
    model.opset_import[0].version = 23
    model.graph.node[0].attribute.append(helper.make_attribute("output_dtype", TensorProto.FLOAT16))
    assert found_in(model) is None


def test_what_is_not_finite_stays_so() -> None:
    model = table(TensorProto.FLOAT8E5M2, (512, 544), None)
    numbers = numpy_helper.to_array(model.graph.initializer[0]).copy()
    numbers[0, :2] = np.inf, np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(numbers, "q"))
    found = found_in(model)
    np.testing.assert_array_equal(found.numpy(), kernel(model, "w", np.zeros(1, np.float32)))
    assert np.isfinite(found.most)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("kind", "shape", "axis", "zeros"), KINDS)
def test_a_large_model_gives_what_the_whole_gives(
    kind: int,
    shape: tuple[int, ...],
    axis: int | None,
    zeros: bool,
    narrow: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = table(kind, shape, axis, zeros=zeros)
    sites = Sites(load(model))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    feeds: list[dict[str, Array]] = [{"x": np.float32(each).reshape(1)} for each in (0.0, 1.0)]
    wanted = list(Emulator().session(assignment).answers(feeds))
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    emulator = Emulator()
    session = emulator.session(assignment)
    assert isinstance(session, StreamedSession)
    large = [each for each in emulator.write(assignment).proto.graph.initializer if each.name == "q"]
    assert not any(each.raw_data for each in large)  # the model stays small
    for given, right in zip(session.answers(feeds), wanted, strict=True):
        assert not isinstance(given, Exception) and not isinstance(right, Exception)
        np.testing.assert_array_equal(given["y"], right["y"])


def test_the_same_weight_is_the_same_object_where_each_model_holds_its_scale() -> None:
    """What was made of it is kept by it."""
    model = load(table(TensorProto.FLOAT8E4M3FN, (512, 544), None))
    tensor = model.graph.initializers["q"].const_value
    assert tensor is not None
    node = ir.serde.serialize_node(model.nodes[0])
    made = []
    for scale in (0.5, 0.5, 0.25):
        held = ir.serde.deserialize_tensor(numpy_helper.from_array(np.float32(scale), "s"))
        made.append(dequantised_weight(node, {"q": Weight("q", tensor, None), "s": Weight("s", held, None)}))
    assert made[0] is made[1]
    assert made[0] is not made[2]


@pytest.mark.parametrize("slot", [1, 2])
def test_scales_or_zero_points_that_do_not_fit_are_told_in_the_runtimes_words(
    slot: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = table(TensorProto.INT8, (512, 544), 1, zeros=True)
    given = model.graph.initializer[slot]
    given.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(given)[:3], given.name))
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    session = Emulator().session(Assignment(Sites(load(model)), {}))
    (found,) = session.answers([{"x": np.zeros(1, np.float32)}])
    assert isinstance(found, InputError)
    assert str(found).startswith("at 'table': ONNX Runtime")
