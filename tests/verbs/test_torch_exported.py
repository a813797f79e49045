"""Small networks of seismology, graphs, speech and forecasting, as PyTorch's two exporters write them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.support.every_verb import assert_delivered

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: PyTorch's newer exporter needs it")

F = torch.nn.functional


class PhasePicker(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Counts of 1e6 from a seismometer, made even, through convolutions and a recurrence, to a share for each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = torch.nn.Conv1d(3, 8, 7, 2, 3), torch.nn.Conv1d(8, 16, 7, 2, 3)
        self.memory = torch.nn.LSTM(16, 8, batch_first=True, bidirectional=True)
        self.shares = torch.nn.ConvTranspose1d(16, 3, 4, 4)

    def forward(self, counts: Any) -> Any:
        counts = counts - counts.mean(-1, keepdim=True)
        even = counts / (counts.pow(2).mean(-1, keepdim=True).sqrt() + 1e-9)
        seen, _ = self.memory(F.relu(self.far(F.relu(self.near(even)))).transpose(1, 2))
        return torch.softmax(self.shares(seen.transpose(1, 2)), 1)


class GraphAttention(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A Softmax over the edges into each node, by sums scattered over them."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.edges, self.out = torch.nn.Linear(8, 16), torch.nn.Linear(32, 1), torch.nn.Linear(16, 4)

    def forward(self, features: Any, edges: Any) -> Any:
        nodes, (start, end) = self.nodes(features), edges
        scores = F.leaky_relu(self.edges(torch.cat([nodes[start], nodes[end]], -1)))[:, 0]
        shares = torch.exp(scores - scores.max())
        shares = shares / (torch.zeros(len(features)).scatter_add(0, end, shares)[end] + 1e-12)
        return self.out(F.elu(torch.zeros_like(nodes).index_add(0, end, nodes[start] * shares[:, None])))


class Spectrum(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Whole-numbered sound through a Fourier transform by products, power and a logarithm, made even."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(64)[:, None] * torch.arange(33)[None] * 2 * np.pi / 64
        self.register_buffer("cosines", torch.cos(angles))
        self.register_buffer("sines", torch.sin(angles))
        self.out = torch.nn.Linear(33, 8)

    def forward(self, sound: Any) -> Any:
        frames = sound.unfold(1, 64, 32)
        logs = torch.log((frames @ self.cosines) ** 2 + (frames @ self.sines) ** 2 + 1e-6)
        return self.out((logs - logs.mean(1, keepdim=True)) / (logs.std(1, keepdim=True) + 1e-5))


def drawn(kind: str, seed: int) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(seed)
    if kind == "counts":
        return (1e6 * rng.standard_normal((2, 3, 400)).astype(np.float32),)
    if kind == "sound":
        return (8e3 * rng.standard_normal((1, 1024)).astype(np.float32),)
    return rng.standard_normal((20, 8)).astype(np.float32), rng.integers(0, 20, (2, 60))


@pytest.mark.parametrize(
    ("network", "kind", "dynamo", "opset", "target", "most"),
    [
        (PhasePicker, "counts", False, 13, "onnx", 8),
        (PhasePicker, "counts", True, 20, "trt-10.9", 8),
        (GraphAttention, "graph", True, 18, "onnx", 3),
        (Spectrum, "sound", False, 14, "onnx", 7),
        (Spectrum, "sound", True, 18, "trt-8.6", 7),
    ],
)
def test_what_an_exporter_wrote_is_delivered(
    network: Any, kind: str, dynamo: bool, opset: int, target: str, most: int, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    samples = [drawn(kind, seed) for seed in range(4)]
    path = tmp_path / "given.onnx"
    names = [f"input{index}" for index in range(len(samples[0]))]
    more = {"dynamo": True, "external_data": False, "verbose": False} if dynamo else {"dynamo": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        arguments = tuple(torch.from_numpy(array) for array in samples[0])
        torch.onnx.export(network().eval(), arguments, str(path), input_names=names, opset_version=opset, **more)
    feeds = [dict(zip(names, sample, strict=True)) for sample in samples]
    assert_delivered(onnx.load(path), feeds, target, tmp_path / "out", most)
