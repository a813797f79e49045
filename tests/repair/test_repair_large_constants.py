"""Constants that are read in parts are repaired as those whose blocks are held."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from halfwise.model.model import Model, load
from halfwise.repair import repaired, scale_blocks, scaled_constants
from halfwise.repair.rescale import RESCALE
from halfwise.repair.scale_atoms import Weights
from halfwise.repair.scale_ends import plain_flow
from halfwise.repair.scale_table import Table
from halfwise.repair.scaled_constants import ScaledTensor
from tests.models.build import model, node, value, weight
from tests.models.zoo import cnn_tiny_weights
from tests.support.repairing import ranges_of
from tests.support.rescaled import normal, rows


def _scaled(seed: int, shape: tuple[int, ...], axis: int, power: int) -> Any:
    """Some channels far below the others."""
    array = normal(seed, *shape)
    chosen = [slice(None)] * array.ndim
    chosen[axis] = slice(1, 4)
    array[tuple(chosen)] *= np.float32(2.0**power)
    return weight(f"w{seed}", array)


def _chain() -> onnx.ModelProto:
    nodes = [node("MatMul", "x w1", "a"), node("Relu", "a", "b"), node("MatMul", "b w2", "c"), node("Relu", "c", "d"),
             node("MatMul", "d w3", "y")]  # fmt: skip
    weights = [_scaled(1, (8, 16), 1, -22), _scaled(2, (16, 16), 0, 20), _scaled(3, (16, 8), 1, -21)]
    return model(nodes, [value("x", shape=[4, 8])], [value("y", shape=[4, 8])], weights)


def _residual() -> onnx.ModelProto:
    """Rows and columns of the second product are of the same classes, channel by channel."""
    nodes = [node("MatMul", "x w1", "a"), node("Relu", "a", "b"), node("MatMul", "b w2", "c"), node("Add", "b c", "d"),
             node("Relu", "d", "e"), node("MatMul", "e w3", "y")]  # fmt: skip
    weights = [_scaled(1, (8, 16), 1, -22), _scaled(2, (16, 16), 1, -22), _scaled(3, (16, 8), 0, 21)]
    return model(nodes, [value("x", shape=[4, 8])], [value("y", shape=[4, 8])], weights)


def _stream() -> onnx.ModelProto:
    """All channels are far below FP16, and bear no power but together."""
    nodes = [
        node("MatMul", "x w1", "a"),
        node("MatMul", "a w2", "b"),
        node("Add", "a b", "c"),
        node("MatMul", "c w3", "y"),
    ]
    weights = [weight("w1", normal(1, 8, 16, scale=2.0**-40)), weight("w2", normal(2, 16, 16))]
    weights += [weight("w3", normal(3, 16, 8, scale=2.0**40))]
    return model(nodes, [value("x", shape=[4, 8])], [value("y", shape=[4, 8])], weights)


def _gemm() -> onnx.ModelProto:
    nodes = [node("Gemm", "x w1", "a", transB=1), node("Relu", "a", "b"), node("MatMul", "b w2", "y")]
    weights = [_scaled(1, (16, 8), 0, -23), _scaled(2, (16, 8), 0, 19)]
    return model(nodes, [value("x", shape=[4, 8])], [value("y", shape=[4, 8])], weights)


@pytest.mark.parametrize("case", ["chain", "residual", "stream", "gemm", "cnn"])
def test_the_repairs_are_those_of_constants_whose_blocks_are_held(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if case == "cnn":
        zoo = cnn_tiny_weights("channels")
        made, feeds = zoo.model, zoo.inputs[:2]
    else:
        made, feeds = {"chain": _chain, "residual": _residual, "stream": _stream, "gemm": _gemm}[case](), rows()
    ranges = ranges_of(load(made), feeds)
    held = RESCALE.find(load(made), ranges)
    monkeypatch.setattr(scale_blocks, "LARGE", 0)
    monkeypatch.setattr(scale_blocks, "_CACHED", 24)
    monkeypatch.setattr(scale_blocks, "_BLOCK", 50)
    read = RESCALE.find(load(made), ranges)
    assert held and [json.dumps(each.parameters) for each in read] == [json.dumps(each.parameters) for each in held]


def test_of_many_constants_none_has_its_blocks_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are, what is held grows with their rows and columns; the repairs are the same."""
    made, feeds = cnn_tiny_weights("channels").model, cnn_tiny_weights("channels").inputs[:2]
    ranges = ranges_of(load(made), feeds)
    held = RESCALE.find(load(made), ranges)
    monkeypatch.setattr(scale_blocks, "_MOST", 0)
    monkeypatch.setattr(scale_blocks, "_FEW", 0)
    seen: list[int] = []
    dense = Table._pooled

    def pooled(table: Table, index: int, weights: Weights) -> list[Any]:
        found = list(dense(table, index, weights))
        seen.append(sum(len(each[0]) for each in found) if weights.columns is not None and len(weights.rows) > 1 else 0)
        return found

    monkeypatch.setattr(Table, "_pooled", pooled)
    read = RESCALE.find(load(made), ranges)
    assert held and [json.dumps(each.parameters) for each in read] == [json.dumps(each.parameters) for each in held]
    assert max(seen) <= 64  # rows, or columns


