"""Rounded weights are kept where there are few, and given up where others need the memory."""

from __future__ import annotations

from itertools import chain

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.core.formats import Format
from halfwise.core.set_aside import is_aside
from halfwise.emulation import weights
from halfwise.emulation.ort import Session
from halfwise.emulation.weights import Room, RoundedWeights
from halfwise.precision.rewrite import Weight
from tests.models.build import model, node, value


def weight(elements: int) -> Weight:
    values = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    return Weight("w", ir.tensor(values, name="w"), Format.FP16)


def test_what_was_given_up_is_made_again() -> None:
    rounded, large = RoundedWeights(), weight(1 << 23)
    first = rounded.of(large)
    assert rounded.of(large) is first
    rounded.forget()
    again = rounded.of(large)
    assert again is not first and np.array_equal(again, first)


def test_a_few_bytes_are_kept() -> None:
    rounded, small = RoundedWeights(), weight(1 << 10)
    first = rounded.of(small)
    rounded.forget()
    assert rounded.of(small) is first


def test_what_a_room_held_is_written_over() -> None:
    """By segments of several weights, too."""
    room, places = Room(), []
    for _ in range(3):
        room.clear(48)
        first, second = room.empty((4, 8)), room.empty((16,))
        places.append((first.ctypes.data, second.ctypes.data))
    assert len(set(places)) == 1 and not np.shares_memory(first, second)


@pytest.mark.parametrize("row", [0, 700])
def test_a_table_in_parts_is_the_table(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time, and with a value to clamp in any part."""
    monkeypatch.setattr(weights, "_PART", 1 << 10)
    values = np.random.default_rng(0).standard_normal((1100, 8)).astype(np.float32)
    values[row, 3] = -1e6
    table, rounded = Weight("t", ir.tensor(values, name="t"), Format.FP16), RoundedWeights()
    expected = np.clip(values, -65504, 65504).astype(np.float16).astype(np.float32)
    for _ in range(2):
        parts = [part.copy() for part in rounded.parts(table)]
        assert len(parts) == 2 and np.array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("columns", [513, 1030, 1537, 2600])
def test_products_with_parts_are_summed_as_with_the_whole(
    columns: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short part would be summed in another order, also one of a single column."""
    monkeypatch.setattr(weights, "_PART", 1)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((columns, 1000) if turned else (1000, columns)).astype(np.float32)
    table = Weight("t", ir.tensor(values, name="t"), Format.FP16)
    rows = (value("x", shape=("n", 1000)), value("t", shape=(None, None)))
    session = Session(model([node("Gemm", "x t", "y", transB=int(turned))], rows, [value("y", shape=None)]), threads=1)
    for count in (1, 7):
        fed = rng.standard_normal((count, 1000)).astype(np.float32)
        whole, *parts = (
            session.run({"x": fed, "t": np.ascontiguousarray(part)})["y"]
            for part in chain([RoundedWeights().of(table)], RoundedWeights().parts(table, int(not turned)))
        )
        assert len(parts) == columns // 512 and np.array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize("has_room", [True, False])
def test_a_huge_table_lies_in_a_file_as_long_as_the_run(has_room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_HUGE", 1 << 10)
    monkeypatch.setattr(weights, "_PART", 1 << 10)
    monkeypatch.setattr(weights, "_ROOM", 0)
    if not has_room:
        monkeypatch.setattr(weights, "written_aside", lambda *_: None)
    values = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    table, rounded = Weight("t", ir.tensor(values, name="t"), Format.FP16), RoundedWeights()
    made = rounded.of(table)
    assert is_aside(made) == has_room and np.array_equal(made, values.astype(np.float16))
    assert rounded.of(table) is made
