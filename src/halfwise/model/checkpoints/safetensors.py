"""Reads the header of a safetensors file, and refuses whatever in it does not fit the file."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from halfwise.core.errors import InputError
from halfwise.core.json_text import once, parse_json
from halfwise.model.checkpoints.checkpoint import Checkpoint, StoredTensor
from halfwise.model.elements import STORED_TYPES, Elements, Stretch

__all__ = ["read_safetensors"]

_LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
_FLOATS = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64"}
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


def read_safetensors(path: Path) -> Checkpoint:
    """The tensors of a file, without reading any of them."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise InputError(
                f"{path} is no safetensors file: it has {size} bytes, and the header's length alone takes 8"
            )
        length = struct.unpack("<Q", prefix)[0]
        if length > min(_LARGEST_HEADER, size - 8):
            reason = (
                f"it ends before its header of {length:,} bytes does" if length > size - 8 else "its header is too long"
            )
            raise InputError(f"{path} is no whole safetensors file: {reason}; copy or export it again")
        header = _parse(path, file.read(length))
    begin = 8 + length
    stretches: list[tuple[int, int, str]] = []
    tensors: list[StoredTensor] = []
    other: list[str] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, first, last = _entry(path, name, entry, size - begin)
        stretches.append((first, last, name))
        if dtype not in _FLOATS:
            other.append(name)
            continue
        kind = _FLOATS[dtype]
        place = Stretch(path, begin + first, STORED_TYPES[kind], math.prod(shape), f"tensor {name!r}")
        tensors.append(StoredTensor(name, kind, shape, Elements(place)))
    _check_stretches(path, stretches, size - begin)
    return Checkpoint(path, (path,), tuple(tensors), tuple(other))


def _parse(path: Path, text: bytes) -> Mapping[str, Any]:
    pairs = once(f"{path}: the header of this safetensors file", "export it again")
    try:
        header = parse_json(text.decode("utf-8"), pairs) if text[:1] == b"{" else None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise InputError(f"{path} is no safetensors file: its header is not a JSON object; copy or export it again")
    return header


def _entry(path: Path, name: str, entry: Any, room: int) -> tuple[str, tuple[int, ...], int, int]:
    """The type, the shape and the stretch of one tensor, checked by themselves."""
    fields: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise InputError(f"{path}: tensor {name!r} has no sound dtype, shape and data_offsets; export the file again")
    first, last = offsets
    if first > last or last > room:
        raise InputError(
            f"{path}: tensor {name!r} lies at bytes {first} to {last} of {room} that the file has; copy the file again"
        )
    if dtype not in _BITS:
        raise InputError(
            f"{path}: tensor {name!r} is of type {dtype!r}, which is not known; known are {', '.join(sorted(_BITS))}"
        )
    bits = math.prod(shape) * _BITS[dtype]
    if bits != 8 * (last - first):
        raise InputError(
            f"{path}: tensor {name!r} of type {dtype} and shape {list(shape)} takes {bits // 8} bytes, and its "
            f"data_offsets give it {last - first}; export the file again"
        )
    return dtype, tuple(shape), first, last


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 1 << 63 for each in value)


def _check_stretches(path: Path, stretches: list[tuple[int, int, str]], room: int) -> None:
    """The format has neither overlaps nor gaps: bytes that belong to two tensors or to none hide something."""
    reached, before = 0, ""
    for first, last, name in sorted(stretches):
        if first < reached:
            raise InputError(f"{path}: the tensors {before!r} and {name!r} overlap; export the file again")
        if first > reached:
            raise InputError(
                f"{path}: {first - reached} bytes before tensor {name!r} belong to none; export the file again"
            )
        reached, before = last, name
    if reached != room:
        raise InputError(f"{path}: its last {room - reached} bytes belong to no tensor; copy or export the file again")
