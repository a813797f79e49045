"""The memory behind what a user hands over: a torch tensor, a NumPy array, or a bare address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Memory", "memory_of"]


@dataclass(frozen=True)
class Memory:
    """`strides` count elements; `span` are the bytes from `address` to the last element touched; `slack` is where in
    its storage the tensor begins, in elements. `kind`: tensor, array or address."""

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    address: int = 0
    span: int = 0
    itemsize: int = 1
    slack: int = 0
    device: str = ""
    pinned: bool = False
    writable: bool = True
    trouble: str = ""  # why its address says nothing: sparse, lazily conjugated, without memory

    @property
    def contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True

    @property
    def channels_last(self) -> bool:
        """Whether the memory order is that of (N, H, W, C), the shape being (N, C, H, W)."""
        if len(self.shape) != 4 or self.contiguous:
            return False
        n, c, h, w = self.shape
        return self.strides == (h * w * c, 1, w * c, c) or (n == 1 and self.strides[1:] == (1, w * c, c))

    @property
    def expanded(self) -> bool:
        return any(stride == 0 and size > 1 for size, stride in zip(self.shape, self.strides, strict=True))

    def overlaps(self, other: Memory) -> bool:
        if not (self.span and other.span) or self.device != other.device:
            return False
        return self.address < other.address + other.span and other.address < self.address + self.span


def memory_of(given: Any) -> Memory | None:
    """None for what is neither."""
    if isinstance(given, bool):
        return None
    if isinstance(given, (int, np.integer)):
        return Memory("address", address=int(given))
    if isinstance(given, np.ndarray):
        return _array(given)
    if hasattr(given, "data_ptr") and hasattr(given, "stride") and hasattr(given, "device"):
        return _tensor(given)
    return None


def _array(array: np.ndarray[Any, Any]) -> Memory:
    size = array.dtype.itemsize
    strides = tuple(stride // size for stride in array.strides) if size else ()
    return Memory(
        "array",
        array.dtype.name,
        array.shape,
        strides,
        array.__array_interface__["data"][0],
        _span(array.shape, strides, size),
        size,
        device="cpu",
        writable=array.flags.writeable,
        trouble="" if array.dtype.kind != "O" else "an array of Python objects, which an engine cannot read",
    )


def _tensor(tensor: Any) -> Memory:
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(int(size) for size in tensor.shape)
    device = str(tensor.device)
    trouble = ""
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        trouble = f"a tensor of layout {tensor.layout}, whose elements do not lie side by side"
    elif device.startswith("meta"):
        trouble = "a tensor on the device 'meta', which has no memory"
    elif getattr(tensor, "is_conj", bool)() or getattr(tensor, "is_neg", bool)():
        trouble = "a lazily conjugated or negated view, whose memory holds other values; call .resolve_conj()"
    if trouble:
        return Memory("tensor", dtype, shape, device=device, trouble=trouble)
    strides = tuple(int(stride) for stride in tensor.stride())
    size = int(tensor.element_size())
    pinned = bool(tensor.is_pinned()) if device == "cpu" and hasattr(tensor, "is_pinned") else False
    slack = int(tensor.storage_offset()) if hasattr(tensor, "storage_offset") else 0
    return Memory(
        "tensor",
        dtype,
        shape,
        strides,
        int(tensor.data_ptr()),
        _span(shape, strides, size),
        size,
        slack,
        device,
        pinned,
    )


def _span(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> int:
    if 0 in shape:
        return 0
    return (sum((extent - 1) * max(stride, 0) for extent, stride in zip(shape, strides, strict=True)) + 1) * size
