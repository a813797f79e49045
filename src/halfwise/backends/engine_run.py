"""Runs a built engine with an imported TensorRT module, 8.6 to 11 or TensorRT-RTX. Runs inside the child process only.

Written against the documented API of named tensors and its names in the released bindings; tested with a fake of these
names, never with the real library on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from halfwise.backends.backend import BackendFailure, BackendOptions, BackendRecord, BackendRun
from halfwise.backends.child import answer
from halfwise.compiler import rtx, tensorrt
from halfwise.compiler.native_build import import_first
from halfwise.core.child.serve import Answer, Request
from halfwise.core.errors import InputError, MissingBackend
from halfwise.emulation.cuda_driver import Cuda, open_cuda

__all__ = ["run_engine", "serve"]

Array = NDArray[Any]

_TYPES: dict[str, Any] = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "INT64": np.int64,
    "INT32": np.int32,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}


def serve(request: Request) -> Answer:
    return answer(request, _run_file)


def run_engine(
    module: Any, cuda: Cuda, backend: str, plan: bytes, feeds: Sequence[Mapping[str, Array]], options: BackendOptions
) -> BackendRun:
    """The engine's outputs for every sample, one after the other on one stream."""
    logger = module.Logger(module.Logger.ERROR) if hasattr(module, "Logger") else _quiet(module)
    gpu = cuda.gpu()
    engine = module.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise MissingBackend(
            f"{backend}: the engine cannot be loaded on {gpu.name} (compute capability {gpu.compute_capability}); it "
            "was built for another GPU or another version"
        )
    context = engine.create_execution_context()
    if context is None:
        raise BackendFailure(f"{backend}: not enough memory on {gpu.name} to run the engine")
    run = _Run(module, cuda, engine, context)
    outputs = tuple(run.sample(feed, index) for index, feed in enumerate(feeds))
    record = BackendRecord(
        backend=backend,
        library="TensorRT-RTX" if backend == "rtx" else "TensorRT",
        version=str(getattr(module, "__version__", "")),
        device=gpu.name,
        compute_capability=gpu.compute_capability,
        driver=gpu.driver,
        cuda=gpu.cuda,
        tf32=options.tf32,
        io_binding=True,
    )
    return BackendRun(outputs, record)


def _run_file(backend: str, engine: Path, feeds: Sequence[Mapping[str, Array]], options: BackendOptions) -> BackendRun:
    try:
        module = import_first((rtx if backend == "rtx" else tensorrt).MODULES)
    except MissingBackend as error:
        raise MissingBackend(f"{backend} is not usable here: {error}") from error
    return run_engine(module, open_cuda(options.device), backend, engine.read_bytes(), feeds, options)


class _Run:
    def __init__(self, module: Any, cuda: Cuda, engine: Any, context: Any) -> None:
        self._module, self._cuda, self._engine, self._context = module, cuda, engine, context
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        inputs = module.TensorIOMode.INPUT
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == inputs]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) != inputs]

    def sample(self, feed: Mapping[str, Array], index: int) -> dict[str, Array]:
        taken: list[int] = []
        hosts: list[Array] = []  # what an address on the host points to has to live until the end
        try:
            for name in self._inputs:
                if name not in feed:
                    raise InputError(f"sample {index + 1} has no input {name!r}, which the engine wants")
                hosts.append(self._give(name, np.ascontiguousarray(feed[name], dtype=self._type(name)), taken))
            allocators = {name: self._receiver(name) for name in self._outputs}
            try:
                if not self._context.execute_async_v3(self._cuda.stream):
                    raise BackendFailure(f"the engine did not run on sample {index + 1}")
                self._cuda.wait()
                return {name: self._fetch(name, receiver) for name, receiver in allocators.items()}
            finally:
                taken += [receiver.pointer for receiver in allocators.values() if receiver.pointer]
        finally:
            for pointer in taken:
                self._cuda.free(pointer)

    def _type(self, name: str) -> Any:
        kind = str(self._engine.get_tensor_dtype(name)).rpartition(".")[2]
        if kind not in _TYPES:
            raise BackendFailure(f"tensor {name!r} of the engine is of type {kind}, which NumPy does not know")
        return _TYPES[kind]

    def _give(self, name: str, array: Array, taken: list[int]) -> Array:
        if not self._context.set_input_shape(name, tuple(array.shape)):
            raise BackendFailure(f"the engine does not take input {name!r} in the shape {tuple(array.shape)}")
        if self._engine.get_tensor_location(name) == self._module.TensorLocation.HOST:  # a shape tensor
            array = array if array.ndim else array.reshape(1)
            self._context.set_tensor_address(name, array.ctypes.data)
            return array
        pointer = self._cuda.allocate(array.nbytes)
        taken.append(pointer)
        self._cuda.to_device(pointer, array)
        self._context.set_tensor_address(name, pointer)
        return array

    def _receiver(self, name: str) -> Any:
        """Where an output goes: memory that is taken once its size is known, which some only are at run time."""
        cuda = self._cuda

        class Receiver(self._module.IOutputAllocator):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.pointer = 0
                self.size = 0
                self.shape: tuple[int, ...] = ()

            def reallocate_output(self, tensor_name: str, memory: Any, size: int, alignment: int) -> int:
                if size > self.size or not self.pointer:
                    if self.pointer:
                        cuda.free(self.pointer)
                    self.pointer, self.size = cuda.allocate(size), size
                return self.pointer

            def reallocate_output_async(
                self, tensor_name: str, memory: Any, size: int, alignment: int, stream: Any
            ) -> int:
                return self.reallocate_output(tensor_name, memory, size, alignment)

            def notify_shape(self, tensor_name: str, shape: Any) -> None:
                self.shape = tuple(shape)

        receiver = Receiver()
        if not self._context.set_output_allocator(name, receiver):
            raise BackendFailure(f"the engine accepts no memory for its output {name!r}")
        return receiver

    def _fetch(self, name: str, receiver: Any) -> Array:
        array = np.empty(receiver.shape, dtype=self._type(name))
        if math.prod(receiver.shape):
            self._cuda.to_host(array, receiver.pointer)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _quiet(module: Any) -> Any:
    class Quiet(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            if str(severity).rpartition(".")[2] in ("ERROR", "INTERNAL_ERROR"):
                print(msg, flush=True)

    return Quiet()
