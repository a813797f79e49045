"""Engines as backends: built for this GPU, run through the driver, refused in one line. Nothing needs a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from halfwise.backends import (
    BackendFailure,
    BackendOptions,
    BackendRecord,
    BackendRun,
    backend_named,
)
from halfwise.backends.engine_run import run_engine
from halfwise.compiler.build import BuildError, BuildResult
from halfwise.core.errors import InputError, MissingBackend
from halfwise.emulation import cuda_driver
from halfwise.emulation.cuda_driver import Cuda, Gpu
from tests.models.backend_models import H200, L4, typed_model
from tests.support.says import Says

FEEDS = [{"x": np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)}, {"x": np.array([[0.0, 1.0, 1.0, 4.0]], np.float32)}]


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    return typed_model(tmp_path / "typed.onnx")


# -- the driver -------------------------------------------------------------------------------------------------------


class FakeDriver:
    """libcuda's functions, with memory on the host; `fails` maps a function to its error code."""

    def __init__(self, count: int = 1, fails: Mapping[str, int] | None = None) -> None:
        self.count, self.fails = count, dict(fails or {})
        self.memory: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self.fails.get(name) or self._call(name, *arguments) or 0

    def _call(self, name: str, *arguments: Any) -> int:
        if name == "cuDeviceGetCount":
            arguments[0]._obj.value = self.count
        elif name == "cuDeviceGetName":
            arguments[0].value = b"NVIDIA H200"
        elif name == "cuDriverGetVersion":
            arguments[0]._obj.value = 13010
        elif name == "cuDeviceGetAttribute":
            arguments[0]._obj.value = {75: 9, 76: 0}[arguments[1]]
        elif name == "cuMemAlloc_v2":
            block = (ctypes.c_char * arguments[1].value)()
            arguments[0]._obj.value = ctypes.addressof(block)
            self.memory[ctypes.addressof(block)] = block
        elif name == "cuMemFree_v2":
            del self.memory[arguments[0].value]
        elif name in ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"):
            ctypes.memmove(arguments[0].value, arguments[1].value, arguments[2].value)
        elif name == "cuGetErrorString":
            arguments[1]._obj.value = b"no CUDA-capable device is detected"
        return 0


def test_the_driver_says_which_gpu_there_is() -> None:
    gpu = Cuda(FakeDriver(), 0).gpu()
    assert (gpu.name, gpu.compute_capability, gpu.cuda) == ("NVIDIA H200", "9.0", "13.1")


def test_memory_goes_there_and_back() -> None:
    driver = FakeDriver()
    cuda = Cuda(driver, 0)
    array, back = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    pointer = cuda.allocate(array.nbytes)
    cuda.to_device(pointer, array)
    cuda.wait()
    cuda.to_host(back, pointer)
    np.testing.assert_array_equal(back, array)
    cuda.free(pointer)
    assert driver.memory == {}


@pytest.mark.parametrize(
    ("driver", "device"), [(FakeDriver(fails={"cuInit": 100}), 0), (FakeDriver(count=0), 0), (FakeDriver(count=2), 2)]
)
def test_a_driver_without_the_gpu(driver: FakeDriver, device: int, says: Says) -> None:
    with says.raises(MissingBackend):
        Cuda(driver, device)


# -- engines ----------------------------------------------------------------------------------------------------------


class FakeEngine:
    """A TensorRT module whose engine doubles `x`; with names that the released bindings have."""

    def __init__(self, driver: FakeDriver, *, loads: bool = True, runs: bool = True, kind: str = "HALF") -> None:
        engine = self
        self.driver, self.runs, self.kind = driver, runs, kind
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.receivers: dict[str, Any] = {}
        module = ModuleType("tensorrt")

        class Logger:
            ERROR = 1

            def __init__(self, severity: int) -> None: ...

        class Runtime:
            def __init__(self, logger: Any) -> None: ...

            def deserialize_cuda_engine(self, plan: bytes) -> Any:
                return engine if loads else None

        class IOutputAllocator: ...

        module.__dict__.update(
            __version__="11.4", Logger=Logger, Runtime=Runtime, IOutputAllocator=IOutputAllocator,
            TensorIOMode=SimpleNamespace(INPUT="in", OUTPUT="out"),
            TensorLocation=SimpleNamespace(HOST="h", DEVICE="d"),
        )  # fmt: skip
        self.module = module

    num_io_tensors = 2

    def get_tensor_name(self, index: int) -> str:
        return ("x", "y")[index]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "x" else "out"

    def get_tensor_dtype(self, name: str) -> str:
        return "DataType.FLOAT" if name == "x" else f"DataType.{self.kind}"

    def get_tensor_location(self, name: str) -> str:
        return "d"

    def create_execution_context(self) -> Any:
        return self

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = shape
        return len(shape) == 2

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name: str, receiver: Any) -> bool:
        self.receivers[name] = receiver
        return True

    def execute_async_v3(self, stream: int) -> bool:
        if not self.runs:
            return False
        count = int(np.prod(self.shapes["x"]))
        given = np.frombuffer(self.driver.memory[self.addresses["x"]], np.float32, count)
        kind = {"HALF": np.float16, "BF16": ml_dtypes.bfloat16}[self.kind]
        result = (given * 2).astype(kind)
        receiver = self.receivers["y"]
        receiver.notify_shape("y", self.shapes["x"])
        pointer = receiver.reallocate_output_async("y", None, result.nbytes, 256, stream)
        ctypes.memmove(pointer, result.tobytes(), result.nbytes)
        return True


