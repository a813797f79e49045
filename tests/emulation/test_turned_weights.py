"""The transpose of a weight is made once, not in each run of a session."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation import emulate
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.turned_weights import with_turned
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight

FLOAT = onnx.TensorProto.FLOAT
TABLE = np.random.default_rng(0).standard_normal((12, 3, 8)).astype(np.float32)
X: NDArray[Any] = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12)


@pytest.fixture(autouse=True)
def weights_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "INLINE_ELEMENTS", 8)


def _product() -> Sites:
    """x times the transposed weight, of which a row is picked, too."""
    nodes = [
        node("Transpose", "table", "turned", perm=[2, 0, 1]),
        node("MatMul", "x turned", "y"),
        node("Gather", "table i", "row"),
    ]
    given = [value("x", FLOAT, [2, 12]), value("i", onnx.TensorProto.INT64, [])]
    return Sites(
        load(model(nodes, given, [value("y", FLOAT, [8, 2, 3]), value("row", FLOAT, [3, 8])], [weight("table", TABLE)]))
    )


@pytest.mark.parametrize("fmt", [Format.FP32, Format.FP16])
def test_the_runs_of_a_session_turn_nothing(fmt: Format) -> None:
    sites = _product()
    decision = Assignment(sites, {}) if fmt is Format.FP32 else Assignment.all_narrow(sites)
    written, rounded = Emulator().write(decision), RoundedWeights()
    proto, held = with_turned(written.proto, written.weights, rounded)
    again = with_turned(written.proto, written.weights, rounded)[1]
    assert any(each.op_type == "Transpose" for each in written.proto.graph.node)
    assert all(each.op_type != "Transpose" for each in proto.graph.node)
    assert all(again[name] is array for name, array in held.items())
    found = Emulator().session(decision).run({"x": X, "i": np.array(3)})
    table, x = (each.astype(fmt.dtype).astype(np.float32) for each in (TABLE, X))
    np.testing.assert_allclose(found["y"], x @ table.transpose(2, 0, 1), rtol=2e-3 if fmt.narrow else 1e-5, atol=1e-4)
    assert np.array_equal(found["row"], table[3])


def test_what_the_model_gives_is_still_made() -> None:
    nodes = [node("Transpose", "table", "turned"), node("MatMul", "x turned", "y")]
    outputs = [value("turned", FLOAT, [3, 12]), value("y", FLOAT, [2, 12])]
    given = load(model(nodes, [value("x", FLOAT, [2, 3])], outputs, [weight("table", TABLE[:, :, 0])]))
    found = Emulator().session(Assignment(Sites(given), {})).run({"x": X[:, :3]})
    assert np.array_equal(found["turned"], TABLE[:, :, 0].T)
    np.testing.assert_allclose(found["y"], X[:, :3] @ TABLE[:, :, 0].T, rtol=1e-5)
