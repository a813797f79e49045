"""Each file of weights is mapped once: a mapping for each weight takes a file handle, of which a process has few."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import onnx_ir as ir

__all__ = ["map_once"]


def map_once(values: Iterable[ir.Value]) -> None:
    """Weights in files that are not read yet; who cannot be mapped tells when it is read."""
    files: dict[str, mmap] = {}
    for value in values:
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and tensor.raw is None and tensor.size and tensor.dtype.bitwidth >= 8:
            with suppress(OSError, ValueError):
                _map(tensor, files)


def _map(tensor: ir.ExternalTensor, files: dict[str, mmap]) -> None:
    path = tensor.path
    if path not in files:
        with Path(path).open("rb") as file:
            files[path] = mmap(file.fileno(), 0, access=ACCESS_READ)
    kind = np.dtype(tensor.dtype.numpy()).newbyteorder("<")
    array = np.frombuffer(files[path], kind, tensor.size, tensor.offset or 0)
    tensor._array, tensor.raw = array.reshape(tensor.shape.numpy()), files[path]
