"""Backends: what they record, what they refuse in one line, and that nothing runs elsewhere unnoticed. No GPU."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from halfwise.backends import (
    BACKENDS,
    BackendFailure,
    BackendOptions,
    BackendRecord,
    BackendRun,
    backend_named,
    cuda_driver,
    runtime_child,
)
from halfwise.backends.cuda_driver import Cuda, Gpu
from halfwise.backends.engine_run import run_engine
from halfwise.backends.exchange import Request, run_in_child
from halfwise.backends.runtime_session import rtx_refuses, run_model
from halfwise.engine.build import BuildError, BuildResult
from halfwise.errors import InputError, MissingBackend
from tests.build import model, node, value, weight

H200 = Gpu("NVIDIA H200", "9.0", "13.0", "580.95.05")
L4 = Gpu("NVIDIA L4", "8.9", "13.0", "580.95.05")
FEEDS = [{"x": np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)}, {"x": np.array([[0.0, 1.0, 1.0, 4.0]], np.float32)}]


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """x, cast, times w in FP16, its shape taken and used, cast back."""
    nodes = [
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("Mul", "h w", "m"),
        node("Shape", "m", "s"),
        node("Reshape", "m s", "r"),
        node("Cast", "r", "y", to=TensorProto.FLOAT),
    ]
    weights = [weight("w", np.full(4, 0.5, np.float16))]
    path = tmp_path / "typed.onnx"
    onnx.save(model(nodes, [value("x", shape=("n", 4))], [value("y", shape=("n", 4))], weights), path)
    return path


def check_outputs(run: BackendRun) -> None:
    for feed, outputs in zip(FEEDS, run.outputs, strict=True):
        np.testing.assert_array_equal(outputs["y"], feed["x"] / 2)


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_none() -> None:
    with pytest.raises(InputError, match="there is no backend 'cuda'; there are ort-cpu, ort-cuda, ort-tensorrt"):
        backend_named("cuda")


@pytest.mark.parametrize("name", [name for name in BACKENDS if ":" not in name])
def test_every_name_is_a_backend_of_that_name(name: str) -> None:
    assert backend_named(name).name == name


# -- ONNX Runtime on the CPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", [False, True])
def test_the_cpu_runs_in_this_process_and_says_what_it_is(typed: Path, binding: bool) -> None:
    backend = backend_named("ort-cpu", BackendOptions(optimization="basic", io_binding=binding))
    run = backend.run(typed, FEEDS)
    check_outputs(run)
    record = run.record
    assert (record.backend, record.library, record.version) == ("ort-cpu", "ONNX Runtime", onnxruntime.__version__)
    assert (record.device, record.tf32, record.optimization, record.io_binding) == ("CPU", None, "basic", binding)
    assert record.providers == ("CPUExecutionProvider",)
    assert "computes FP16 in FP32" in backend.cautions[0]


def test_a_record_survives_its_json(typed: Path) -> None:
    record = backend_named("ort-cpu").run(typed, FEEDS).record
    assert BackendRecord.from_json(record.to_json()) == record


def test_a_model_that_onnx_runtime_cannot_build_is_a_failure_of_this_model(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    odd = model([node("Odd", "x", "y", domain="somewhere")], [value("x")], [value("y")], domains=["somewhere"])
    onnx.save(odd, path)
    with pytest.raises(BackendFailure, match=r"CPUExecutionProvider cannot build odd\.onnx: .*Odd"):
        backend_named("ort-cpu").run(path, [{"x": np.zeros(4, np.float32)}])


def test_a_sample_that_does_not_fit_is_a_failure_with_its_number(typed: Path) -> None:
    with pytest.raises(BackendFailure, match="cannot run the model on sample 2"):
        backend_named("ort-cpu").run(typed, [FEEDS[0], {"x": np.zeros((1, 7), np.float32)}])


def test_a_missing_input_is_named(typed: Path) -> None:
    with pytest.raises(InputError, match="sample 1 has no input 'x', which the model wants"):
        backend_named("ort-cpu").run(typed, [{"z": np.zeros(4, np.float32)}])


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("hello")
    with pytest.raises(InputError, match="cannot be read as an ONNX model"):
        backend_named("ort-cpu").run(path, FEEDS)


def test_a_model_newer_than_the_runtime_runs_with_its_weights_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new.onnx"
    newer = model([node("Mul", "x w", "y")], [value("x")], [value("y")], [weight("w", np.full(4, 0.5, np.float32))])
    newer.ir_version = 13
    onnx.save_model(newer, path, save_as_external_data=True, location="new.data", size_threshold=0)
    run = backend_named("ort-cpu").run(path, [{"x": np.full(4, 3, np.float32)}])
    np.testing.assert_array_equal(run.outputs[0]["y"], np.full(4, 1.5, np.float32))


# -- ONNX Runtime on a GPU, with a fake runtime -----------------------------------------------------------------------


@dataclass
class FakeRuntime:
    """ONNX Runtime as it would be with GPU providers; everything is computed by the real one on the CPU."""

    available: Sequence[str] = ("CUDAExecutionProvider", "CPUExecutionProvider")
    starts: bool = True  # whether the provider's libraries load
    left: Sequence[str] = ()  # names of nodes that the provider leaves to the CPU; "*" is all
    tells: bool = True  # whether it says which nodes went where
    asked: dict[str, Any] = field(default_factory=dict)

    def module(self) -> ModuleType:
        fake = ModuleType("onnxruntime")
        fake.__dict__.update(
            __version__="1.99",
            GraphOptimizationLevel=onnxruntime.GraphOptimizationLevel,
            SessionOptions=onnxruntime.SessionOptions,
            OrtValue=onnxruntime.OrtValue,
            get_available_providers=lambda: list(self.available),
            get_ep_devices=list,
            preload_dlls=lambda: self.asked.update(preloaded=True),
            InferenceSession=self._session,
        )
        return fake

    def _session(self, content: Any, options: Any, providers: Sequence[Any] = ()) -> Any:
        real = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        name, given = providers[0]
        self.asked.update(provider=name, options=given, level=options.graph_optimization_level)
        runtime = self

        class Session:
            get_inputs, get_outputs, run = real.get_inputs, real.get_outputs, real.run

            def get_providers(self) -> list[str]:
                return [name, "CPUExecutionProvider"] if runtime.starts else ["CPUExecutionProvider"]

            def get_provider_options(self) -> dict[str, dict[str, str]]:
                return {name: {**given, "cudnn_conv_algo_search": "EXHAUSTIVE"}}

            def disable_fallback(self) -> None:
                runtime.asked["fallback"] = False

        if self.tells:

            def assigned(self: Any) -> list[Any]:
                nodes = [n for group in real.get_provider_graph_assignment_info() for n in group.get_nodes()]
                left = [n for n in nodes if n.name in runtime.left or "*" in runtime.left]
                taken = [n for n in nodes if n not in left]
                groups = [(name, taken), ("CPUExecutionProvider", left)]
                return [SimpleNamespace(ep_name=e, get_nodes=lambda g=g: g) for e, g in groups if g]

            Session.get_provider_graph_assignment_info = assigned  # type: ignore[attr-defined]
        return Session()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a fake runtime and a GPU."""

    def install(runtime: FakeRuntime, device: Gpu = H200) -> FakeRuntime:
        monkeypatch.setitem(sys.modules, "onnxruntime", runtime.module())
        monkeypatch.setattr("halfwise.backends.runtime_session.gpu_here", lambda number: device)
        return runtime

    return install


