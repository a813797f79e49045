"""The tensors in what a module takes and gives, whatever holds them, each with a name that says where it lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from halfwise.verbs.torch.need import need_torch

__all__ = ["mapped", "tensors_in"]


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor in tuples, lists, dictionaries and dataclasses, in order; a single one has the given name."""
    torch = need_torch()
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    for key, part in _parts(value):
        yield from tensors_in(part, f"{name}.{key}" if name else key)


def mapped(value: Any, change: Any) -> Any:
    """The same structure with `change(tensor)` in place of each tensor; what holds no tensor stays what it is."""
    torch = need_torch()
    if isinstance(value, torch.Tensor):
        return change(value)
    if not any(True for _ in tensors_in(value)):
        return value
    parts = [(key, mapped(part, change)) for key, part in _parts(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **dict(parts))
    if isinstance(value, Mapping):
        return type(value)(zip(value, (part for _, part in parts), strict=True))  # type: ignore[call-arg]
    made = [part for _, part in parts]
    return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, (tuple, list)):
        yield from ((str(index), part) for index, part in enumerate(value))
