"""Packed weights of large models, made FP32 once for all inputs: beside ONNX Runtime's own kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.packed_weights import UnpackedTensor, unpacked_weight
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.emulation.streamed import StreamedSession
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites

Array = NDArray[Any]
N, K = 544, 512  # just over a megabyte


def product(
    bits: int = 4, block: int = 32, zeros: str = "", *, bias: bool = False, columns: int = K, order: bool = False
) -> onnx.ModelProto:
    """Rows by a packed weight, and the sigmoid of the result."""
    rng = np.random.default_rng(bits + block)
    blocks = -(-columns // block)
    held: dict[str, Array] = {
        "b": rng.integers(0, 256, (N, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.normal(0.0, 0.01, N * blocks).astype(np.float32),
    }
    if zeros == "whole":
        held["z"] = rng.integers(0, 256, N * (-(-blocks * bits // 8)), dtype=np.uint8)
    elif zeros:
        held["z"] = rng.uniform(0, 1 << bits, N * blocks).astype(np.float32)
    if order:
        held["g"] = (np.arange(columns) // block).astype(np.int32)
    if bias:
        held["bias"] = rng.standard_normal(N).astype(np.float32)
    names = ["x", "b", "s", "z" if zeros else "", "g" if order else "", "bias" if bias else ""]
    while not names[-1]:
        names.pop()
    nodes = [
        helper.make_node(
            "MatMulNBits", names, ["p"], "product", domain="com.microsoft", N=N, K=columns, bits=bits, block_size=block
        ),
        helper.make_node("Sigmoid", ["p"], ["y"], "sigmoid"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", N])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def kernel(model: onnx.ModelProto, output: str, x: Array) -> Array:
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    asked.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    session = ort.InferenceSession(asked.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run([output], {"x": x})[0])


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
    small.graph.node[0].attribute[0].i = 0  # N
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
