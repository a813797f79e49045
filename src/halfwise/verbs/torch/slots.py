"""What an engine or a model wants for each input and output; one form of answer for all that can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.json_text import read_json

__all__ = ["Slot", "slots_of"]

Dims = tuple[int | str | None, ...]

_TENSORRT_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "FP8": "float8",
    "INT4": "int4",
    "FP4": "float4",
    "E8M0": "float8_e8m0",
}
_SHORT = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "float": "float32",
    "half": "float16",
}


@dataclass(frozen=True)
class Slot:
    """One input or output. `dtype` "" and `shape` None are not known; -1, None and names are dimensions left open.

    `least` and `most` are the bounds of an optimisation profile. `place`: "cuda", "host", or "" where any will do.
    """

    name: str
    is_input: bool
    dtype: str
    shape: Dims | None
    least: tuple[int, ...] | None = None
    most: tuple[int, ...] | None = None
    place: str = ""
    layout: str = ""


def slots_of(source: Any) -> tuple[Slot, ...]:
    """Inputs and outputs of an ICudaEngine (of 8.5 and later, or older), an inspector's JSON, or an ONNX model."""
    if hasattr(source, "num_io_tensors") and hasattr(source, "get_tensor_name"):
        return _engine(source)
    if hasattr(source, "num_bindings") and hasattr(source, "get_binding_name"):
        return _old_engine(source)
    if isinstance(source, (str, Path)) and Path(source).suffix.lower() == ".json":
        return _inspected(Path(source))
    return _model(source)


def _engine(engine: Any) -> tuple[Slot, ...]:
    slots = []
    for index in range(int(engine.num_io_tensors)):
        name = engine.get_tensor_name(index)
        is_input = _word(engine.get_tensor_mode(name)) == "INPUT"
        least, most = _profile(engine, name) if is_input else (None, None)
        location = _word(engine.get_tensor_location(name)) if hasattr(engine, "get_tensor_location") else ""
        slots.append(
            Slot(
                name,
                is_input,
                _dtype(engine.get_tensor_dtype(name)),
                tuple(int(dim) for dim in engine.get_tensor_shape(name)),
                least,
                most,
                "host" if location == "HOST" else "cuda",
                _word(engine.get_tensor_format(name)) if hasattr(engine, "get_tensor_format") else "",
            )
        )
    return tuple(slots)


def _profile(engine: Any, name: str) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The bounds of the first profile, where shapes are left open."""
    if not any(int(dim) < 0 for dim in engine.get_tensor_shape(name)) or not hasattr(
        engine, "get_tensor_profile_shape"
    ):
        return None, None
    low, _, high = engine.get_tensor_profile_shape(name, 0)
    return tuple(int(dim) for dim in low), tuple(int(dim) for dim in high)


def _old_engine(engine: Any) -> tuple[Slot, ...]:
    """Before 8.5 bindings went by number; each profile has its own, of which the first is enough."""
    profiles = max(int(getattr(engine, "num_optimization_profiles", 1)), 1)
    slots = []
    for index in range(int(engine.num_bindings) // profiles):
        is_input = bool(engine.binding_is_input(index))
        shape = tuple(int(dim) for dim in engine.get_binding_shape(index))
        least = most = None
        if is_input and any(dim < 0 for dim in shape) and hasattr(engine, "get_profile_shape"):
            low, _, high = engine.get_profile_shape(0, index)
            least, most = tuple(int(dim) for dim in low), tuple(int(dim) for dim in high)
        location = _word(engine.get_location(index)) if hasattr(engine, "get_location") else ""
        slots.append(
            Slot(
                engine.get_binding_name(index),
                is_input,
                _dtype(engine.get_binding_dtype(index)),
                shape,
                least,
                most,
                "host" if location == "HOST" else "cuda",
            )
        )
    return tuple(slots)


def _inspected(path: Path) -> tuple[Slot, ...]:
    """What the engine inspector tells of bindings: types and shapes as the outermost layers have them."""
    from halfwise.compiler.layers_json import layers_from_json

    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as an inspector's JSON: {error}") from None
    layers = layers_from_json(document, str(path))
    read = {tensor.name: tensor for layer in layers.layers for tensor in layer.inputs}
    written = {tensor.name: tensor for layer in layers.layers for tensor in layer.outputs}
    if not layers.bindings:
        raise InputError(f"{path} does not list the engine's bindings; give the engine, or the ONNX model")
    slots = []
    for name in layers.bindings:
        tensor = written.get(name) or read.get(name)
        dtype = _SHORT.get(tensor.dtype or "", tensor.dtype or "") if tensor is not None else ""
        shape: Dims | None = tensor.shape or None if tensor is not None else None
        slots.append(Slot(name, name not in written, dtype, shape, place="cuda"))
    return tuple(slots)


def _model(source: Any) -> tuple[Slot, ...]:
    import onnx

    from halfwise.model.model import Model, load
    from halfwise.verbs.contained.calling import tried

    if not isinstance(source, (str, Path, Model, onnx.ModelProto)):
        raise InputError(f"a {type(source).__name__} is neither an engine, nor an inspector's JSON, nor an ONNX model")
    model = source if isinstance(source, Model) else tried(load)(source)
    slots = [Slot(spec.name, True, spec.dtype.name, spec.shape) for spec in model.inputs]
    for value in model.graph.outputs:
        dims = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
        slots.append(Slot(value.name or "", False, value.dtype.numpy().name if value.dtype is not None else "", dims))
    return tuple(slots)


def _dtype(dtype: Any) -> str:
    word = _word(dtype)
    return _TENSORRT_TYPES.get(word, _SHORT.get(word.lower(), word.lower()))


def _word(value: Any) -> str:
    """An enumeration's member by its bare name, whatever library it is of."""
    return str(getattr(value, "name", value)).rpartition(".")[2].upper()
