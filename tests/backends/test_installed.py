"""What a backend needs and is not installed is told without running a model."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from halfwise.backends.named import BACKENDS, installed_backend
from halfwise.core.errors import MissingBackend
from halfwise.emulation import cuda_driver

GPU = [name for name in BACKENDS if ":" not in name and name != "ort-cpu"]
NO_DRIVER = "libcuda-that-is-not-there.so"


def runtime(*providers: str) -> SimpleNamespace:
    return SimpleNamespace(__version__="1.30.0", get_available_providers=lambda: list(providers))


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is installed, but for the driver."""
    there = runtime("CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")
    monkeypatch.setitem(sys.modules, "onnxruntime", there)  # type: ignore[arg-type]
    for name in ("tensorrt", "rtx"):
        monkeypatch.setattr(f"halfwise.compiler.{name}.available", lambda: True)
    monkeypatch.setattr(cuda_driver, "_LIBRARY", NO_DRIVER)


def test_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    there = runtime("CPUExecutionProvider")
    monkeypatch.setitem(sys.modules, "onnxruntime", there)  # type: ignore[arg-type]
    for name in ("tensorrt", "rtx"):
        monkeypatch.setattr(f"halfwise.compiler.{name}.available", lambda: False)
    for name in GPU:
        with pytest.raises(MissingBackend, match="pip install"):
            installed_backend(name)
    assert installed_backend("ort-cpu").name == "ort-cpu"


@pytest.mark.usefixtures("everything")
def test_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GPU:
        with pytest.raises(MissingBackend, match=NO_DRIVER):
            installed_backend(name)
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace())  # which answers nothing, so is not asked
    assert [installed_backend(name).name for name in GPU] == GPU


def test_a_provider_that_comes_as_a_library_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    there = runtime("CPUExecutionProvider")
    monkeypatch.setitem(sys.modules, "onnxruntime", there)  # type: ignore[arg-type]
    monkeypatch.setattr("halfwise.backends.runtime_session.find_spec", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace())
    assert installed_backend("ort-rtx").name == "ort-rtx"


def test_what_needs_nothing() -> None:
    for name in ("cmd:program", "saved:folder"):
        assert installed_backend(name).name
