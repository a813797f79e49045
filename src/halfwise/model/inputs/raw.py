"""Raw values without a header, as trtexec's --loadInputs takes them: the model says their type, and their shape."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.files.bindings import TYPES, binding_of
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.readable import readable
from halfwise.model.inputs.shapes import Shapes

__all__ = ["named_files", "raw_arrays", "raw_files"]

_SUFFIXES = (".bin", ".raw", ".dat")


def named_files(text: str, specs: Sequence[InputSpec]) -> dict[str, Path] | None:
    """`NAME:FILE[,NAME:FILE]`, a name in single quotes where it holds a colon; None for what is not of this form."""
    found: dict[str, Path] = {}
    for item in text.split(","):
        names = [
            spec.name for spec in specs for start in (f"{spec.name}:", f"'{spec.name}':") if item.startswith(start)
        ]
        if not names:
            return None
        name = max(names, key=len)
        quoted = item.startswith("'")
        found[name] = Path(item[len(name) + (3 if quoted else 1) :])
    return found


def raw_files(folder: Path, specs: Sequence[InputSpec]) -> dict[str, Path]:
    """The files of a folder that are named after the inputs; empty where one lacks."""
    safe = {re.sub(r"[^\w.-]", "_", spec.name): spec.name for spec in specs}
    found: dict[str, Path] = {}
    for file in folder.iterdir():
        bound = binding_of(file)
        if bound is None:
            name = safe.get(file.stem)
        else:
            name = None if bound.is_output else next((spec.name for spec in specs if bound.is_of(spec.name)), None)
        if name is not None and file.suffix.lower() in _SUFFIXES and file.is_file():
            found[name] = file
    return found if found.keys() >= {spec.name for spec in specs if not spec.optional} else {}


def raw_arrays(files: Mapping[str, Path], specs: Sequence[InputSpec], shapes: Shapes | None) -> dict[str, Any]:
    """The arrays in files, by the names of the inputs."""
    by_name = {spec.name: spec for spec in specs}
    return {name: _array(path, by_name[name], shapes) for name, path in files.items()}


def _array(path: Path, spec: InputSpec, shapes: Shapes | None) -> NDArray[Any]:
    if spec.dtype.kind in "OUS":
        raise InputError(f"{path}: input {spec.name!r} is text, which raw values cannot hold; give an .npz")
    if (bound := binding_of(path)) is not None and bound.type in TYPES:
        with readable(str(path)):
            return bound.read().astype(spec.dtype)
    with readable(str(path)):
        content = path.read_bytes()
    stated = shapes.of(spec.name) if shapes is not None else ()
    for shape in stated:
        if math.prod(shape) * spec.dtype.itemsize == len(content):
            return np.frombuffer(content, spec.dtype).reshape(shape)
    found = None if stated else _shape_for(len(content), spec)
    if found is None:
        takes = "x".join("?" if dim is None else str(dim) for dim in (stated[0] if stated else spec.shape or ())) or "?"
        raise InputError(
            f"{path}: holds {len(content):,} bytes, which is no {takes} of {spec.dtype} for input {spec.name!r}; "
            f"state the shape with --shapes '{spec.name}:...'"
        )
    return np.frombuffer(content, spec.dtype).reshape(found)


def _shape_for(size: int, spec: InputSpec) -> tuple[int, ...] | None:
    """The declared shape, its one open dimension, or else the batch, as large as the file tells."""
    count, odd = divmod(size, spec.dtype.itemsize)
    if odd or spec.shape is None:
        return None
    known = [dim for dim in spec.shape if isinstance(dim, int)]
    opened = [place for place, dim in enumerate(spec.shape) if not isinstance(dim, int)]
    if not opened:
        whole = math.prod(known)
        if whole == count:
            return tuple(known)
        return (known[0] * (count // whole), *known[1:]) if known and whole and count and count % whole == 0 else None
    if len(opened) > 1 or not math.prod(known) or count % math.prod(known):
        return None
    return tuple(dim if isinstance(dim, int) else count // math.prod(known) for dim in spec.shape)
