"""A walk node by node holds one copy of a large weight: none for picked rows, none for its transpose."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.fast_casts import rounded
from halfwise.core.formats import Format, round_to
from halfwise.emulation import large_tables, weights
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.tensor_statistics import tensor_statistics
from halfwise.verbs.trace import trace
from tests.models.build import model, node, value, weight


def _tied(words: int, width: int, stored: type = np.float16) -> onnx.ModelProto:
    """One embedding for the rows and, turned, for the product; its entries differ by the thousand."""
    kind = onnx.TensorProto.FLOAT16 if stored is np.float16 else onnx.TensorProto.FLOAT
    table = np.random.default_rng(0).standard_normal((words, width)) * 10.0 ** -(np.arange(words) % 7)[:, None]
    return model(
        [
            node("Gather", "table i", "x"),
            node("Transpose", "table", "turned", perm=[1, 0]),
            node("MatMul", "x turned", "y"),
        ],
        [value("i", onnx.TensorProto.INT64, ["batch", "tokens"])],
        [value("y", kind, ["batch", "tokens", words])],
        [weight("table", table.astype(stored))],
    )


def _walked(proto: onnx.ModelProto, places: Any, *, narrow: bool) -> dict[str, NDArray[Any]]:
    sites = Sites(load(proto))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    stepper = Stepper(Emulator())
    steps = stepper.walk(Store(stepper.emulator, assignment, {"i": np.asarray(places)}))
    return {each.name or "": array for step in steps for each, array in step.outputs.items()}


@pytest.mark.parametrize("stored", [np.float16, np.float32])
@pytest.mark.parametrize("narrow", [False, True])
def test_its_steps_give_what_the_runtime_gives(stored: type, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = _tied(50, 8, stored)
    usual = _walked(proto, [[1, -1, 7]], narrow=narrow)
    monkeypatch.setattr(large_tables, "LARGE_BYTES", 3 * 4 * 8)  # three columns at a time
    found = _walked(proto, [[1, -1, 7]], narrow=narrow)
    assert usual.keys() == found.keys() and not found["turned"].flags.c_contiguous
    for name in ("x", "turned"):
        assert np.array_equal(usual[name], found[name])
    np.testing.assert_allclose(found["y"], usual["y"], rtol=2e-3 if narrow else 1e-5, atol=1e-6)
    with pytest.raises(InputError, match="'n_x' by itself"):
        _walked(proto, [[50]], narrow=narrow)


@pytest.mark.parametrize("tokens", [2, 3, 17])
def test_a_product_with_a_turned_table_keeps_its_bits(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    proto, places = _tied(300, 64, np.float32), [[7 * place for place in range(tokens)]]
    usual = _walked(proto, places, narrow=False)
    monkeypatch.setattr(large_tables, "LARGE_BYTES", 64)
    monkeypatch.setattr(large_tables.np, "ascontiguousarray", lambda *_: pytest.fail("a copy of columns"))
    assert np.array_equal(_walked(proto, places, narrow=False)["y"], usual["y"])


def test_a_changed_table_that_lies_turned_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the effect of its rounding is measured."""
    monkeypatch.setattr(large_tables, "LARGE_BYTES", 64)
    sites = Sites(load(_tied(300, 64, np.float32)))
    fp32, stepper = Assignment(sites, {}), Stepper(Emulator())
    store = Store(stepper.emulator, fp32, {"i": np.array([[0, 7, 14]])})
    for step in stepper.walk(store):
        if step.node.op_type == "MatMul":
            rows, table = (array for array in step.inputs if array is not None)
            moved = rounded(table, Format.FP16)
            assert moved.T.flags.c_contiguous and np.array_equal(moved, round_to(table, Format.FP16))
            monkeypatch.setattr(large_tables.np, "ascontiguousarray", lambda *_: pytest.fail("a copy of columns"))
            (found,) = stepper.run(step.node, fp32, store, {step.node.inputs[1]: moved}).values()  # type: ignore[dict-item]
            np.testing.assert_allclose(found, rows @ moved, rtol=1e-4, atol=1e-5)
            assert not np.array_equal(found, step.outputs[step.node.outputs[0]])


def test_it_is_counted_as_a_copy_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites(load(_tied(50, 8)))
    usual = tensor_statistics(Stepper(Emulator()), sites, {"i": np.array([[1, 2]])})
    monkeypatch.setattr(large_tables, "LARGE_BYTES", 64)
    found = tensor_statistics(Stepper(Emulator()), sites, {"i": np.array([[1, 2]])})
    turned = next(each for each in usual.tensors if each.name == "turned")
    assert (usual.tensors[turned], usual.powers[turned]) == (found.tensors[turned], found.powers[turned])
    assert usual.shapes == found.shapes


@pytest.mark.parametrize("what", ["statistics", "trace"])
def test_one_copy_is_held(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a weight of 5 MB stored in FP16: 10 MB in FP32, and what was read of the 5."""
    monkeypatch.setattr(large_tables, "LARGE_BYTES", 1 << 18)
    monkeypatch.setattr(weights, "_ROOM", 0)
    proto, feed = _tied(40_000, 64), {"i": np.array([[1, 2]])}
    loaded = load(proto)
    tracemalloc.start()
    try:
        if what == "trace":
            trace(loaded, [feed])
        else:
            tensor_statistics(Stepper(Emulator()), Sites(loaded), feed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.9 * 4 * 40_000 * 64  # two copies in FP32 would be 2.0 by themselves