def test_what_ran_on_the_gpu_is_recorded(gpu: Any, typed: Path) -> None:
    runtime = gpu(FakeRuntime())
    run = run_model("ort-cuda", typed, FEEDS, BackendOptions(optimization="disable"))
    check_outputs(run)
    record = run.record
    assert (record.device, record.compute_capability, record.driver, record.cuda) == (
        "NVIDIA H200", "9.0", "580.95.05", "13.0",
    )  # fmt: skip
    assert (record.tf32, record.optimization, record.io_binding) == (False, "disable", False)
    assert record.provider_options == {"device_id": "0", "use_tf32": "0", "cudnn_conv_algo_search": "EXHAUSTIVE"}
    assert record.nodes == {"CUDAExecutionProvider": 5}
    assert record.on_cpu == ()
    assert record.title == "ort-cuda (ONNX Runtime 1.99 on NVIDIA H200)"
    assert runtime.asked["preloaded"]
    assert runtime.asked["fallback"] is False
    assert runtime.asked["level"] == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def test_tf32_is_off_unless_asked(gpu: Any, typed: Path) -> None:
    runtime = gpu(FakeRuntime())
    run_model("ort-cuda", typed, FEEDS, BackendOptions())
    assert runtime.asked["options"] == {"device_id": "0", "use_tf32": "0"}
    record = run_model("ort-cuda", typed, FEEDS, BackendOptions(device=1, tf32=True)).record
    assert runtime.asked["options"] == {"device_id": "1", "use_tf32": "1"}
    assert record.tf32 is True


