"""This machine in the place of a GPU: its memory, and sessions that tell what they are given."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.emulation.ort import Device, Session

__all__ = ["Here", "telling"]


class Here:
    """Memory of this machine."""

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.kept: list[Any] = []

    def enter(self) -> None: ...

    def unused(self) -> int:
        return self.free

    def reachable(self, size: int) -> NDArray[np.uint8]:
        return np.empty(size, np.uint8)

    def allocate(self, size: int) -> int:
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])

    def to_device(self, pointer: int, array: NDArray[Any]) -> None:
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)


def telling(taken: list[set[type]]) -> type[Session]:
    """Of sessions for a GPU, which run here, the types of what each run is given."""

    class Seen(Session):
        def __init__(self, proto: onnx.ModelProto, *, device: Device = "cpu", **options: Any) -> None:
            super().__init__(proto, **options)
            self.asked = device

        def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
            if self.asked == "cuda":
                taken.append({type(each) for each in feeds.values()})
            return super().run(feeds, outputs)

    return Seen
