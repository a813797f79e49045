"""The layers of an engine, as any TensorRT version lists them: tensors, types, dimensions, ONNX nodes, tactics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "FLOATS",
    "NARROW",
    "QUANTISED",
    "WIDTHS",
    "EngineLayers",
    "Layer",
    "LayerTensor",
    "SourceKind",
]

SourceKind = Literal["inspector-json", "layer-dump", "build-log"]

FLOATS = frozenset({"fp32", "fp16", "bf16", "fp64"})
NARROW = frozenset({"fp16", "bf16"})
QUANTISED = frozenset({"int8", "int4", "fp8", "fp4"})
WIDTHS = {
    "fp64": 8.0, "int64": 8.0, "fp32": 4.0, "int32": 4.0, "fp16": 2.0, "bf16": 2.0,
    "int8": 1.0, "uint8": 1.0, "bool": 1.0, "fp8": 1.0, "int4": 0.5, "fp4": 0.5,
}  # fmt: skip  # bytes an element


@dataclass(frozen=True)
class LayerTensor:
    """An input or output of a layer. A dimension of -1 is dynamic; `format` is the text as the engine states it."""

    name: str
    dtype: str  # "fp32", "fp16", "bf16", "int32", ... or "unknown"
    shape: tuple[int, ...]
    format: str = ""

    @property
    def bytes(self) -> float | None:
        """None where a dimension or the type is not known."""
        width = WIDTHS.get(self.dtype)
        if width is None or any(size < 0 for size in self.shape):
            return None
        elements = 1
        for size in self.shape:
            elements *= size
        return elements * width


@dataclass(frozen=True)
class Layer:
    """One layer (kernel) of an engine. `constants` and `weights` are known from some versions only."""

    name: str
    type: str
    inputs: tuple[LayerTensor, ...] = ()
    outputs: tuple[LayerTensor, ...] = ()
    onnx_nodes: tuple[str, ...] = ()
    tactic: str = ""
    metadata: str | None = None  # as it stands; None where the version has none
    constants: tuple[LayerTensor, ...] = ()
    weights: str | None = None  # type of a native layer's weights

    @property
    def is_region(self) -> bool:
        """A Myelin region shown as one layer: what happens inside is not visible."""
        return self.type == "Myelin" or self.name.startswith("{ForeignNode[")


@dataclass(frozen=True)
class EngineLayers:
    """The layers of an engine as some document lists them."""

    layers: tuple[Layer, ...]
    schema: str  # "names-only", "8.2-10.16", "11", "rtx", "log"
    source_kind: SourceKind
    bindings: tuple[str, ...] = field(default=())
