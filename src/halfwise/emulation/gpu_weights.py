"""Weights on a GPU: several threads read their file into memory that the GPU reaches by itself, and it rounds them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from halfwise.core.cores import cores, in_blocks
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.formats import Format
from halfwise.emulation.cuda_driver import open_cuda
from halfwise.emulation.gpu_models import multiplying, rounding, unpacking
from halfwise.emulation.ort import Session, upload
from halfwise.emulation.unpacked_tensor import UnpackedTensor
from halfwise.emulation.weights import Room, RoundedWeights, held_in_fp32
from halfwise.model.weights import DerivedTensor, stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["GpuWeights", "Memory", "gpu_weights", "on_gpu"]

Array = NDArray[Any]

_PIECE = 1 << 22  # bytes that a thread reads at a time: most weights are of several pieces
_ROUNDED = 1 << 25  # elements that the GPU rounds at a time
_MULTIPLIED = 1 << 27  # elements that it multiplies at a time, and all of a weight
_SHARE = 0.4  # of the GPU's free memory that weights may take which are kept: as much again may be lost between them
_SINGLE, _HALF, _BYTES = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.uint8)
_PROBE = (1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-25, 3 * 2.0**-26, 65519.99, 65520.0, -7e4, -0.0, -np.inf, np.nan)


class Memory(Protocol):
    """What is asked of a GPU's driver."""

    def enter(self) -> None: ...
    def unused(self) -> int: ...
    def reachable(self, size: int) -> NDArray[np.uint8]: ...
    def allocate(self, size: int) -> int: ...
    def to_device(self, pointer: int, array: NDArray[Any]) -> None: ...


@dataclass(frozen=True)
class _Lane:
    """Room for a piece on its way: here and there."""

    here: NDArray[np.uint8]
    there: int


