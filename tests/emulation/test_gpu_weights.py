"""The way of weights to a GPU, with this machine's memory in the place of the GPU's."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation import gpu_weights
from halfwise.emulation.gpu_weights import GpuWeights
from halfwise.emulation.weights import held_in_fp32
from halfwise.precision.rewrite import Weight


class Here:
    """Memory of this machine."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def enter(self) -> None: ...

    def reachable(self, size: int) -> NDArray[np.uint8]:
        return np.empty(size, np.uint8)

    def allocate(self, size: int) -> int:
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])

    def to_device(self, pointer: int, array: NDArray[Any]) -> None:
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)


def external(path: Path, array: NDArray[Any], kind: ir.DataType) -> ir.ExternalTensor:
    path.write_bytes(b"\0" * 64 + array.tobytes())
    shape = ir.Shape(array.shape)
    return ir.ExternalTensor(path.name, 64, array.nbytes, kind, shape=shape, name="w", base_dir=path.parent)


@pytest.mark.parametrize("fmt", [Format.FP16, Format.FP32])
@pytest.mark.parametrize("stored", [np.float32, np.float16])
def test_they_are_what_they_are_here(
    fmt: Format, stored: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_weights, "_PIECE", 1000)
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        array = (rng.standard_normal((30, 70)) * np.geomspace(1e-10, 1e10, 70)).astype(stored)
    array[0, :3] = np.inf, -np.inf, np.nan
    kind = ir.DataType.FLOAT if stored is np.float32 else ir.DataType.FLOAT16
    weights = GpuWeights(Here(), "cpu")
    assert weights.is_honest()
    got = weights.of(Weight("w", external(tmp_path / "data", array, kind), fmt)).numpy()
    assert np.array_equal(got, held_in_fp32(array, fmt), equal_nan=True) and got.shape == (30, 70)


def test_others_are_left_to_the_processor(tmp_path: Path) -> None:
    weights = GpuWeights(Here(), "cpu")
    array = np.ones((2, 2), np.float32)
    assert weights.of(Weight("w", ir.tensor(array), Format.FP16)) is None
    bf16 = external(tmp_path / "data", array.astype(ml_dtypes.bfloat16), ir.DataType.BFLOAT16)
    assert weights.of(Weight("w", bf16, Format.FP16)) is None


def test_a_file_that_ends_too_soon_is_told(tmp_path: Path) -> None:
    tensor = external(tmp_path / "data", np.ones(100, np.float32), ir.DataType.FLOAT)
    (tmp_path / "data").write_bytes(b"\0" * 200)
    with pytest.raises(InputError, match="ends before initializer 'w'"):
        GpuWeights(Here(), "cpu").of(Weight("w", tensor, Format.FP16))
