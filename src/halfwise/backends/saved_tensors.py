"""Tensors inside an engine, as trtexec's --saveAllDebugTensors writes them: a summary, and a file a tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.files.bindings import DOTS, TYPES, safe_name
from halfwise.core.json_text import read_json
from halfwise.model.inputs.readable import readable

__all__ = ["SavedTensor", "is_tensor_file", "tensors_of_files", "tensors_of_summary"]

Array = NDArray[Any]

_FILE = re.compile(r"\d{4,}_.+\.(npy|raw|str)")
_ENDS = ("_to_float.npy", "_to_int8.npy", ".npy", ".raw")  # the first two where NumPy has no such type
_NUMPY, _RAW = "numpy", "raw"
_TYPES = {"FLOAT": "fp32", "HALF": "fp16"}


@dataclass(frozen=True)
class SavedTensor:
    """One tensor, in the order of execution. `lowest`, `highest`, `average`: of its values; None: not stated."""

    name: str
    type: str = ""  # such as "fp16"; empty: not known
    shape: tuple[int, ...] | None = None
    lowest: float | None = None
    highest: float | None = None
    average: float | None = None
    file: Path | None = None

    def read(self, shape: tuple[int, ...]) -> Array | None:
        """The values; `shape` is that of the model's tensor, for a file that does not tell. An InputError where the
        file is damaged, or holds no numbers."""
        if self.file is None or not self.file.is_file():
            return None
        with readable(str(self.file)):
            if self.file.suffix == ".npy":
                with self.file.open("rb") as stream:
                    return _numbers(np.lib.format.read_array(stream, allow_pickle=False))
            content, count = self.file.read_bytes(), math.prod(self.shape or shape)
        sizes = {2 * count: np.float16, 4 * count: np.float32}
        kind = TYPES.get(self.type) if self.type else sizes.get(len(content))
        if kind is None or count * np.dtype(kind).itemsize != len(content):
            return None
        return np.frombuffer(content, kind).reshape(self.shape or shape)


def _numbers(array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"it holds values of type {array.dtype}, which are no numbers")
    return array


def is_tensor_file(path: Path) -> bool:
    """By its name: it begins with the number of the tensor."""
    return _FILE.fullmatch(path.name) is not None


def tensors_of_summary(path: Path) -> tuple[SavedTensor, ...]:
    """What `tensor_summary.json` tells of the first run; the files that it names lie beside it."""
    try:
        every = map(partial(_tensor, path.parent), read_json(path)["tensors"])
        return tuple({tensor.name: tensor for tensor in reversed(list(every))}.values())[::-1]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: is no summary of tensors by trtexec: {error}") from None


def _tensor(folder: Path, told: Mapping[str, Any]) -> SavedTensor:
    files: Mapping[str, str] = told.get("files", {})
    file = next((files[kind] for kind in (_NUMPY, _RAW, "assigned") if kind in files), None)
    stated = told.get("statistics", {})
    lowest, highest, average = (float(stated[key]) if key in stated else None for key in ("min", "max", "avg"))
    kind = str(told.get("type", ""))
    shape = tuple(int(size) for size in told["shape"])
    path = folder / Path(file).name if file is not None else None
    return SavedTensor(str(told["name"]), _TYPES.get(kind, kind.lower()), shape, lowest, highest, average, path)


def tensors_of_files(files: Iterable[Path], names: Iterable[str]) -> tuple[SavedTensor, ...]:
    """The files that hold a tensor of the model by their names; a safe name loses slashes and colons."""
    known = tuple(names)
    by_safe = {safe_name(name): name for name in known}
    found: dict[str, SavedTensor] = {}
    for file in sorted(files):
        number, _, rest = file.name.partition("_")
        end = next((end for end in _ENDS if rest.endswith(end)), None)
        if end is None or not is_tensor_file(file):
            continue
        name = by_safe.get(rest.removesuffix(end))
        if name is None and DOTS in rest:
            name = next((each for each in known if safe_name(f"{number}_{each}{end}") == file.name), None)
        if name is not None:
            found.setdefault(name, SavedTensor(name, file=file))
    return tuple(found.values())
