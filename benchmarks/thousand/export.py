"""PyTorch modules as ONNX, by both of its exporters."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks.thousand.graph import Feed, Made
from benchmarks.thousand.pathologies import plant

__all__ = ["EXPORTERS", "export"]

# Name, whether it is the one over torch.export, and its opset.
EXPORTERS = (("script14", False, 14), ("script17", False, 17), ("dynamo18", True, 18), ("dynamo23", True, 23))
SAMPLES = 4

Inputs = Sequence[tuple[str, Any]]  # name and tensor, in the order of the module's arguments


def export(build: Callable[[], Any], sample: Callable[[], Inputs], exporter: int, seed: int) -> Made:
    """Build, plant, export, and draw a few samples; all follows from the seed."""
    import torch

    torch.manual_seed(seed)
    module = build().eval()
    plant(module, seed)
    _, dynamo, opset = EXPORTERS[exporter]
    drawn = [sample() for _ in range(SAMPLES)]
    names = [name for name, _ in drawn[0]]
    wrapped = _by_name(module, names)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        arguments = tuple(tensor for _, tensor in drawn[0])
        rest: dict[str, Any] = (
            {"dynamo": True, "external_data": False, "verbose": False} if dynamo else {"dynamo": False}
        )
        torch.onnx.export(wrapped, arguments, str(path), input_names=names, opset_version=opset, **rest)
        model = onnx.load(path)
    declared = {value.name for value in model.graph.input}
    feeds: list[Feed] = [{name: tensor.numpy() for name, tensor in each if name in declared} for each in drawn]
    return Made(model, feeds)


def _by_name(module: Any, names: Sequence[str]) -> Any:
    """Takes its tensors in order and hands them on by name; gives tensors only."""
    import torch

    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> Any:
            return tuple(_tensors(self.module(**dict(zip(names, tensors, strict=True)))))

    return Wrapped().eval()


def _tensors(answer: Any) -> list[Any]:
    """The float tensors of an answer, however it is packed; caches are left out."""
    import torch

    if isinstance(answer, torch.Tensor):
        return [answer]
    if isinstance(answer, dict):
        values = [value for key, value in answer.items() if "past" not in key and "cache" not in key]
    elif isinstance(answer, list | tuple):
        values = list(answer)
    else:
        return []
    return [tensor for value in values for tensor in _tensors(value)]
