"""A weight that is made of another one is the same whether it is made as a whole, in parts, or as it is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.core.formats import Format
from halfwise.emulation import weights
from halfwise.emulation.weights import Room, RoundedWeights, held_in_fp32
from halfwise.model.weights import DerivedTensor, weight_content
from halfwise.precision.rewrite import Weight
from halfwise.repair.scaled_constants import ScaledTensor

SHAPE = (700, 48, 32)  # several blocks of rows, the last one short


def given(tmp_path: Path, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.ExternalTensor:
    array = np.random.default_rng(7).standard_normal(SHAPE).astype(dtype.numpy())
    array.tofile(tmp_path / "data")
    shape = ir.Shape(SHAPE)
    return ir.ExternalTensor("data", 0, array.nbytes, dtype, shape=shape, name="w", base_dir=tmp_path)


def scaled(source: ir.TensorProtocol, *, most: int = 3) -> tuple[DerivedTensor, np.ndarray]:
    """With another power of two for each row and each column; and the same by ldexp."""
    rng = np.random.default_rng(8)
    rows, columns = rng.integers(-3, most, (SHAPE[0], 1, 1)), rng.integers(-2, 3, (SHAPE[2],))
    expected = np.ldexp(np.asarray(source.numpy(), np.float32), rows + columns)
    return ScaledTensor(source, [rows, columns], empties=False), expected


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16])
@pytest.mark.parametrize("fmt", [Format.FP32, Format.FP16, Format.BF16])
def test_as_a_walk_takes_it(dtype: ir.DataType, fmt: Format, tmp_path: Path) -> None:
    tensor, expected = scaled(given(tmp_path, dtype))
    for room in (None, Room()):
        found = RoundedWeights().of(Weight("w", tensor, fmt), room=room)
        assert found.tobytes() == held_in_fp32(expected, fmt).tobytes()


def test_values_beyond_the_format_are_the_largest(tmp_path: Path) -> None:
    tensor, expected = scaled(given(tmp_path), most=19)
    assert np.abs(expected).max() > Format.FP16.max
    rounded = RoundedWeights()
    for _ in range(2):
        found = rounded.of(Weight("w", tensor, Format.FP16))
        assert found.tobytes() == held_in_fp32(expected, Format.FP16).tobytes()
        assert np.abs(found).max() == Format.FP16.max
        rounded.forget()


@pytest.mark.parametrize("fmt", [None, Format.FP32, Format.FP16])
def test_as_it_is_written(fmt: Format | None, tmp_path: Path) -> None:
    tensor, expected = scaled(given(tmp_path))
    pieces = list(weight_content(tensor, fmt))
    assert len(pieces) > 2
    narrow = expected if fmt is None else expected.astype(fmt.dtype)
    assert b"".join(piece for piece, _ in pieces) == narrow.tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_table_in_parts(axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_PART", 1 << 16)
    monkeypatch.setattr(weights, "_LEAST_ROWS", 16)
    source = given(tmp_path)
    table = ir.ExternalTensor(
        "data", 0, source.nbytes, source.dtype, shape=ir.Shape((2100, 512)), name="w", base_dir=tmp_path
    )
    powers = np.random.default_rng(9).integers(-3, 3, (2100, 1))
    tensor = ScaledTensor(table, [powers], empties=False)
    parts = [part.copy() for part in RoundedWeights().parts(Weight("w", tensor, Format.FP16), axis)]
    assert len(parts) > 2
    expected = held_in_fp32(np.ldexp(table.numpy(), powers), Format.FP16)
    assert np.concatenate(parts, axis=axis).tobytes() == expected.tobytes()


def test_one_made_of_one_that_is_made(tmp_path: Path) -> None:
    tensor, expected = scaled(given(tmp_path))
    twice = ScaledTensor(tensor, [np.full((1, SHAPE[1], 1), 5)], empties=False)
    assert twice.numpy().tobytes() == np.ldexp(expected, 5).tobytes()
    assert tensor.numpy().tobytes() == expected.tobytes()