@pytest.mark.parametrize(("asked", "expected"), [(False, "0"), (True, None)])
def test_tf32_is_off_in_every_library_of_the_child(
    monkeypatch: pytest.MonkeyPatch, asked: bool, expected: str | None
) -> None:
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    seen = []

    def run(*arguments: Any) -> None:
        seen.append(os.environ.get("NVIDIA_TF32_OVERRIDE"))

    monkeypatch.setattr("halfwise.backends.runtime_session.run_model", run)
    runtime_child._run(Request("ort-cuda", Path("m"), Path("f"), 0, BackendOptions(tf32=asked)))
    assert seen == [expected]
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)


def test_a_provider_that_does_not_start_is_not_replaced_by_the_cpu(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(starts=False))
    with pytest.raises(MissingBackend, match="could not start its CUDAExecutionProvider and fell back to the CPU") as e:
        run_model("ort-cuda", typed, FEEDS, BackendOptions())
    assert e.value.exit_code == 3
    assert "\n" not in str(e.value)


def test_a_provider_that_takes_no_node_is_not_replaced_by_the_cpu(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(left=["*"]))
    with pytest.raises(
        MissingBackend, match=r"took none of the 5 nodes of typed\.onnx, all of them would run on the CPU"
    ):
        run_model("ort-cuda", typed, FEEDS, BackendOptions())


def test_arithmetic_left_to_the_cpu_is_named_and_shapes_are_not(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(left=["n_m", "n_s"]))
    record = run_model("ort-cuda", typed, FEEDS, BackendOptions()).record
    assert record.on_cpu == ("n_m",)
    assert record.nodes == {"CUDAExecutionProvider": 3, "CPUExecutionProvider": 2}
    assert record.notes == (
        "1 floating-point node ran on the CPU, because CUDAExecutionProvider has no kernel for them as typed: n_m",
    )


def test_a_runtime_that_does_not_tell_is_said_to_be_one(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(tells=False))
    record = run_model("ort-cuda", typed, FEEDS, BackendOptions()).record
    assert record.notes == ("this ONNX Runtime does not tell which nodes the provider took",)


def test_a_runtime_without_the_provider_says_what_to_install(typed: Path) -> None:
    for name, words in (
        ("ort-cuda", "has no CUDAExecutionProvider: pip install 'halfwise\\[gpu\\]'"),
        ("ort-tensorrt", "has no TensorrtExecutionProvider: .*pip install tensorrt"),
        ("ort-rtx", "has no NvTensorRTRTXExecutionProvider: pip install onnxruntime-ep-nv-tensorrt-rtx"),
    ):
        with pytest.raises(MissingBackend, match=words):
            run_model(name, typed, FEEDS, BackendOptions())


def test_no_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch, typed: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeRuntime().module())
    monkeypatch.setattr(cuda_driver, "_LIBRARY", "libcuda-that-is-not-there.so")
    with pytest.raises(MissingBackend, match=r"no NVIDIA GPU can be used here: its driver .* is not installed"):
        run_model("ort-cuda", typed, FEEDS, BackendOptions())


def test_rtx_by_any_capitals_and_on_a_gpu_that_it_supports(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(("NvTensorRtRtxExecutionProvider", "CPUExecutionProvider")), L4)
    record = run_model("ort-rtx", typed, FEEDS, BackendOptions()).record
    assert record.nodes == {"NvTensorRtRtxExecutionProvider": 5}


