"""Inputs held against what a model declares: each in its declared type, or one line on what does not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.metrics import is_float, is_number
from halfwise.model.input_spec import InputSpec

__all__ = ["Arrays", "checked", "names_of", "with_states"]

Arrays = Mapping[str, NDArray[Any]]

_RAW_BF16 = np.dtype("V2")


def checked(feed: Mapping[str, Any], specs: Sequence[InputSpec], label: str) -> Arrays:
    """The feed in the declared types, or one line on what does not fit the model."""
    feed = _gathered(feed, specs)
    names = [spec.name for spec in specs]
    if extra := [name for name in feed if name not in names]:
        raise InputError(f"{label}: holds {_quoted(extra)}, but the model takes {names_of(specs)}")
    if missing := [name for name in names if name not in feed]:
        raise InputError(f"{label}: lacks {_quoted(missing)}; the model takes {names_of(specs)}")
    symbols: dict[str, tuple[int, str]] = {}
    found = {}
    for spec in specs:
        found[spec.name] = _checked_one(feed[spec.name], spec, {} if _is_unread(spec, feed) else symbols, label)
    return found


def _is_unread(spec: InputSpec, feed: Mapping[str, Any]) -> bool:
    """Whether anything may stand in its place: it says nothing of the other inputs."""
    flag, value = spec.unread or ("", False)
    held = np.asarray(feed.get(flag))
    return spec.unread is not None and held.size == 1 and bool(held.reshape(-1)[0]) is value


def _checked_one(held: Any, spec: InputSpec, symbols: dict[str, tuple[int, str]], label: str) -> Any:
    if held is None and spec.optional:
        return None
    if spec.sequence:
        if not isinstance(held, list):
            raise InputError(
                f'{label}: input {spec.name!r} is a sequence; give a list of arrays ("{spec.name}[0]", ...)'
            )
        one = replace(spec, sequence=False, optional=False)
        return [_checked_one(each, one, {}, label) for each in held]
    if not isinstance(held, np.ndarray):
        raise InputError(f"{label}: {spec.name!r} in it is not an array")
    _check_shape(held.shape, spec, symbols, label)
    return _in_type(held, spec, label)


def _gathered(feed: Mapping[str, Any], specs: Sequence[InputSpec]) -> Mapping[str, Any]:
    """With the parts of each sequence as a list, and None for what is left out of the optional inputs."""
    found = dict(feed)
    for spec in specs:
        if spec.sequence and spec.name not in found and (parts := _parts(found, spec.name)):
            found[spec.name] = [found.pop(part) for part in parts]
        if spec.optional and spec.name not in found:
            found[spec.name] = None
    return found


def _parts(feed: Mapping[str, Any], name: str) -> list[str]:
    return list(takewhile(feed.__contains__, (f"{name}[{place}]" for place in count())))


def with_states(feed: Mapping[str, Any], specs: Sequence[InputSpec], states: Collection[str]) -> Mapping[str, Any]:
    """A stream starts from a state of zeros where it says nothing else; a cache starts empty, or with its room.

    An open dimension has the size that other inputs give its symbol. Else it is 1 where it leads, as a batch does.
    """
    told: dict[int | str | None, int] = {}
    for spec in specs:
        shape = np.shape(feed[spec.name]) if isinstance(feed.get(spec.name), np.ndarray) else ()
        told |= dict(zip(spec.shape or (), shape, strict=True)) if len(shape) == len(spec.shape or ()) else {}
    zeros = {}
    for spec in specs:
        if spec.name in states and spec.name not in feed and spec.shape is not None and not spec.sequence:
            sizes = [_size_of(dim, axis, told, spec.room) for axis, dim in enumerate(spec.shape)]
            zeros[spec.name] = np.zeros(sizes, spec.dtype)
    return {**feed, **zeros}


def _size_of(dim: int | str | None, axis: int, told: Mapping[int | str | None, int], room: int) -> int:
    if isinstance(dim, int):
        return dim
    usual = 1 if axis == 0 else room
    return told.get(dim, usual) if dim is not None else usual


def _check_shape(shape: tuple[int, ...], spec: InputSpec, symbols: dict[str, tuple[int, str]], label: str) -> None:
    if spec.shape is None:
        return
    if len(shape) != len(spec.shape) or any(
        isinstance(declared, int) and declared != size for declared, size in zip(spec.shape, shape, strict=True)
    ):
        declared_shape = f"({', '.join('?' if dim is None else str(dim) for dim in spec.shape)})"
        told = f"{label}: input {spec.name!r} has shape {shape}, the model takes {declared_shape}"
        raise InputError(told + _turned(shape, spec.shape))
    if 0 in shape:  # an empty one may stand for a cache that is not read yet: it says nothing of the other inputs
        return
    for declared, size in zip(spec.shape, shape, strict=True):
        if isinstance(declared, str):
            first, where = symbols.setdefault(declared, (size, spec.name))
            if first != size:
                raise InputError(
                    f"{label}: dimension {declared!r} is {first} in input {where!r} and {size} in input {spec.name!r}"
                )


def _turned(shape: tuple[int, ...], declared: Sequence[int | str | None]) -> str:
    """What to do about channels that stand last where the model has them first, or the other way round."""
    if len(shape) != len(declared) or len(shape) < 3:
        return ""
    axes = (0, *range(2, len(shape)), 1), (0, len(shape) - 1, *range(1, len(shape) - 1))
    for order in axes:
        if all(not isinstance(want, int) or shape[axis] == want for axis, want in zip(order, declared, strict=True)):
            return f"; its channels lie elsewhere: save array.transpose{order}"
    return ""


def _in_type(array: NDArray[Any], spec: InputSpec, label: str) -> NDArray[Any]:
    if array.dtype == _RAW_BF16 and spec.dtype.kind not in "OUS":  # as NumPy reads back what it wrote of BF16
        array = array.view(Format.BF16.dtype)
    if array.dtype == spec.dtype and array.dtype.kind != "O":
        return np.asarray(array, order="C")
    if spec.dtype.kind in "OUS":
        if array.dtype.kind == "U" or (array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat)):
            return array.astype(object)
        raise InputError(f"{label}: input {spec.name!r} is {array.dtype}, the model takes text")
    cast = _cast(array, spec.dtype) if is_number(array.dtype) and is_number(spec.dtype) else None
    if cast is None:
        raise InputError(
            f"{label}: input {spec.name!r} is {array.dtype}, with values that the model's {spec.dtype} cannot hold"
        )
    return np.asarray(cast, order="C")


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The array in another numeric type, or None where that changes values. Floats are rounded to the declared float
    type, as there is no other way to feed them, but may not become infinite."""
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if is_float(array.dtype) and is_float(dtype):
            return None if np.any(np.isfinite(array) & ~np.isfinite(cast)) else cast
        if is_float(array.dtype) or is_float(dtype):
            as_float = (array if is_float(array.dtype) else cast).astype(np.float64)
            if not np.all(np.abs(as_float) < 2.0**63):  # beyond, a cast to an integer is not defined
                return None
            back = cast.astype(np.float64) if is_float(array.dtype) else as_float.astype(array.dtype)
            return cast if np.array_equal(back, array) else None
        same = np.array_equal(cast.astype(array.dtype), array) and np.array_equal(cast < 0, array < 0)
        return cast if same else None


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def names_of(specs: Sequence[InputSpec]) -> str:
    return _quoted(spec.name for spec in specs)
