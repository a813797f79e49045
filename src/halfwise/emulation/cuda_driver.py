"""The NVIDIA driver through its own library, loaded with ctypes: which GPU there is, and memory on it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import HalfwiseError, MissingBackend

__all__ = ["Cuda", "Gpu", "driver", "gpu_here", "open_cuda"]

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MANAGEMENT = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_CAPABILITY_MAJOR, _CAPABILITY_MINOR, _L2_CACHE = 75, 76, 38  # of CUdevice_attribute
_PORTABLE = 1  # of CU_MEMHOSTALLOC: for all contexts


@dataclass(frozen=True)
class Gpu:
    """One device as its driver describes it."""

    name: str
    compute_capability: str
    cuda: str
    driver: str


class Cuda:
    """The driver's context on one device, made current in this thread: memory, copies and one stream."""

    def __init__(self, library: Any, device: int) -> None:
        self._library = library
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= device < count.value:
            raise MissingBackend(f"there is no GPU number {device}: the NVIDIA driver sees {count.value or 'none'}")
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), device)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.enter()
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), 0)
        self.stream = int(stream.value or 0)

    def gpu(self) -> Gpu:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        major, minor = (self._attribute(which) for which in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR))
        cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return Gpu(name.value.decode(errors="replace"), f"{major}.{minor}", cuda, _driver_version())

    def cache(self) -> int:
        """Bytes of the level-2 cache."""
        return self._attribute(_L2_CACHE)

    def enter(self) -> None:
        """Make the context current in this thread, too."""
        self._call("cuCtxSetCurrent", self._context)

    def reachable(self, size: int) -> NDArray[np.uint8]:
        """Memory of this machine that the GPU copies from by itself; it is kept until the program ends."""
        pointer = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), _PORTABLE)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer.value or 0))

    def unused(self) -> int:
        """Bytes of its memory that nobody holds."""
        unused, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(unused), ctypes.byref(whole))
        return unused.value

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return int(pointer.value)

    def free(self, pointer: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def to_device(self, pointer: int, array: NDArray[Any]) -> None:
        array = np.ascontiguousarray(array)
        if array.nbytes:
            source = ctypes.c_void_p(array.ctypes.data)
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), source, ctypes.c_size_t(array.nbytes))

    def to_host(self, array: NDArray[Any], pointer: int) -> None:
        if array.nbytes:
            target = ctypes.c_void_p(array.ctypes.data)
            self._call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(pointer), ctypes.c_size_t(array.nbytes))

    def wait(self) -> None:
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    def functions(self, code: bytes, names: Sequence[str]) -> dict[str, int]:
        """Those of a compiled source, by name; they are kept until the program ends."""
        module, found = ctypes.c_void_p(), {}
        self._call("cuModuleLoadData", ctypes.byref(module), code)
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            found[name] = int(function.value or 0)
        return found

    def launch(
        self, function: int, blocks: tuple[int, int], threads: int, arguments: Sequence[ctypes._SimpleCData[int]]
    ) -> None:
        """Behind what other libraries began without a stream of their own."""
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        grid = (*blocks, 1, threads, 1, 1, 0)
        self._call("cuLaunchKernel", ctypes.c_void_p(function), *grid, None, places, None)

    def mark(self) -> int:
        """An event behind all that the stream was given so far."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 0)
        self._call("cuEventRecord", event, ctypes.c_void_p(self.stream))
        return int(event.value or 0)

    def milliseconds(self, first: int, last: int) -> float:
        """Between two events, of which this ends the life."""
        found = ctypes.c_float()
        self._call("cuEventSynchronize", ctypes.c_void_p(last))
        self._call("cuEventElapsedTime", ctypes.byref(found), ctypes.c_void_p(first), ctypes.c_void_p(last))
        for event in (first, last):
            self._call("cuEventDestroy_v2", ctypes.c_void_p(event))
        return float(found.value)

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), which, self._device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        told = (text.value or b"").decode(errors="replace") or f"error {code}"
        if name in ("cuInit", "cuDeviceGetCount"):
            raise MissingBackend(f"the NVIDIA driver finds no usable GPU here: {told}")
        raise HalfwiseError(f"{name} failed: {told}")


def driver() -> Any:
    """Its library, loaded and not asked anything yet; MissingBackend where there is none."""
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        raise MissingBackend(
            f"no NVIDIA GPU can be used here: its driver ({_LIBRARY}) is not installed; run this on a machine with one"
        ) from None


def open_cuda(device: int = 0) -> Cuda:
    """The driver on one device; MissingBackend where there is no driver or no such device."""
    return Cuda(driver(), device)


def gpu_here(device: int = 0) -> Gpu:
    return open_cuda(device).gpu()


def _driver_version() -> str:
    """The version of the kernel driver, such as 580.95.05; empty where it cannot be asked."""
    try:
        library = ctypes.CDLL(_MANAGEMENT)
        text = ctypes.create_string_buffer(96)
        known = library.nvmlInit_v2() == 0 and library.nvmlSystemGetDriverVersion(text, len(text)) == 0
    except (OSError, AttributeError):
        return ""
    return text.value.decode(errors="replace") if known else ""