def test_rtx_refuses_an_h200(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(("NvTensorRTRTXExecutionProvider", "CPUExecutionProvider")))
    with pytest.raises(MissingBackend, match=r"does not support compute capability 9\.0; .* \(this is NVIDIA H200\)"):
        run_model("ort-rtx", typed, FEEDS, BackendOptions())


@pytest.mark.parametrize(
    ("capability", "runs"), [("7.5", True), ("8.6", True), ("9.0", False), ("10.0", False), ("12.0", True)]
)
def test_the_capabilities_of_rtx(capability: str, runs: bool) -> None:
    assert (rtx_refuses(capability) == "") is runs


# -- the child process ------------------------------------------------------------------------------------------------


def main(request_file: str) -> None:
    """A child that ends as it is told."""
    how = os.environ["HALFWISE_TEST_END"]
    if how == "kill":
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        signal.pause()


def test_a_child_hands_back_outputs_and_record(typed: Path) -> None:
    run = run_in_child("halfwise.backends.runtime_child", "ort-cpu", typed, FEEDS, BackendOptions(time_limit_s=60))
    check_outputs(run)
    assert run.record.device == "CPU"


def test_names_and_types_survive_the_way_to_a_child_and_back(tmp_path: Path) -> None:
    names = ["file/../a:0", "names", "ids"]
    kinds = [TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT64]
    nodes = [node("Identity", name, f"{name}_out", name=f"n{i}") for i, name in enumerate(names)]
    nodes.append(node("Identity", "text", "text_out", name="n9"))
    inputs = [
        value(name, kind, (2,)) for name, kind in zip([*names, "text"], [*kinds, TensorProto.STRING], strict=True)
    ]
    outputs = [value(f"{v.name}_out", v.type.tensor_type.elem_type, (2,)) for v in inputs]
    path = tmp_path / "names.onnx"
    onnx.save(model(nodes, inputs, outputs), path)
    feed = {
        names[0]: np.array([1.5, 65504], np.float16),
        names[1]: np.array([True, False]),
        names[2]: np.array([-1, 1 << 40]),
        "text": np.array(["a", "grüße"], object),
    }
    run = run_in_child("halfwise.backends.runtime_child", "ort-cpu", path, [feed], BackendOptions(time_limit_s=60))
    for name, array in feed.items():
        got = run.outputs[0][f"{name}_out"]
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_a_backend_that_is_missing_in_the_child_is_missing(typed: Path) -> None:
    with pytest.raises(MissingBackend, match="has no CUDAExecutionProvider"):
        backend_named("ort-cuda", BackendOptions(time_limit_s=60)).run(typed, FEEDS)


def test_a_child_that_fails_on_the_model_says_why(typed: Path) -> None:
    with pytest.raises(BackendFailure, match="cannot run the model on sample 1"):
        run_in_child(
            "halfwise.backends.runtime_child", "ort-cpu", typed, [{"x": np.zeros((9, 9), np.float32)}],
            BackendOptions(time_limit_s=60),
        )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="ends by a signal")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("kill", r"ort-cuda crashed \(SIGSEGV\) while running typed\.onnx; the end of its log: last words"),
        ("hang", r"ort-cuda did not finish within 2 s and was stopped"),
        ("leave", r"ort-cuda ended with exit code 0 while running"),
    ],
)
def test_a_child_that_dies_is_a_build_that_failed(
    monkeypatch: pytest.MonkeyPatch, typed: Path, how: str, words: str
) -> None:
    monkeypatch.setenv("HALFWISE_TEST_END", how)
    limit = 2.0 if how == "hang" else 60.0
    with pytest.raises(BackendFailure, match=words):
        run_in_child("tests.test_backends", "ort-cuda", typed, FEEDS, BackendOptions(time_limit_s=limit))


def test_no_file_to_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        backend_named("ort-cuda").run(tmp_path / "nothing.onnx", FEEDS)


# -- saved outputs ----------------------------------------------------------------------------------------------------


def test_saved_outputs_come_in_the_order_of_the_samples(tmp_path: Path) -> None:
    for index in (10, 2):
        np.savez(tmp_path / f"{index}.npz", y=np.array([index]))
    run = backend_named(f"saved:{tmp_path}").run(Path("any"), FEEDS)
    assert [int(each["y"][0]) for each in run.outputs] == [2, 10]
    assert run.record.library == "saved outputs"


