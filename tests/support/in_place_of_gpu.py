"""This machine in the place of a GPU: its memory, and sessions that tell what they are given."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.emulation.gpu_products import KERNELS
from halfwise.emulation.ort import Device, Session

__all__ = ["Here", "Multiplier", "telling"]


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


class Multiplier:
    """Does what the kernels for ordered products are asked to do, in the words of their source: fused steps by numbers
    of 64 bits, cut after so many elements of each 16 columns; one row by plain products and sums."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @property
    def functions(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(KERNELS, 1)}

    def enter(self) -> None: ...

    def launch(self, function: int, blocks: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        name, values = KERNELS[function - 1], [each.value for each in arguments]
        self.asked.append(name)
        if name == "rows_by_table":
            rows, table, bias, made, n, k, m, turned, cuts = values
            assert (blocks, threads) == ((-(-n // 64), -(-m // 64)), 256)
            held = _held(table, (n, k)).T if turned else _held(table, (k, n))
            every = np.repeat(_held(cuts, (-(-n // 16),), np.int32), 16)[:n]
            begin = _held(bias, (n,)) if bias else None
            _held(made, (m, n))[:] = _in_pieces(_held(rows, (m, k)), held, every, begin)
            return
        row, table, bias, made, n, k = values
        given, turned = _held(row, (k,)), name == "row_by_turned"
        assert (blocks, threads) == ((-(-n // (32 if turned else 64)), 1), 256 if turned else 64)
        begin = _held(bias, (n,)) if bias else np.zeros(n, np.float32)
        if turned:
            _held(made, (n,))[:] = _by_eights(given, _held(table, (n, k))) + begin
        else:
            _held(made, (n,))[:] = _by_fours(given, _held(table, (k, n)), begin)


def _held(pointer: int, shape: tuple[int, ...], kind: type[np.generic] = np.float32) -> NDArray[Any]:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), kind).reshape(shape)


def _in_pieces(rows: NDArray[Any], table: NDArray[Any], cuts: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[Any]:
    piece = np.zeros((len(rows), table.shape[1]), np.float32)
    total = piece if bias is None else piece + bias
    for at in range(len(table)):
        exact = rows[:, at, None].astype(np.longdouble) * table[at].astype(np.longdouble)
        piece = (exact + piece).astype(np.float32)
        ends = (at + 1) % cuts == 0 if at + 1 < len(table) else np.full(cuts.shape, True)
        first = (at < cuts) & (bias is None)
        total = np.where(ends, np.where(first, piece, total + piece), total)
        piece = np.where(ends, np.float32(0), piece)
    return total


def _by_fours(row: NDArray[Any], table: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
    start = 0
    for together in (4, 2, 1):
        while len(row) - start >= together:
            part = row[start] * table[start]
            for at in range(start + 1, start + together):
                part = part + row[at] * table[at]
            total, start = part + total, start + together
    return total


def _by_eights(row: NDArray[Any], table: NDArray[Any]) -> NDArray[Any]:
    columns, depth = table.shape
    products = np.zeros((columns, -(-depth // 8) * 8), np.float32)
    products[:, :depth] = row * table
    s = [np.zeros(columns, np.float32)] * 8
    for start in range(0, depth, 8):
        s = [each + products[:, start + lane] for lane, each in enumerate(s)]
    four = (((s[0] + s[1]) + s[2]) + s[3]) + (((s[4] + s[5]) + s[6]) + s[7])
    two = ((s[0] + s[2]) + (s[4] + s[6])) + ((s[1] + s[3]) + (s[5] + s[7]))
    one = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    place = np.arange(columns)
    return np.where(place < columns // 4 * 4, four, np.where(place < columns // 2 * 2, two, one))


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
