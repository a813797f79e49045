"""Weights of large files on their way through memory: the next ones are asked for, those that do not fit are let go.

A walk reads a file from its beginning to its end, and the next walk does so again. Of a file larger than memory a
system keeps what was read last, and the next walk finds nothing of what it begins with. So the beginning of it stays,
and the rest is let go as soon as it was read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import onnx_ir as ir

from halfwise.core.control_groups import memory_free
from halfwise.model.weights import DerivedTensor, stored_tensor

__all__ = ["Passing"]

_LEAST = 1 << 20  # bytes of a weight that is worth asking for
_PIECE = 1 << 19  # bytes of one request: of a larger one a system may read the beginning only
_STAYS = 0.9  # of the memory that is free,
_WALK = 2 << 30  # but for so many bytes, which a walk takes itself


class Passing:
    """The weights of the steps of one walk, in order, each of which begins once for all inputs. Of files that stay the
    first walk through them asks."""

    def __init__(self, steps: Iterable[Iterable[ir.TensorProtocol]]) -> None:
        every = [[large for each in step if (large := _large(each)) is not None] for step in steps]
        sizes = _sizes({str(tensor.path) for step in every for tensor in step})
        self._stay = _staying(sizes)
        self._steps = [] if self._stay == sizes and _PASSED.issuperset(sizes) else every
        _PASSED.update(sizes)
        numbers = [number for number, step in enumerate(self._steps) if step]
        self._next = dict(pairwise(numbers))
        self._now: int | None = None

    def at(self, number: int) -> None:
        """A step begins: what the one before it read was read."""
        if number == self._now or number >= len(self._steps) or not self._steps[number]:
            return
        if self._now is None:
            self._ask_for(number)
        if number in self._next:
            self._ask_for(self._next[number])
        self._let_go(but=self._steps[number])
        self._now = number

    def end(self) -> None:
        """What the last step read was read."""
        self._let_go()
        self._now = None

    def _ask_for(self, number: int) -> None:
        for tensor in self._steps[number]:
            _ask_for(tensor)

    def _let_go(self, but: Sequence[ir.ExternalTensor] = ()) -> None:
        for tensor in () if self._now is None else self._steps[self._now]:
            if not any(tensor is each for each in but):
                _let_go(tensor, self._stay[str(tensor.path)])


_PASSED = set[str]()  # files of which something was asked for


def _sizes(paths: Iterable[str]) -> dict[str, int]:
    sizes = dict.fromkeys(sorted(paths), 0)
    for path in sizes:
        with suppress(OSError):  # whoever reads it tells
            sizes[path] = Path(path).stat().st_size
    return sizes


def _staying(sizes: Mapping[str, int]) -> dict[str, int]:
    """So many bytes stay from the beginning of each file: the first files come first."""
    left = max(round(_STAYS * memory_free()) - _WALK, 0) if sizes else 0
    stay: dict[str, int] = {}
    for path, size in sizes.items():
        stay[path] = min(size, left)
        left -= stay[path]
    return stay


def _large(tensor: ir.TensorProtocol) -> ir.ExternalTensor | None:
    """What it is read from; None where that is small, or in memory."""
    stored = stored_tensor(tensor)
    while isinstance(stored, DerivedTensor):
        stored = stored_tensor(stored.source)
    return stored if isinstance(stored, ir.ExternalTensor) and stored.nbytes >= _LEAST else None


def _ask_for(tensor: ir.ExternalTensor) -> None:
    if hasattr(os, "posix_fadvise"):
        start = tensor.offset or 0
        end = start + tensor.nbytes
        with suppress(OSError):
            file = os.open(tensor.path, os.O_RDONLY)
            try:
                for piece in range(start, end, _PIECE):
                    os.posix_fadvise(file, piece, min(_PIECE, end - piece), os.POSIX_FADV_WILLNEED)
            finally:
                os.close(file)


def _let_go(tensor: ir.ExternalTensor, stay: int) -> None:
    """Of its pages those behind what stays."""
    start, page = max(tensor.offset or 0, stay), mmap.PAGESIZE
    start = -(-start // page) * page
    size = ((tensor.offset or 0) + tensor.nbytes) // page * page - start
    if size > 0 and hasattr(os, "posix_fadvise") and hasattr(mmap, "MADV_DONTNEED"):
        with suppress(OSError, ValueError):
            if isinstance(tensor.raw, mmap.mmap):
                tensor.raw.madvise(mmap.MADV_DONTNEED, start, size)  # what is mapped would stay
            file = os.open(tensor.path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, start, size, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
