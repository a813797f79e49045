"""Weights that are given by memory: read where they lie, and of a table no more than what is picked."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.core.freed_memory import own_bytes
from halfwise.emulation import given_weights, picked_weights
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.given_weights import declared_weight
from halfwise.emulation.ort import Session
from halfwise.model.fp32_model import fp32_model
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight
from tests.support.own_process import in_own_process

RNG = np.random.default_rng(4)


def _product(rows: int) -> onnx.ModelProto:
    made = model([node("MatMul", "x w", "y")], [value("x", shape=[2, rows])], [value("y", shape=[2, 256])])
    made.graph.initializer.append(declared_weight("w", onnx.TensorProto.FLOAT, (rows, 256)))
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_a_large_model_s_weights_are_not_copied() -> None:
    grown, right = in_own_process(grown_by_a_session)
    assert grown < 1 / 4
    assert right


def grown_by_a_session() -> tuple[float, bool]:
    """By how much of its weight; and whether its answer is right."""
    held = RNG.standard_normal((1 << 16, 256), dtype=np.float32)
    feed = {"x": RNG.standard_normal((2, 1 << 16), dtype=np.float32)}
    before = own_bytes()
    session = Session(_product(1 << 16), {"w": held}, lean=True)
    grown = (own_bytes() - before) / held.nbytes
    return grown, np.allclose(session.run(feed)["y"], feed["x"] @ held, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("shift", [0, 1, 2, 4])
def test_answers_are_those_of_a_copy(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the weight lies: a file may have it at any byte."""
    values = RNG.standard_normal((512, 256), dtype=np.float32)
    memory = np.zeros(values.nbytes + shift, np.uint8)
    held = memory[shift:].view(np.uint8).data.cast("B")
    array: NDArray[np.float32] = np.frombuffer(held, np.float32).reshape(values.shape)
    memory[shift:] = values.reshape(-1).view(np.uint8)
    feed = {"x": RNG.standard_normal((2, 512), dtype=np.float32)}
    shared = Session(_product(512), {"w": array}, lean=True).run(feed)["y"]
    monkeypatch.setattr(given_weights, "_shares", lambda: False)
    assert np.array_equal(shared, Session(_product(512), {"w": array}, lean=True).run(feed)["y"])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_weights_in_8_bit_floats_are_written_where_they_cannot_be_given(name: str) -> None:
    stored = RNG.standard_normal((32, 256)).astype(getattr(ml_dtypes, name))
    nodes = [node("DequantizeLinear", "q s", "w"), node("MatMul", "x w", "y")]
    ends = [value("x", shape=[2, 32])], [value("y", shape=[2, 256])]
    given = model(nodes, *ends, [weight("q", stored), weight("s", np.float32(0.5))], opset=19, ir_version=9)
    feed = {"x": RNG.standard_normal((2, 32), dtype=np.float32)}
    answer = Emulator().session(Assignment(Sites(load(given)), {})).run(feed)["y"]
    assert np.allclose(answer, feed["x"] @ (stored.astype(np.float32) / 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", [np.float32, np.float16])
@pytest.mark.parametrize("largest", [3.0, 1e5])
def test_picked_rows_are_those_of_the_rounded_table(
    stored: type, largest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that has values beyond the range the whole is made: they are clamped."""
    table = RNG.standard_normal((50, 16)).astype(stored)
    with np.errstate(over="ignore"):
        table[7, 3] = largest
    proto = model(
        [node("Gather", "table i", "g"), node("Mul", "g g", "y")],
        [value("i", onnx.TensorProto.INT64, [3])],
        [value("y", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(stored)), [3, 16])],
        [weight("table", table)],
    )
    sites = Sites(fp32_model(load(proto)))
    feed = {"i": np.array([7, 0, 49])}
    for assignment in (Assignment.all_narrow(sites), Assignment(sites, {})):
        whole = Emulator().session(assignment).run(feed)["y"]
        with monkeypatch.context() as patch:
            patch.setattr(picked_weights, "LARGE_BYTES", 1)
            assert np.array_equal(Emulator().session(assignment).run(feed)["y"], whole, equal_nan=True)


def test_a_table_that_is_only_picked_from_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picked_weights, "LARGE_BYTES", 1)
    table = RNG.standard_normal((50, 16)).astype(np.float32)
    ends = [value("i", onnx.TensorProto.INT64, [3])], [value("y", shape=[3, 50])]
    nodes = [node("Gather", "table i", "g"), node("MatMul", "g other", "y")]
    alone = model(nodes, *ends, [weight("table", table), weight("other", np.ascontiguousarray(table.T))])
    nodes = [node("Gather", "table i", "g"), node("Transpose", "table", "t", perm=[1, 0]), node("MatMul", "g t", "y")]
    tied = model(nodes, *ends, [weight("table", table)])
    for proto, rounds in ((alone, 1), (tied, 1)):
        emulator = Emulator()
        written = emulator.write(Assignment.all_narrow(Sites(load(proto))))
        _, weights = picked_weights.with_picked(written.proto, written.weights, emulator.weights)
        assert [each.fmt for each in weights].count(Format.FP16) == rounds