def test_no_blocks_are_held_of_a_constant_that_each_step_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network unrolled over time: its constants are few, but each reader would hold all blocks."""
    steps = 8
    nodes = [node("MatMul", f"h{step} w1", f"h{step + 1}") for step in range(steps)]
    weights = [_scaled(1, (16, 16), 1, -22)]
    made = model(nodes, [value("h0", shape=[4, 16])], [value(f"h{steps}", shape=[4, 16])], weights)
    ranges = ranges_of(load(made), [{"h0": normal(2, 4, 16)}])
    held = RESCALE.find(load(made), ranges)
    monkeypatch.setattr(scale_blocks, "_MOST", 2 * 16 * 16)
    monkeypatch.setattr(scale_blocks, "_FEW", 0)
    flow = plain_flow(load(made), ranges)
    assert len(flow.weights) == steps and not any(weights.square.size for weights in flow.weights)
    assert held and [each.parameters for each in RESCALE.find(load(made), ranges)] == [each.parameters for each in held]


def test_a_large_scaled_constant_is_made_when_it_is_read_and_is_one_for_all_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = load(_chain())
    found = [(RESCALE, each) for each in RESCALE.find(given, ranges_of(given, rows()))]
    held, _ = repaired(given, found)
    monkeypatch.setattr(scale_blocks, "LARGE", 0)
    monkeypatch.setattr(scaled_constants, "_BLOCK", 50)
    read, again = (repaired(given, found)[0] for _ in range(2))
    tensors = [_weights(each) for each in (held, read, again)]
    assert any(isinstance(each, ScaledTensor) for each in tensors[1].values())
    for name, tensor in tensors[0].items():
        assert tensors[1][name].numpy().tobytes() == tensor.numpy().tobytes()
        assert tensors[1][name] is tensors[2][name] or not isinstance(tensors[1][name], ScaledTensor)


def test_what_leaves_the_normal_numbers_is_not_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_blocks, "LARGE", 0)
    array = normal(1, 3, 4)
    array[1, 2] = 2.0**100
    tensor, powers = ir.tensor(array), np.array([[0], [28], [0]], np.int64)
    assert scaled_constants.times_powers(tensor, [powers]) is None
    assert scaled_constants.times_powers(tensor, [-10 * powers]) is None
    assert scaled_constants.times_powers(tensor, [powers - 1]) is not None
    assert scaled_constants.times_powers(tensor, [powers + 100, np.full((1, 4), -101)]) is not None  # their product


@pytest.mark.parametrize("by_row, by_column", [(-30, 0), (-90, 70), (100, -130), (0, -30)])
@pytest.mark.parametrize("large", [False, True], ids=["held", "made when read"])
def test_values_below_the_normal_numbers_become_0_beside_others(
    large: bool, by_row: int, by_column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_blocks, "LARGE", 0 if large else 1 << 18)
    monkeypatch.setattr(scaled_constants, "_BLOCK", 7)
    array = normal(1, 6, 5)
    array[1:4] *= np.float32(2.0**-110)
    powers = [np.full((6, 1), by_row), np.full((1, 5), by_column)]
    wanted = array.astype(np.float64) * 2.0 ** (by_row + by_column)
    lost = np.abs(wanted) < np.finfo(np.float32).tiny
    assert lost.any()
    assert scaled_constants.times_powers(ir.tensor(array), powers) is None
    made = scaled_constants.times_powers(ir.tensor(array), powers, empties=True)
    assert made is not None and made.emptied
    assert np.array_equal(made.tensor.numpy(), np.where(lost, 0, wanted).astype(np.float32))
    assert scaled_constants.times_powers(ir.tensor(array[1:4]), [powers[0][1:4], powers[1]], empties=True) is None


def _weights(given: Model) -> dict[str, Any]:
    return {name: value.const_value for name, value in given.graph.initializers.items()}


@pytest.mark.parametrize(
    "out, into, shape", [(1, 0, (30, 40)), (0, 1, (30, 40)), (0, 1, (6, 5, 3, 3)), (1, 0, (6, 5, 3))]
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_sums_over_rows_and_columns(
    out: int, into: int, shape: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts, under powers of two, of some of the blocks: as NumPy gives them of all at once."""
    monkeypatch.setattr(scale_blocks, "_CACHED", 70)
    monkeypatch.setattr(scale_blocks, "_BLOCK", 300)
    array = normal(3, *shape).astype(dtype)
    large = scale_blocks.LargeBlocks(ir.Value(name="w", const_value=ir.tensor(array)), out, into)
    _initial(large.value)
    apart = np.abs(np.moveaxis(array.astype(np.float64), (out, into), (0, 1)).reshape(shape[out], shape[into], -1))
    rng = np.random.default_rng(0)
    row, column = rng.integers(-3, 4, shape[out]) * 1.0, rng.integers(-3, 4, shape[into]) * 1.0
    unlike = rng.random((shape[out], shape[into])) > 0.2
    square, peak = (apart**2).mean(axis=2), apart.max(axis=2)
    assert np.allclose(large.rows(np.full(shape[into], 2.0)).square, 16 * square.sum(1), rtol=1e-6)
    assert np.allclose(large.columns(row).square, (square * 4.0 ** row[:, None]).sum(0), rtol=1e-6)
    assert np.allclose(large.rows(column, unlike).peak, (peak * 2.0**column * unlike).max(1), rtol=1e-6)
    cap = rng.random(shape[into])
    made, held = large.heard(cap), scale_blocks.HeldBlocks.of(array, out, into).heard(cap)
    assert np.allclose(made.total, apart.sum(axis=2) @ cap, rtol=1e-6)
    assert all(np.allclose(one, other, rtol=1e-6) for one, other in zip(made, held, strict=True))


def _initial(value: ir.Value) -> None:
    ir.Graph([], [], nodes=[], initializers=[value])


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (1, 40, 6), (3, 4, 5, 6)])
def test_blocks_in_parts_are_those_of_the_whole(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_blocks, "_BLOCK", 25)
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sizes = np.abs(array.astype(np.float64))
    for keep in (each for count in range(len(shape)) for each in combinations(range(len(shape)), count)):
        over = tuple(axis for axis in range(len(shape)) if axis not in keep)
        wanted = (sizes**2).mean(axis=over), sizes.max(axis=over), sizes.sum(axis=over)
        for found, expected in zip(scale_blocks.blocks(array, keep), wanted, strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-13)
