"""Compiles CUDA sources with NVIDIA's runtime compiler, which comes with ONNX Runtime's GPU package."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from halfwise.core.errors import HalfwiseError, MissingBackend

__all__ = ["compiled"]

_VERSIONS = (13, 12)  # of CUDA
_ON_WINDOWS = sys.platform == "win32"
_PATTERN = "nvrtc64_*0_0.dll" if _ON_WINDOWS else "libnvrtc.so.*"
_OLDEST = b"--gpu-architecture=compute_75"  # what the driver makes its own code of, also for newer ones


def compiled(source: str) -> bytes:
    """Its PTX."""
    library, program = _compiler(), ctypes.c_void_p()
    _call(library, "nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"halfwise.cu", 0, None, None)
    try:
        _call(library, "nvrtcCompileProgram", program, 1, (ctypes.c_char_p * 1)(_OLDEST))
        size = ctypes.c_size_t()
        _call(library, "nvrtcGetPTXSize", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        _call(library, "nvrtcGetPTX", program, text)
        return text.value
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _compiler() -> Any:
    for name in _names():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MissingBackend("NVIDIA's runtime compiler (NVRTC) is not installed: pip install 'halfwise[gpu]'")


def _names() -> Iterator[str]:
    """As the system finds it or another library has loaded it, and then in NVIDIA's packages."""
    for version in _VERSIONS:
        yield f"nvrtc64_{version}0_0.dll" if _ON_WINDOWS else f"libnvrtc.so.{version}"
    folders = (Path(folder) / "nvidia" for folder in sys.path)
    yield from (str(path) for folder in folders for path in sorted(folder.glob(f"*/**/{_PATTERN}"), reverse=True))


def _call(library: Any, name: str, *arguments: Any) -> None:
    if code := getattr(library, name)(*arguments):
        raise HalfwiseError(f"{name} failed with error {code}")
