"""Stored integers that are cast to floats, as torchao exports weights: TensorRT dequantises them only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.own_operators import read_by
from tests.model.test_contrib import session
from tests.models.build import model, node, value, weight
from tests.models.quantised import whole
from tests.support.deployed import needs_rtx
from tests.support.messages import kinds

Array = NDArray[Any]
RTX = Target.parse("rtx-1.7")
X = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
NUMBERS = np.random.default_rng(2).integers(-8, 8, (16, 16))
SCALES = np.geomspace(0.01, 0.1, 16).astype(np.float32)


def cast(
    moved: list[onnx.NodeProto], kind: int = TensorProto.INT8, shape: tuple[int, int] = (16, 16)
) -> onnx.ModelProto:
    """x times the numbers less 3, with a scale for each column. What `moved` holds goes from "w" to "q"."""
    nodes = [
        *moved,
        node("Cast", "q" if moved else "w", "f", to=TensorProto.FLOAT),
        node("Sub", "f zero", "g"),
        node("Mul", "g scale", "v"),
        node("MatMul", "x v", "y"),
    ]
    numbers = NUMBERS.reshape(shape) + 8 * (kind == TensorProto.UINT8)
    held = [whole("w", numbers, kind), weight("zero", np.float32(3)), weight("scale", SCALES)]
    held.append(helper.make_tensor("to", TensorProto.INT64, [2], [16, 16]))
    return model(nodes, [value("x", shape=(4, 16))], [value("y", shape=(4, 16))], held, opset=21, ir_version=10)


CASES = {
    "cast": (cast([]), NUMBERS),
    "four bits": (cast([], TensorProto.INT4), NUMBERS),
    "reshaped": (cast([node("Reshape", "w to", "q")], shape=(8, 32)), NUMBERS),
    "turned": (cast([node("Transpose", "w", "q", perm=[1, 0])]), NUMBERS.T),
}


def answers(given: onnx.ModelProto | Model) -> Array:
    proto = typed_proto(Assignment(Sites(given), {})) if isinstance(given, Model) else given
    return np.asarray(session(proto).run(None, {"x": X})[0])


@pytest.mark.parametrize("name", CASES)
def test_integers_that_are_cast_are_dequantised(name: str) -> None:
    proto, numbers = CASES[name]
    read, _ = read_by(RTX, load(proto))
    kept = next(each for each in read.graph.initializers.values() if each.name == "w")
    assert [each.op_type for each, _ in kept.uses()] == ["DequantizeLinear"]
    assert np.array_equal(answers(read), answers(proto))
    exact = X.astype(np.float64) @ ((numbers - 3.0) * SCALES)
    assert np.linalg.norm(answers(read) - exact) <= 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT32])
def test_integers_that_tensorrt_casts_stay_as_they_are(kind: int) -> None:
    given = load(cast([], kind))
    assert read_by(RTX, given) == (given, ())


@needs_rtx
@pytest.mark.parametrize("name", CASES)
def test_tensorrt_rtx_builds_it(name: str, tmp_path: Path) -> None:
    """NVIDIA's compiler refuses it as given."""
    result = fix(CASES[name][0], [{"x": X}, {"x": X[::-1].copy()}], target="rtx-1.7", out=tmp_path)
    assert result.met and NoteKind.COMPILED_ALL_NARROW in kinds(result.notes)
