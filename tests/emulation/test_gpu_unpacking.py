"""Quantised weights made FP32 on a GPU, for which the processor stands: beside what the processor makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from halfwise.core.formats import Format
from halfwise.emulation import emulate, gpu_weights, sessions
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.gpu_weights import GpuWeights
from halfwise.emulation.ort import Device
from halfwise.emulation.packed_weights import dequantised_weight, unpacked_weight
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.unpacked_tensor import UnpackedTensor
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.model import load
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites
from halfwise.search.tensor_statistics import tensor_statistics
from tests.emulation.test_dequantised_weights import KINDS, table
from tests.emulation.test_packed_weights import CASES, dequantised
from tests.support.in_place_of_gpu import Here, telling
from tests.support.packed_products import K, product

MODELS = {
    **{f"{bits} bits, {block}, {zeros}": product(bits, block, zeros) for bits, block, zeros in CASES},
    **{f"{kind} by {axis} of {shape}": table(kind, shape, axis, zeros=zeros) for kind, shape, axis, zeros in KINDS},
    **{
        f"{kind} in blocks along {axis}": dequantised(kind, axis, zeros=zeros)
        for kind, axis, zeros in [
            (TensorProto.INT4, 0, False),
            (TensorProto.UINT4, 1, True),
            (TensorProto.INT8, 0, True),
        ]
    },
}


def weight_in(model: onnx.ModelProto, folder: Path) -> UnpackedTensor:
    """Of a model whose weights stand in a file."""
    path, written = folder / "model.onnx", onnx.ModelProto()
    written.CopyFrom(model)
    onnx.save_model(written, path, save_as_external_data=True, location="data", size_threshold=1000)
    held = load(path).graph.initializers.items()
    weights = {name: Weight(name, value.const_value, None) for name, value in held if value.const_value is not None}
    nodes = model.graph.node
    return next(filter(None, (unpacked_weight(n, weights) or dequantised_weight(n, weights) for n in nodes)))


@pytest.mark.parametrize("fmt", [Format.FP32, Format.FP16])
@pytest.mark.parametrize("free", [0, 1 << 24])
@pytest.mark.parametrize("name", MODELS)
def test_they_have_the_bits_that_the_processor_makes(
    name: str, free: int, fmt: Format, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_weights, "_ROUNDED", 70_000)  # several rows and blocks at a time, and a rest
    weight = Weight("w", weight_in(MODELS[name], tmp_path), fmt)
    found = GpuWeights(Here(free), "cpu").of(weight)
    wanted = RoundedWeights().of(weight)
    assert found is not None and found.shape() == list(wanted.shape)
    np.testing.assert_array_equal(found.numpy(), wanted.astype(np.float32))


def test_one_that_the_model_itself_holds_is_made_by_the_processor(tmp_path: Path) -> None:
    model = product()
    held = load(model).graph.initializers.items()
    weights = {name: Weight(name, value.const_value, None) for name, value in held if value.const_value is not None}
    found = unpacked_weight(model.graph.node[0], weights)
    assert found is not None
    assert GpuWeights(Here(), "cpu").of(Weight("w", found, Format.FP32)) is None


def test_node_by_node_packed_products_are_made_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for the GPU, and tells what a session there is given."""
    taken: list[set[type]] = []
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    sites, rng = Sites(load(product())), np.random.default_rng(2)
    feed = {"x": rng.standard_normal((1, 5, K)).astype(np.float32)}
    found = []
    devices: tuple[Device, ...] = ("cpu", "cuda")
    for device in devices:
        emulator = Emulator()
        emulator.device = device
        found.append(tensor_statistics(Stepper(emulator), sites, feed).ranges())
        monkeypatch.setattr(sessions, "Session", telling(taken))
        monkeypatch.setattr(gpu_weights, "gpu_weights", lambda: None)
        monkeypatch.setattr(gpu_weights, "upload", ort.OrtValue.ortvalue_from_numpy)
    assert found[0] == found[1]
    assert taken == [{np.ndarray, ort.OrtValue}]
