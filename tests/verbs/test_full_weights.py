"""Large packed weights of 8 bits for TensorRT, which reads no blocks of them: FP32 that is made whenever it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.unpacked_tensor import UnpackedTensor
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.fix.own_operators import read_by
from tests.model.test_contrib import session
from tests.models.build import model, node, value
from tests.models.contrib_cases import DOMAIN
from tests.support.messages import only

Array = NDArray[Any]
ROWS, COLUMNS, BLOCK = 576, 512, 32
IDS = np.random.default_rng(1).integers(0, ROWS, (2, 5))


def tied(*, kind: int = TensorProto.UINT8, zeros: bool = False, rows: int = ROWS) -> onnx.ModelProto:
    """A table and the product with the same weight, of 8 bits; of INT4 and UINT4 the table alone."""
    rng, blocks = np.random.default_rng(2), (rows, COLUMNS // BLOCK)
    scales = rng.normal(0.0, 0.01, blocks).astype(np.float32)
    bytewise = kind == TensorProto.UINT8
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    low = -8 if kind == TensorProto.INT4 else 0
    span = (low, low + (256 if bytewise else 16))
    words, points = (rng.integers(*span, shape).astype(dtype) for shape in ((rows, COLUMNS), blocks))
    held = [numpy_helper.from_array(words, "w"), numpy_helper.from_array(scales, "s")]
    own: dict[str, Any] = {"domain": DOMAIN, "bits": 8 if bytewise else 4, "block_size": BLOCK}
    read = ["z"] if zeros else []
    held += [numpy_helper.from_array(points, "z")] if zeros else []
    nodes = [
        helper.make_node(
            "GatherBlockQuantized", ["w", "ids", "s", *read], ["g"], "t", gather_axis=0, quantize_axis=1, **own
        ),
        node("Tanh", "g", "h"),
    ]
    if bytewise:
        held.append(numpy_helper.from_array(words.reshape(rows, -1, BLOCK), "w3"))
        nodes.append(helper.make_node("MatMulNBits", ["h", "w3", "s", *read], ["y"], "m", K=COLUMNS, N=rows, **own))
    ends = [value("ids", TensorProto.INT64, ["n", 5])], [value("y" if bytewise else "h", shape=["n", 5, None])]
    made = model(nodes, *ends, held, opset=21, ir_version=10)
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def answer(read: Model) -> Array:
    (made,) = Emulator().session(Assignment(Sites(read), {})).run({"ids": IDS}).values()
    return made


CASES = [(TensorProto.UINT8, False), (TensorProto.UINT8, True), (TensorProto.INT4, True), (TensorProto.UINT4, False)]


@pytest.mark.parametrize(("kind", "zeros"), CASES)
def test_large_weights_are_made_when_they_are_read(kind: int, zeros: bool) -> None:
    proto = tied(kind=kind, zeros=zeros)
    read, notes = read_by(Target.parse("trt-8.6"), load(proto))
    floats = [each.const_value for each in read.graph.initializers.values() if each.dtype.name == "FLOAT"]
    assert floats and all(isinstance(each, UnpackedTensor) for each in floats)
    assert not any(each.domain for each in read.nodes)
    assert only(notes, NoteKind.QUANTISED_STORED).values["count"] == (2 if kind == TensorProto.UINT8 else 1)
    (exact,) = session(proto).run(None, {"ids": IDS})
    assert np.linalg.norm(answer(read) - exact) <= 2e-6 * np.linalg.norm(exact)  # in another order of sums


def test_small_ones_are_written_out() -> None:
    proto = tied(rows=48)
    read, _ = read_by(Target.parse("trt-11.0"), load(proto))
    assert not any(isinstance(each.const_value, UnpackedTensor) for each in read.graph.initializers.values())


def test_blocks_that_the_target_reads_stay_blocks() -> None:
    proto = tied(kind=TensorProto.INT4)
    read, _ = read_by(Target.parse("trt-11.0"), load(proto))
    assert "DequantizeLinear" in {each.op_type for each in read.nodes}