class GpuWeights:
    """Each weight is read from its file once and kept as it is stored, as far as there is room: it is rounded whenever
    it is asked for. What finds no room is read anew, and lies there as long as it is needed.
    """

    def __init__(self, memory: Memory, device: str = "cuda") -> None:
        self._memory, self._device = memory, device
        self._room = int(_SHARE * memory.unused())
        self._kept: WeakKeyDictionary[ir.ExternalTensor, ort.OrtValue] = WeakKeyDictionary()
        self._lanes: SimpleQueue[_Lane] = SimpleQueue()
        for _ in range(cores()):
            self._lanes.put(_Lane(memory.reachable(_PIECE), memory.allocate(_PIECE)))
        self._one = threading.Lock()  # that rounds
        self._rounding = {dtype: self._session(rounding(dtype)) for dtype in (_SINGLE, _HALF)}
        self._products: dict[tuple[int, Format], Session] = {}
        self._unpacking: dict[bytes, Session] = {}

    def of(self, weight: Weight) -> Any:
        """As the runtime takes it; None where that is not known here."""
        tensor = stored_tensor(weight.tensor)
        if isinstance(tensor, UnpackedTensor):
            return self._unpacked(tensor, weight.fmt)
        if isinstance(tensor, DerivedTensor):
            return self._product(tensor, weight.fmt)
        if not isinstance(tensor, ir.ExternalTensor) or weight.fmt not in (Format.FP32, Format.FP16):
            return None
        stored = np.dtype(tensor.dtype.numpy())
        if stored not in self._rounding or stored.byteorder == ">":
            return None
        as_it_is = stored == _SINGLE and weight.fmt is Format.FP32
        kept = self._held(tensor, stored)
        if kept is None:
            made = self._empty(tensor.shape.numpy(), _SINGLE)
            self._bring(tensor, stored, made.data_ptr(), as_it_is=as_it_is)
            return made
        if as_it_is:
            return kept
        self._memory.enter()
        made = self._empty(tensor.shape.numpy(), _SINGLE)
        for start in range(0, tensor.size, _ROUNDED):
            source, target = kept.data_ptr() + start * stored.itemsize, made.data_ptr() + start * _SINGLE.itemsize
            self._round(stored, source, target, min(_ROUNDED, tensor.size - start))
        return made

    def _product(self, tensor: DerivedTensor, fmt: Format | None) -> Any:
        """The same of another weight times factors."""
        factors, source = tensor.factors(), stored_tensor(tensor.source)
        if not isinstance(source, ir.ExternalTensor) or source.dtype is not ir.DataType.FLOAT:
            return None
        fits = source.size <= _MULTIPLIED and {each.dtype for each in factors} == {_SINGLE}
        if fmt not in (Format.FP32, Format.FP16) or not fits:
            return None
        given = self._held(source, _SINGLE)
        if given is None:
            given = self._empty(source.shape.numpy(), _SINGLE)
            self._bring(source, _SINGLE, given.data_ptr(), as_it_is=True)
        self._memory.enter()
        made = self._empty(source.shape.numpy(), _SINGLE)
        session = self._multiplying(len(factors), fmt)
        binding = session._session.io_binding()
        binding.bind_ortvalue_input("x", given)
        for number, factor in enumerate(factors):
            binding.bind_ortvalue_input(f"factor{number}", self._there(factor))
        binding.bind_ortvalue_output("y", made)
        self._run(session, binding)
        return made

    def _multiplying(self, factors: int, fmt: Format) -> Session:
        key = factors, fmt
        if key not in self._products:
            self._products[key] = self._session(multiplying(factors, rounded=fmt is Format.FP16))
        return self._products[key]

    def _unpacked(self, tensor: UnpackedTensor, fmt: Format | None) -> Any:
        """Numbers of few bits, some rows at a time."""
        source = stored_tensor(tensor.source)
        if not isinstance(source, ir.ExternalTensor) or fmt not in (Format.FP32, Format.FP16):
            return None
        packed = self._held(source, _BYTES)
        if packed is None:
            packed = self._empty((source.nbytes,), _BYTES)
            self._bring(source, _BYTES, packed.data_ptr(), as_it_is=True)
        self._memory.enter()
        made, at, recipe = self._empty(tensor.shape.numpy(), _SINGLE), tensor.layout, tensor.steps()
        session = self._session_of(unpacking(at, [by for by, _ in recipe.changes], rounded=fmt is Format.FP16))
        table, width = self._there(recipe.numbers), at.columns * at.bits // 8
        together = at.block if at.down and at.scales[0] > 1 else 1
        several = max(1, _ROUNDED // (at.columns * together)) * together
        for first in range(0, at.rows, several):
            rows = min(several, at.rows - first)
            binding = session._session.io_binding()
            start, begin = packed.data_ptr() + first * width, made.data_ptr() + first * at.columns * _SINGLE.itemsize
            binding.bind_input("x", self._device, 0, np.uint8, (rows, width), start)
            binding.bind_ortvalue_input("table", table)
            for number, (_, each) in enumerate(recipe.changes):
                binding.bind_ortvalue_input(f"change{number}", self._there(at.part(each, first, first + rows)))
            binding.bind_output("y", self._device, 0, np.float32, (rows, at.columns), begin)
            self._run(session, binding)
        return made

    def _there(self, array: Array) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self._device, 0)

    def _session_of(self, proto: onnx.ModelProto) -> Session:
        content = proto.SerializeToString(deterministic=True)
        if content not in self._unpacking:
            self._unpacking[content] = self._session(proto)
        return self._unpacking[content]

    def _held(self, tensor: ir.ExternalTensor, stored: np.dtype[Any]) -> ort.OrtValue | None:
        """As it is stored, where there is room for it."""
        kept = self._kept.get(tensor)
        if kept is None and sum(each.nbytes for each in [tensor, *self._kept]) <= self._room:
            kept = self._empty(
                (tensor.nbytes // stored.itemsize,) if stored == _BYTES else tensor.shape.numpy(), stored
            )
            self._bring(tensor, stored, kept.data_ptr(), as_it_is=True)
            self._kept[tensor] = kept
        return kept

    def _empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_shape_and_type(shape, dtype.type, self._device, 0)

    def _bring(self, tensor: ir.ExternalTensor, stored: np.dtype[Any], pointer: int, *, as_it_is: bool) -> None:
        """From its file to the GPU, there rounded to FP16 and held in FP32, unless it goes there as it is."""
        path, offset = Path(tensor.path), tensor.offset or 0

        def bring(start: int, stop: int) -> None:
            lane = self._lanes.get()
            try:
                self._memory.enter()
                piece = lane.here[: (stop - start) * stored.itemsize]
                _read(path, offset + start * stored.itemsize, piece, tensor.name or "")
                if as_it_is:
                    self._memory.to_device(pointer + start * stored.itemsize, piece)
                else:
                    self._memory.to_device(lane.there, piece)
                    self._round(stored, lane.there, pointer + start * _SINGLE.itemsize, stop - start)
            finally:
                self._lanes.put(lane)

        in_blocks(bring, tensor.nbytes // stored.itemsize, _PIECE // stored.itemsize)

    def is_honest(self) -> bool:
        """Whether it rounds as it should."""
        given = np.array(_PROBE, np.float32)
        lane = self._lanes.get()
        made = ort.OrtValue.ortvalue_from_shape_and_type(given.shape, np.float32, self._device, 0)
        self._memory.to_device(lane.there, given)
        self._round(_SINGLE, lane.there, made.data_ptr(), given.size)
        self._lanes.put(lane)
        return bool(np.array_equal(made.numpy(), held_in_fp32(given, Format.FP16), equal_nan=True))

    def _round(self, stored: np.dtype[Any], source: int, target: int, size: int) -> None:
        session = self._rounding[stored]
        binding = session._session.io_binding()
        binding.bind_input("x", self._device, 0, stored.type, (size,), source)
        binding.bind_output("y", self._device, 0, np.float32, (size,), target)
        self._run(session, binding)

    def _run(self, session: Session, binding: Any) -> None:
        with self._one:
            session._session.run_with_iobinding(binding)

    def _session(self, proto: onnx.ModelProto) -> Session:
        return Session(proto, threads=1, device="cuda" if self._device == "cuda" else "cpu")


def _read(path: Path, offset: int, into: NDArray[np.uint8], whose: str) -> None:
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        view = into.data
        while view:
            count = file.readinto(view)
            if not count:
                raise InputError(f"{path} ends before initializer {whose!r}; copy the file again")
            view = view[count:]


@cache
def gpu_weights() -> GpuWeights | None:
    """None where the driver has no such memory, or rounds otherwise: then weights are rounded here and uploaded."""
    try:
        made = GpuWeights(open_cuda())
        return made if made.is_honest() else None
    except (HalfwiseError, OSError, RuntimeError):
        return None


def on_gpu(weight: Weight, rounded: RoundedWeights, room: Room | None = None) -> Any:
    """A weight as a session there takes it; what the GPU cannot round is rounded here."""
    gpu = gpu_weights()
    made = gpu.of(weight) if gpu is not None else None
    return upload(rounded.of(weight, room=room)) if made is None else made
