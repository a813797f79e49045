"""The way of weights to a GPU, with this machine's memory in the place of the GPU's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation import emulate, gpu_weights, sessions, store
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.gpu_weights import GpuWeights
from halfwise.emulation.ort import Device
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.weights import held_in_fp32
from halfwise.model.model import load
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites
from halfwise.repair.scaled_constants import ScaledTensor
from halfwise.search.tensor_statistics import tensor_statistics
from tests.models.zoo import encoder
from tests.support.in_place_of_gpu import Here, telling


def external(path: Path, array: NDArray[Any], kind: ir.DataType) -> ir.ExternalTensor:
    path.write_bytes(b"\0" * 64 + array.tobytes())
    shape = ir.Shape(array.shape)
    return ir.ExternalTensor(path.name, 64, array.nbytes, kind, shape=shape, name="w", base_dir=path.parent)


@pytest.mark.parametrize("fmt", [Format.FP16, Format.FP32])
@pytest.mark.parametrize("stored", [np.float32, np.float16])
@pytest.mark.parametrize("free", [0, 1 << 20])
def test_they_are_what_they_are_here(
    fmt: Format, stored: type, free: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_weights, "_PIECE", 1000)
    monkeypatch.setattr(gpu_weights, "_ROUNDED", 700)
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        array = (rng.standard_normal((30, 70)) * np.geomspace(1e-10, 1e10, 70)).astype(stored)
    array[0, :3] = np.inf, -np.inf, np.nan
    kind = ir.DataType.FLOAT if stored is np.float32 else ir.DataType.FLOAT16
    weights = GpuWeights(Here(free), "cpu")
    assert weights.is_honest()
    got = weights.of(Weight("w", external(tmp_path / "data", array, kind), fmt)).numpy()
    assert np.array_equal(got, held_in_fp32(array, fmt), equal_nan=True) and got.shape == (30, 70)


@pytest.mark.parametrize("fmt", [Format.FP16, Format.FP32])
@pytest.mark.parametrize("free", [0, 1 << 20])
def test_one_that_is_another_times_powers_of_two(fmt: Format, free: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    array = rng.standard_normal((30, 70)).astype(np.float32)
    source = external(tmp_path / "data", array, ir.DataType.FLOAT)
    rows, columns = rng.integers(-9, 19, (30, 1)), rng.integers(-9, 9, (70,))
    expected = held_in_fp32(np.ldexp(array, rows + columns), fmt)
    assert (np.abs(expected) == Format.FP16.max).any() == (fmt is Format.FP16)
    weights = GpuWeights(Here(free), "cpu")
    for powers in ([rows, columns], [rows + columns]):
        weight = Weight("w", ScaledTensor(source, powers, empties=False), fmt)
        assert weights.of(weight).numpy().tobytes() == expected.tobytes()
    assert weights.of(Weight("w", ScaledTensor(source, [rows], empties=True), fmt)) is None  # is left to the processor


def test_they_are_read_once_where_there_is_room(tmp_path: Path) -> None:
    array = np.full((30, 70), 1 + 2.0**-11, np.float32)
    tensor = external(tmp_path / "data", array, ir.DataType.FLOAT)
    weights = GpuWeights(Here(2 * array.nbytes + 100), "cpu")  # less than half of it is for weights
    weights.of(Weight("w", tensor, Format.FP32))
    (tmp_path / "data").write_bytes(bytes(64 + array.nbytes))
    assert not weights.of(Weight("w", tensor, Format.FP32)).numpy().any()
    weights = GpuWeights(Here(3 * array.nbytes), "cpu")
    weights.of(Weight("w", tensor, Format.FP32))
    (tmp_path / "data").unlink()
    assert not weights.of(Weight("w", tensor, Format.FP16)).numpy().any()


def test_a_walk_by_steps_has_products_with_large_weights_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for the GPU, and tells what a session there is given."""
    taken: list[set[type]] = []

    case = encoder()
    sites = Sites(load(case.model))
    walked = []
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    for device in ("cpu", "cuda"):
        emulator = Emulator()
        emulator.device = cast(Device, device)
        found = tensor_statistics(Stepper(emulator), sites, case.inputs[0])
        walked.append(found.ranges())
        monkeypatch.setattr(store, "WEIGHT_BYTES", 1)
        monkeypatch.setattr(sessions, "Session", telling(taken))
        monkeypatch.setattr(gpu_weights, "gpu_weights", lambda: None)
        monkeypatch.setattr(gpu_weights, "upload", ort.OrtValue.ortvalue_from_numpy)
    assert walked[0] == walked[1]
    assert taken and all(each == {np.ndarray, ort.OrtValue} for each in taken)


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