def run_fake(engine: FakeEngine, feeds: Sequence[Mapping[str, Any]] = FEEDS, backend: str = "tensorrt") -> BackendRun:
    return run_engine(engine.module, Cuda(engine.driver, 0), backend, b"plan", feeds, BackendOptions())


def test_an_engine_runs_every_sample_and_gives_its_memory_back() -> None:
    driver = FakeDriver()
    run = run_fake(FakeEngine(driver))
    for feed, outputs in zip(FEEDS, run.outputs, strict=True):
        assert outputs["y"].dtype == np.float16
        np.testing.assert_array_equal(outputs["y"], feed["x"] * 2)
    assert driver.memory == {}
    assert (run.record.library, run.record.version, run.record.tf32) == ("TensorRT", "11.4", False)
    assert (run.record.device, run.record.compute_capability) == ("NVIDIA H200", "9.0")


def test_bf16_outputs_are_widened() -> None:
    outputs = run_fake(FakeEngine(FakeDriver(), kind="BF16")).outputs
    assert outputs[0]["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("engine", "feed", "error"),
    [
        (FakeEngine(FakeDriver(), loads=False), FEEDS[0], MissingBackend),
        (FakeEngine(FakeDriver(), runs=False), FEEDS[0], BackendFailure),
        (FakeEngine(FakeDriver()), {}, InputError),
        (FakeEngine(FakeDriver()), {"x": np.zeros(3)}, BackendFailure),
        (FakeEngine(FakeDriver(), kind="FP8"), FEEDS[0], BackendFailure),
    ],
)
def test_engines_that_do_not_run(engine: FakeEngine, feed: Any, error: type[Exception], says: Says) -> None:
    if engine.kind == "FP8":
        engine.execute_async_v3 = lambda stream: engine.receivers["y"].notify_shape("y", (1,)) or True  # type: ignore[method-assign,func-returns-value]
    with says.raises(error):
        run_fake(engine, [feed])
    assert engine.driver.memory == {}


def test_the_names_used_are_names_of_the_real_bindings() -> None:
    module = pytest.importorskip("tensorrt_rtx_bindings")
    fake = FakeEngine(FakeDriver())
    for name in ("get_tensor_name", "get_tensor_mode", "get_tensor_dtype", "get_tensor_location", "num_io_tensors",
                 "create_execution_context"):  # fmt: skip
        assert hasattr(fake, name)
        assert hasattr(module.ICudaEngine, name)
    for name in ("set_input_shape", "set_tensor_address", "set_output_allocator", "execute_async_v3"):
        assert hasattr(fake, name)
        assert hasattr(module.IExecutionContext, name)
    assert hasattr(module, "IOutputAllocator")
    assert {"FLOAT", "HALF", "BF16", "INT64", "INT32", "INT8", "UINT8", "BOOL"} <= set(dir(module.DataType))


def test_tensorrt_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, typed: Path, says: Says) -> None:
    monkeypatch.setattr("halfwise.compiler.tensorrt.available", lambda: False)
    monkeypatch.setattr("halfwise.compiler.rtx.available", lambda: False)
    for name in ("tensorrt", "rtx"):
        with says.raises(MissingBackend):
            backend_named(name).run(typed, FEEDS)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(device: Gpu, build: Any) -> None:
        monkeypatch.setattr("halfwise.compiler.rtx.available", lambda: True)
        monkeypatch.setattr("halfwise.compiler.rtx.build_request", build)
        monkeypatch.setattr(cuda_driver, "gpu_here", lambda number: device)

    return install


def test_an_rtx_engine_is_not_even_built_for_a_gpu_that_it_refuses(installed: Any, typed: Path, says: Says) -> None:
    installed(H200, lambda request: pytest.fail("built"))
    with says.raises(MissingBackend):
        backend_named("rtx").run(typed, FEEDS)


def test_a_model_that_the_compiler_refuses_is_a_failed_build(installed: Any, typed: Path) -> None:
    def refuse(request: Any) -> BuildResult:
        raise BuildError("TensorRT-RTX refuses it", failure="refused", log_path=Path("log"))

    installed(L4, refuse)
    with pytest.raises(BackendFailure, match="TensorRT-RTX refuses it"):
        backend_named("rtx").run(typed, FEEDS)


def test_an_engine_is_built_for_this_gpu_and_these_shapes_without_tf32(
    installed: Any, monkeypatch: pytest.MonkeyPatch, typed: Path
) -> None:
    requests = []

    def build(request: Any) -> BuildResult:
        requests.append(request)
        request.engine_path.write_bytes(b"engine")
        return BuildResult("tensorrt-rtx", "1.7", 1.0, Path("log"), request.engine_path, 6, (), {}, warnings=("odd",))

    def run(function: str, backend: str, engine: Path, feeds: Any, options: BackendOptions) -> BackendRun:
        assert (function, engine.read_bytes()) == ("halfwise.backends.engine_run:serve", b"engine")
        return BackendRun(tuple({} for _ in feeds), BackendRecord(backend, "TensorRT-RTX", ""))

    installed(L4, build)
    monkeypatch.setattr("halfwise.backends.child.run_in_child", run)
    record = backend_named("rtx").run(typed, FEEDS).record
    assert (record.version, record.notes) == ("1.7", ("odd",))
    assert (requests[0].tf32, requests[0].compute_capabilities) == (False, ("8.9",))
    assert requests[0].profiles["x"].opt == (1, 4)
    assert not requests[0].engine_path.exists()
