"""Backends: what they record, what they refuse in one line, and that nothing runs elsewhere unnoticed. No GPU."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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
)
from halfwise.backends.child import run_in_child
from halfwise.backends.runtime_session import rtx_refuses, run_model
from halfwise.core.child.serve import Answer, Request
from halfwise.core.document import read
from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation import cuda_driver
from halfwise.emulation.cuda_driver import Gpu
from tests.models.backend_models import H200, L4, typed_model
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds
from tests.support.says import Says

RUNTIME = "halfwise.backends.runtime_session:serve"
FEEDS = [{"x": np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)}, {"x": np.array([[0.0, 1.0, 1.0, 4.0]], np.float32)}]


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    return typed_model(tmp_path / "typed.onnx")


def check_outputs(run: BackendRun) -> None:
    for feed, outputs in zip(FEEDS, run.outputs, strict=True):
        np.testing.assert_array_equal(outputs["y"], feed["x"] / 2)


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_none(says: Says) -> None:
    with says.raises(InputError):
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
    assert kinds(backend.cautions) == [NoteKind.CPU_COMPUTES_WIDE]


def test_a_record_survives_its_json(typed: Path) -> None:
    record = backend_named("ort-cpu").run(typed, FEEDS).record
    assert read(record.to_json(), BackendRecord, "the record") == record


def test_a_model_that_onnx_runtime_cannot_build_is_a_failure_of_this_model(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    odd = model([node("Odd", "x", "y", domain="somewhere")], [value("x")], [value("y")], domains=["somewhere"])
    onnx.save(odd, path)
    with pytest.raises(BackendFailure, match=r"CPUExecutionProvider cannot build odd\.onnx: .*Odd"):
        backend_named("ort-cpu").run(path, [{"x": np.zeros(4, np.float32)}])


def test_a_sample_that_does_not_fit_is_a_failure_with_its_number(typed: Path, says: Says) -> None:
    with says.raises(BackendFailure):
        backend_named("ort-cpu").run(typed, [FEEDS[0], {"x": np.zeros((1, 7), np.float32)}])


def test_a_missing_input_is_named(typed: Path, says: Says) -> None:
    with says.raises(InputError):
        backend_named("ort-cpu").run(typed, [{"z": np.zeros(4, np.float32)}])


def test_a_file_that_is_no_model(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("hello")
    with says.raises(InputError):
        backend_named("ort-cpu").run(path, FEEDS)


def test_a_model_newer_than_the_runtime_runs_with_its_weights_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new.onnx"
    newer = model([node("Mul", "x w", "y")], [value("x")], [value("y")], [weight("w", np.full(4, 0.5, np.float32))])
    newer.ir_version = 13
    onnx.save_model(newer, path, save_as_external_data=True, location="new.data", size_threshold=0)
    run = backend_named("ort-cpu").run(path, [{"x": np.full(4, 3, np.float32)}])
    np.testing.assert_array_equal(run.outputs[0]["y"], np.full(4, 1.5, np.float32))


@pytest.mark.parametrize("version", [8, onnx.IR_VERSION])
def test_a_link_to_a_model_runs_with_the_weights_beside_the_file(tmp_path: Path, version: int) -> None:
    """The runtime itself looks beside the link only; it gets the file as it is, or anew."""
    proto = model(
        [node("Mul", "x w", "y")],
        [value("x", shape=[1, 4])],
        [value("y", shape=[1, 4])],
        [weight("w", np.full(4, 0.5, np.float32))],
    )
    proto.ir_version = version
    (tmp_path / "store").mkdir()
    path, link = tmp_path / "store" / "m.onnx", tmp_path / "link.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    link.symlink_to(path)
    check_outputs(backend_named("ort-cpu").run(link, FEEDS))


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


def test_what_ran_on_the_gpu_is_recorded(gpu: Any, typed: Path, says: Says) -> None:
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
    says(record.title)
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


def tell_tf32(request: Request) -> Answer:
    told = np.array([os.environ.get("NVIDIA_TF32_OVERRIDE", "")])
    return Answer(BackendRecord("ort-cuda", "", "").to_json(), ({"tf32": told},))


@pytest.mark.parametrize(("asked", "expected"), [(False, "0"), (True, "")])
def test_tf32_is_off_in_every_library_of_the_child(
    monkeypatch: pytest.MonkeyPatch, typed: Path, asked: bool, expected: str
) -> None:
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    run = run_in_child(f"{__name__}:tell_tf32", "ort-cuda", typed, [], BackendOptions(tf32=asked, time_limit_s=60))
    assert run.outputs[0]["tf32"].tolist() == [expected]
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


def test_a_provider_that_does_not_start_is_not_replaced_by_the_cpu(gpu: Any, typed: Path, says: Says) -> None:
    gpu(FakeRuntime(starts=False))
    with says.raises(MissingBackend) as e:
        run_model("ort-cuda", typed, FEEDS, BackendOptions())
    assert e.value.exit_code == 3
    assert "\n" not in str(e.value)


def test_a_provider_that_takes_no_node_is_not_replaced_by_the_cpu(gpu: Any, typed: Path, says: Says) -> None:
    gpu(FakeRuntime(left=["*"]))
    with says.raises(MissingBackend):
        run_model("ort-cuda", typed, FEEDS, BackendOptions())


def test_arithmetic_left_to_the_cpu_is_named_and_shapes_are_not(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(left=["n_m", "n_s"]))
    record = run_model("ort-cuda", typed, FEEDS, BackendOptions()).record
    assert record.on_cpu == ("n_m",)
    assert record.nodes == {"CUDAExecutionProvider": 3, "CPUExecutionProvider": 2}
    provider = "CUDAExecutionProvider"
    assert list(record.remarks) == [Note.of(NoteKind.RAN_ON_CPU, count=1, provider=provider, nodes=["n_m"])]


def test_a_runtime_that_does_not_tell_is_said_to_be_one(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(tells=False))
    record = run_model("ort-cuda", typed, FEEDS, BackendOptions()).record
    assert kinds(record.remarks) == [NoteKind.PLACEMENT_UNKNOWN]


def test_a_runtime_without_the_provider_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, typed: Path, says: Says
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    for name in ("ort-cuda", "ort-tensorrt", "ort-rtx"):
        with says.raises(MissingBackend):
            run_model(name, typed, FEEDS, BackendOptions())


def test_no_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch, typed: Path, says: Says) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeRuntime().module())
    monkeypatch.setattr(cuda_driver, "_LIBRARY", "libcuda-that-is-not-there.so")
    with says.raises(MissingBackend):
        run_model("ort-cuda", typed, FEEDS, BackendOptions())


def test_rtx_by_any_capitals_and_on_a_gpu_that_it_supports(gpu: Any, typed: Path) -> None:
    gpu(FakeRuntime(("NvTensorRtRtxExecutionProvider", "CPUExecutionProvider")), L4)
    record = run_model("ort-rtx", typed, FEEDS, BackendOptions()).record
    assert record.nodes == {"NvTensorRtRtxExecutionProvider": 5}


def test_rtx_refuses_an_h200(gpu: Any, typed: Path, says: Says) -> None:
    gpu(FakeRuntime(("NvTensorRTRTXExecutionProvider", "CPUExecutionProvider")))
    with says.raises(MissingBackend):
        run_model("ort-rtx", typed, FEEDS, BackendOptions())


@pytest.mark.parametrize(
    ("capability", "runs"), [("7.5", True), ("8.6", True), ("9.0", False), ("10.0", False), ("12.0", True)]
)
def test_the_capabilities_of_rtx(capability: str, runs: bool) -> None:
    assert (rtx_refuses(capability) == "") is runs


# -- the child process ------------------------------------------------------------------------------------------------


def end_as_told(request: Request) -> Answer:
    how = os.environ["HALFWISE_TEST_END"]
    if how == "kill":
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        signal.pause()
    os._exit(0)


def test_a_child_hands_back_outputs_and_record(typed: Path) -> None:
    run = run_in_child(RUNTIME, "ort-cpu", typed, FEEDS, BackendOptions(time_limit_s=60))
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
    run = run_in_child(RUNTIME, "ort-cpu", path, [feed], BackendOptions(time_limit_s=60))
    for name, array in feed.items():
        got = run.outputs[0][f"{name}_out"]
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_a_backend_that_is_missing_in_the_child_is_missing(typed: Path) -> None:
    with pytest.raises(MissingBackend, match=r"CUDAExecutionProvider|NVIDIA"):
        backend_named("ort-cuda", BackendOptions(time_limit_s=60)).run(typed, FEEDS)


def test_a_child_that_fails_on_the_model_says_why(typed: Path, says: Says) -> None:
    with says.raises(BackendFailure):
        run_in_child(
            RUNTIME, "ort-cpu", typed, [{"x": np.zeros((9, 9), np.float32)}],
            BackendOptions(time_limit_s=60),
        )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="ends by a signal")
@pytest.mark.parametrize("how", ["kill", "hang", "leave"])
def test_a_child_that_dies_is_a_build_that_failed(
    monkeypatch: pytest.MonkeyPatch, typed: Path, how: str, says: Says
) -> None:
    monkeypatch.setenv("HALFWISE_TEST_END", how)
    limit = 2.0 if how == "hang" else 60.0
    with says.raises(BackendFailure):
        run_in_child(f"{__name__}:end_as_told", "ort-cuda", typed, FEEDS, BackendOptions(time_limit_s=limit))


def test_no_file_to_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        backend_named("ort-cuda").run(tmp_path / "nothing.onnx", FEEDS)
