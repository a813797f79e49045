"""Reads the inspector's JSON: names only, the schema with Bindings (8.2 to 10.16), the one with I/O Tensors (11)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfwise.compiler.buildlog.layer_text import dtype_of, nodes_of_metadata, nodes_of_name, shape_of
from halfwise.compiler.layers_fields import EngineLayers, Layer, LayerTensor
from halfwise.core.errors import InputError
from halfwise.core.files.identify import not_wanted

__all__ = ["layers_from_json"]

_LAYER_KEYS = ("Layers", "layers", "LayerInfo")


def layers_from_json(document: Any, source: str) -> EngineLayers:
    """The layers in a parsed JSON document: an engine's, a bare list, or a single layer."""
    entries, io = _entries(document, source)
    if not all(isinstance(entry, str | Mapping) for entry in entries):
        raise InputError(f"{source}: a layer is neither a name nor an object; this is not TensorRT's layer information")
    if not entries:
        raise InputError(f"{source}: the list of layers is empty; build the engine with --profilingVerbosity=detailed")
    layers = tuple(_layer(entry) for entry in entries)
    if any(isinstance(entry, Mapping) and not _text(entry, "Name") for entry in entries):
        raise InputError(f"{source}: a layer has no Name; this is not TensorRT's layer information")
    if io is not None:
        schema = "11"
    elif all(isinstance(entry, str) for entry in entries):
        schema = "names-only"
    else:
        schema = "11" if any(_has_datatype(entry) for entry in entries) else "8.2-10.16"
    bindings = io if io is not None else _list(document.get("Bindings")) if isinstance(document, Mapping) else []
    names = (_text(entry, "Name") if isinstance(entry, Mapping) else str(entry) for entry in bindings)
    return EngineLayers(layers, schema, "inspector-json", tuple(names))


def _entries(document: Any, source: str) -> tuple[list[Any], list[Any] | None]:
    if isinstance(document, list):
        return document, None
    if isinstance(document, Mapping):
        for key in _LAYER_KEYS:
            if isinstance(document.get(key), list):
                io = document.get("I/O Tensors")
                return document[key], io if isinstance(io, list) else None
        if "Name" in document and "LayerType" in document:
            return [document], None
    told = (
        f"{source}: no list of layers in this JSON; give what trtexec --exportLayerInfo or the engine inspector wrote"
    )
    raise InputError(not_wanted(Path(source), "an engine's layer list", told))


def _layer(entry: str | Mapping[str, Any]) -> Layer:
    if isinstance(entry, str):
        return Layer(entry, "", onnx_nodes=nodes_of_name(entry))
    name = _text(entry, "Name")
    metadata = entry.get("Metadata")
    return Layer(
        name=name,
        type=_text(entry, "LayerType"),
        inputs=_tensors(entry.get("Inputs")),
        outputs=_tensors(entry.get("Outputs")),
        onnx_nodes=nodes_of_metadata(metadata) if isinstance(metadata, str) else nodes_of_name(name),
        tactic=_text(entry, "TacticName"),
        metadata=metadata if isinstance(metadata, str) else None,
        constants=_tensors(entry.get("Constants")),
        weights=_weights(entry),
    )


def _tensors(entries: Any) -> tuple[LayerTensor, ...]:
    return tuple(_tensor(entry) for entry in _list(entries) if isinstance(entry, Mapping))


def _tensor(entry: Mapping[str, Any]) -> LayerTensor:
    lowered = {str(key).lower(): value for key, value in entry.items()}
    old = str(lowered.get("format/datatype") or "")
    layout = str(lowered.get("format") or old)
    dtype = dtype_of(str(lowered.get("datatype") or old))
    sizes = lowered.get("dimensions")
    if isinstance(sizes, list):
        shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
    else:
        shape = shape_of(sizes) if isinstance(sizes, str) else ()
    return LayerTensor(_text(entry, "Name"), dtype, shape, layout)


def _weights(entry: Mapping[str, Any]) -> str | None:
    for key in ("Weights", "ConvWeights", "ConvolutionWeights"):
        value = entry.get(key)
        if isinstance(value, Mapping) and value.get("Count", 1):
            return dtype_of(str(value.get("Type", "")))
    return None


def _has_datatype(entry: str | Mapping[str, Any]) -> bool:
    tensors = [] if isinstance(entry, str) else _list(entry.get("Inputs")) + _list(entry.get("Outputs"))
    return any(isinstance(t, Mapping) and any(str(key).lower() == "datatype" for key in t) for t in tensors)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""
