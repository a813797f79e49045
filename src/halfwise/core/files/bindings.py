"""The files that trtexec names itself: bindings of --dumpRawBindingsToFile, and safe names of tensors in general."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.formats import Format

__all__ = ["DOTS", "TYPES", "Binding", "binding_of", "named", "safe_name"]

_FORM = re.compile(r"(?P<name>.+)(?P<tail>\.(?P<side>input|output)\.(?P<dims>[\d.]*)\.(?P<type>[a-z]+\d*)\.raw)")
_LONGEST, DOTS = 150, "..."  # of a file's name; what is longer loses its middle

TYPES: Mapping[str, Any] = {
    "fp32": np.float32, "fp16": np.float16, "bf16": Format.BF16.dtype, "int64": np.int64, "int32": np.int32,
    "int8": np.int8, "uint8": np.uint8, "bool": np.bool_,
}  # fmt: skip


def safe_name(text: str) -> str:
    """As trtexec writes a file's name: nothing but ASCII letters, digits and ._-, in it."""
    safe = re.sub(rb"[^0-9A-Za-z._,-]", b"_", text.encode()).decode()
    half = (_LONGEST - len(DOTS)) // 2
    return safe if len(safe) <= _LONGEST else f"{safe[:half]}{DOTS}{safe[-half:]}"


@dataclass(frozen=True)
class Binding:
    """One input or output of an engine. `name` is the file's, in which slashes and colons became underscores."""

    path: Path
    name: str
    tail: str
    is_output: bool
    shape: tuple[int, ...]
    type: str

    def is_of(self, name: str) -> bool:
        """Whether it is the tensor of this name."""
        return safe_name(name + self.tail) == self.path.name

    def read(self) -> NDArray[Any]:
        kind, content = TYPES.get(self.type), self.path.read_bytes()
        if kind is None or math.prod(self.shape) * np.dtype(kind).itemsize != len(content):
            raise InputError(f"{self.path}: holds {len(content):,} bytes, which its name does not tell of")
        return np.frombuffer(content, kind).reshape(self.shape)


def binding_of(path: Path) -> Binding | None:
    """What the file's name tells; None for any other file."""
    found = _FORM.fullmatch(path.name)
    if found is None:
        return None
    shape = tuple(int(size) for size in found["dims"].split(".") if size)
    return Binding(path, found["name"], found["tail"], found["side"] == "output", shape, found["type"])


def named(arrays: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The same by the names of a model, where only their safe forms are known."""
    safe = {safe_name(name): name for name in names if name not in arrays}
    return {safe.get(name, name): array for name, array in arrays.items()}
