"""Packed weights of large models, made FP32 once for all inputs: beside ONNX Runtime's own kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, emulate
from halfwise.emulation.packed_weights import dequantised_weight, unpacked_weight
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.emulation.streamed import StreamedSession
from halfwise.emulation.unpacked_tensor import UnpackedTensor
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites
from tests.support.packed_products import K, N, kernel, product

Array = NDArray[Any]


def unpacked(model: onnx.ModelProto, fmt: Format | None = None) -> UnpackedTensor | None:
    held = load(model).graph.initializers
    weights = {}
    for name, value in held.items():
        assert value.const_value is not None
        weights[name] = Weight(name, value.const_value, fmt if name == "s" else None)
    return unpacked_weight(model.graph.node[0], weights)


CASES = [(4, 32, ""), (4, 16, "whole"), (4, 128, "real"), (8, 32, ""), (8, 64, "whole"), (2, 32, "")]


@pytest.mark.parametrize(("bits", "block", "zeros"), CASES)
def test_the_weight_is_what_the_kernel_multiplies_with(bits: int, block: int, zeros: str) -> None:
    """Rows of the identity give it, one number by 1 and the others by 0."""
    model = product(bits, block, zeros)
    found = unpacked(model)
    assert found is not None
    wanted = kernel(model, "p", np.eye(K, dtype=np.float32)[None])[0].T
    apart = 1e-7 if zeros == "real" else 0.0  # the kernel takes z s from v s there
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0.0, atol=apart)
    make = found.begin()
    for part in ((slice(5, 301),), (slice(5, 301), slice(7, 130))):
        into = np.full(wanted[part].shape, np.nan, np.float32)
        make(part, into)
        np.testing.assert_allclose(into, wanted[part], rtol=0.0, atol=apart)


def test_scales_are_in_their_format() -> None:
    model = product()
    found, narrow = unpacked(model), unpacked(model, Format.FP16)
    assert found is not None and narrow is not None and found.recipe != narrow.recipe
    scales = numpy_helper.to_array(model.graph.initializer[1])
    ratio = np.repeat(scales.astype(np.float16).astype(np.float32) / scales, 32).reshape(N, K)
    np.testing.assert_allclose(narrow.numpy(), found.numpy() * ratio, rtol=1e-6)


def test_what_the_runtime_orders_otherwise_stays_with_its_kernel() -> None:
    assert unpacked(product(columns=528)) is None  # ends within a block
    assert unpacked(product(order=True)) is None
    small = product()
    small.graph.node[0].attribute[0].i = 0  # one of its sizes
    assert unpacked(small) is None


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)


def inputs(*rows: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(9)
    return [{"x": rng.standard_normal((2, each, K)).astype(np.float32)} for each in rows]


@pytest.mark.parametrize("bias", [False, True])
def test_a_large_model_gives_what_the_kernel_gives_for_every_input(bias: bool, streams: None) -> None:
    model, feeds = product(4, 32, "whole", bias=bias), inputs(3, 1, 7)
    session = Emulator().session(Assignment(Sites(load(model)), {}))
    assert isinstance(session, StreamedSession)
    for feed, answer in zip(feeds, session.answers(feeds), strict=True):
        assert not isinstance(answer, Exception)
        np.testing.assert_allclose(answer["y"], kernel(model, "y", feed["x"]), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_node_by_node_it_is_the_same_and_a_changed_input_is_heeded(bias: bool, streams: None) -> None:
    model, feeds = product(bias=bias), inputs(3, 4)
    emulator = Emulator()
    stepper, assignment = Stepper(emulator), Assignment(Sites(load(model)), {})
    beside: list[Store] = []
    stores = [Store(emulator, assignment, feed, beside) for feed in feeds]
    node = assignment.sites.model.nodes[0]
    for feed, store in zip(feeds, stores, strict=True):
        (found,) = stepper.run(node, assignment, store).values()
        np.testing.assert_allclose(found, kernel(model, "p", feed["x"]), rtol=2e-5, atol=1e-4)
    value = node.inputs[0]
    assert value is not None
    other = 2 * feeds[0]["x"]
    (found,) = stepper.run(node, assignment, stores[0], {value: other}).values()
    np.testing.assert_allclose(found, kernel(model, "p", other), rtol=2e-5, atol=1e-4)


def dequantised(kind: int, axis: int, *, zeros: bool, block: int = 32) -> onnx.ModelProto:
    """Rows by a table in blocks, turned where these lie along its rows."""
    rng, dtype = np.random.default_rng(kind + axis), helper.tensor_dtype_to_np_dtype(kind)
    signed = kind in (TensorProto.INT4, TensorProto.INT8)
    bits = 4 if kind in (TensorProto.INT4, TensorProto.UINT4) else 8
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    shape = (N, K) if axis == 1 else (K, N)
    scales = tuple(size // block if at == axis else size for at, size in enumerate(shape))
    held = [
        numpy_helper.from_array(rng.integers(low, high, shape).astype(dtype), "q"),
        numpy_helper.from_array(rng.normal(0.0, 0.01, scales).astype(np.float32), "s"),
    ]
    if zeros:
        held.append(numpy_helper.from_array(rng.integers(low, high, scales).astype(dtype), "z"))
    nodes = [
        helper.make_node("DequantizeLinear", [each.name for each in held], ["w"], "table", axis=axis, block_size=block),
        *([helper.make_node("Transpose", ["w"], ["t"], "turned", perm=[1, 0])] if axis == 1 else []),
        helper.make_node("MatMul", ["x", "t" if axis == 1 else "w"], ["p"], "product"),
        helper.make_node("Sigmoid", ["p"], ["y"], "sigmoid"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", N])],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


KINDS = [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_in_blocks_is_what_the_kernel_makes_of_it(kind: int, axis: int, zeros: bool) -> None:
    model = dequantised(kind, axis, zeros=zeros)
    held = load(model).graph.initializers.items()
    weights = {name: Weight(name, value.const_value, None) for name, value in held if value.const_value is not None}
    found = dequantised_weight(model.graph.node[0], weights)
    assert found is not None
    wanted = kernel(model, "w", np.zeros((1, 1, K), np.float32))
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert np.abs(wanted).max() <= found.most
    make, part = found.begin(), (slice(3, 70), slice(5, 130))
    into = np.full(wanted[part].shape, np.nan, np.float32)
    make(part, into)
    np.testing.assert_array_equal(into, wanted[part])
    places = np.array([[7, -1], [7, 0]])
    np.testing.assert_array_equal(RoundedWeights().picked(Weight("w", found, Format.FP32), places), wanted[places])


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("kind", "axis"), [(TensorProto.INT4, 0), (TensorProto.UINT4, 1), (TensorProto.INT8, 1)])
def test_a_large_model_with_tables_in_blocks_gives_what_the_whole_gives(
    kind: int, axis: int, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = dequantised(kind, axis, zeros=True), inputs(3, 1, 7)
    sites = Sites(load(model))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    whole = Emulator().session(assignment)
    assert not isinstance(whole, StreamedSession)
    wanted = list(whole.answers(feeds))
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 0)
    emulator = Emulator()
    found = emulator.session(assignment)
    assert isinstance(found, StreamedSession)
    written = emulator.write(assignment)
    assert not any(tensor.raw_data for tensor in written.proto.graph.initializer)  # of 4 bits, they lie apart
    for given, right in zip(found.answers(feeds), wanted, strict=True):
        assert not isinstance(given, Exception) and not isinstance(right, Exception)
        apart = np.linalg.norm(given["y"] - right["y"]) / np.linalg.norm(right["y"])
        assert apart < (2e-5 if narrow else 1e-6)  # sums in another order are rounded otherwise here and there
    stepper, beside = Stepper(Emulator()), list[Store]()
    stores = [Store(stepper.emulator, assignment, feed, beside) for feed in feeds]
    table, *_ = assignment.sites.model.nodes
    tables = [next(iter(stepper.run(table, assignment, store).values())) for store in stores]
    assert tables[0] is tables[1] is tables[2]
    if narrow:
        scales = numpy_helper.to_array(model.graph.initializer[1]).astype(np.float16).astype(np.float32)
        model.graph.initializer[1].CopyFrom(numpy_helper.from_array(scales, "s"))
    dense = kernel(model, "w", feeds[0]["x"])
    np.testing.assert_array_equal(tables[0], dense.astype(np.float16).astype(np.float32) if narrow else dense)


def test_a_model_written_whole_holds_its_numbers_of_4_bits(streams: None) -> None:
    model = dequantised(TensorProto.INT4, 0, zeros=False)
    del model.graph.node[0].attribute[:]
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.float32(0.02), "s"))
    feeds = inputs(2)
    (found,) = Emulator().session(Assignment(Sites(load(model)), {})).answers(feeds)
    assert not isinstance(found, Exception)
    np.testing.assert_allclose(found["y"], kernel(model, "y", feeds[0]["x"]), rtol=2e-3, atol=1e-5)
    whole = emulate(Assignment(Sites(load(model)), {}))
    assert whole.graph.initializer[0].raw_data or whole.graph.initializer[0].int32_data


@pytest.mark.parametrize("packed", [product(), dequantised(TensorProto.INT4, 1, zeros=False)])
def test_whether_a_model_is_large_goes_by_its_weights_in_fp32(
    packed: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(packed)
    assert model.unpacked_bytes - model.emulated_bytes == 4 * N * K
    monkeypatch.setattr("halfwise.emulation.emulate.LARGE_BYTES", 4 * N * K)
    assert model.emulated_bytes < 4 * N * K
    assert Emulator().streams(model)


def test_a_weight_that_a_body_reads_stays(streams: None) -> None:
    """The scales of a packed weight are read in a branch, too."""
    model = product()
    graph = model.graph
    scales = graph.initializer[1]
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["s"], [f"{name}_sum"], keepdims=0)],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_sum", TensorProto.FLOAT, [])],
        )
        for name, op in (("then", "ReduceSum"), ("else", "ReduceMax"))
    }
    graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    graph.node.append(helper.make_node("If", ["yes"], ["sum"], "branch", **branches))
    graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, []))
    (found,) = Emulator().session(Assignment(Sites(load(model)), {})).answers(inputs(2))
    assert not isinstance(found, Exception), found
    np.testing.assert_allclose(found["sum"], numpy_helper.to_array(scales).sum(), rtol=1e-4)