def test_saved_outputs_that_do_not_fit(tmp_path: Path) -> None:
    backend = backend_named(f"saved:{tmp_path}")
    with pytest.raises(InputError, match=r"no \.npz files with saved outputs"):
        backend.run(Path("any"), FEEDS)
    (tmp_path / "0.npz").write_text("no")
    with pytest.raises(InputError, match="holds 1 saved outputs for 2 samples"):
        backend.run(Path("any"), FEEDS)
    with pytest.raises(InputError, match=r"0\.npz cannot be read as saved outputs"):
        backend.run(Path("any"), FEEDS[:1])


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
    ("driver", "device", "words"),
    [
        (FakeDriver(fails={"cuInit": 100}), 0, "finds no usable GPU here: no CUDA-capable device is detected"),
        (FakeDriver(count=0), 0, "there is no GPU number 0: the NVIDIA driver sees none"),
        (FakeDriver(count=2), 2, "there is no GPU number 2: the NVIDIA driver sees 2"),
    ],
)
def test_a_driver_without_the_gpu(driver: FakeDriver, device: int, words: str) -> None:
    with pytest.raises(MissingBackend, match=words):
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
    ("engine", "feed", "error", "words"),
    [
        (FakeEngine(FakeDriver(), loads=False), FEEDS[0], MissingBackend, r"cannot be loaded on NVIDIA H200 \(compute"),
        (FakeEngine(FakeDriver(), runs=False), FEEDS[0], BackendFailure, "the engine did not run on sample 1"),
        (FakeEngine(FakeDriver()), {}, InputError, "sample 1 has no input 'x', which the engine wants"),
        (FakeEngine(FakeDriver()), {"x": np.zeros(3)}, BackendFailure, r"does not take input 'x' in the shape \(3,\)"),
        (FakeEngine(FakeDriver(), kind="FP8"), FEEDS[0], BackendFailure, "is of type FP8|KeyError|which NumPy"),
    ],
)
def test_engines_that_do_not_run(engine: FakeEngine, feed: Any, error: type[Exception], words: str) -> None:
    if engine.kind == "FP8":
        engine.execute_async_v3 = lambda stream: engine.receivers["y"].notify_shape("y", (1,)) or True  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(error, match=words):
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


def test_tensorrt_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, typed: Path) -> None:
    monkeypatch.setattr("halfwise.engine.tensorrt.available", lambda: False)
    monkeypatch.setattr("halfwise.engine.rtx.available", lambda: False)
    for name, words in (
        ("tensorrt", "TensorRT is not installed: pip install tensorrt"),
        ("rtx", "TensorRT-RTX is not"),
    ):
        with pytest.raises(MissingBackend, match=words):
            backend_named(name).run(typed, FEEDS)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(device: Gpu, build: Any) -> None:
        monkeypatch.setattr("halfwise.engine.rtx.available", lambda: True)
        monkeypatch.setattr("halfwise.engine.rtx.build_request", build)
        monkeypatch.setattr(cuda_driver, "gpu_here", lambda number: device)

    return install


def test_an_rtx_engine_is_not_even_built_for_a_gpu_that_it_refuses(installed: Any, typed: Path) -> None:
    installed(H200, lambda request: pytest.fail("built"))
    with pytest.raises(MissingBackend, match=r"rtx: TensorRT-RTX does not support compute capability 9\.0"):
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

    def run(module: str, backend: str, engine: Path, feeds: Any, options: BackendOptions) -> BackendRun:
        assert (module, engine.read_bytes()) == ("halfwise.backends.engine_child", b"engine")
        return BackendRun(tuple({} for _ in feeds), BackendRecord(backend, "TensorRT-RTX", ""))

    installed(L4, build)
    monkeypatch.setattr("halfwise.backends.exchange.run_in_child", run)
    record = backend_named("rtx").run(typed, FEEDS).record
    assert (record.version, record.notes) == ("1.7", ("odd",))
    assert (requests[0].tf32, requests[0].compute_capabilities) == (False, ("8.9",))
    assert requests[0].profiles["x"].opt == (1, 4)
    assert not requests[0].engine_path.exists()
