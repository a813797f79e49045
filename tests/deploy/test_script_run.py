"""`build.py --run`: the engine on samples, against stand-ins for TensorRT and for the NVIDIA driver."""

from __future__ import annotations

import ctypes
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from halfwise.core.targets import Target
from halfwise.deploy.script import ScriptRequest, build_script
from tests.support.says import Says


class Driver:
    """Device memory is memory of this process; every address is given back."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0

    def cuMemAlloc_v2(self, pointer: Any, size: Any) -> int:  # noqa: N802
        buffer = ctypes.create_string_buffer(size.value)
        pointer._obj.value = ctypes.addressof(buffer)
        self.held[pointer._obj.value] = buffer
        return 0

    def cuMemFree_v2(self, pointer: Any) -> int:  # noqa: N802
        del self.held[pointer.value]
        return 0

    def cuMemcpyHtoD_v2(self, target: Any, source: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(target.value, source.value, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, source: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(target.value, source.value, size.value)
        return 0


def tensorrt(types: dict[str, str], loads: bool = True) -> ModuleType:
    """An engine with an input x and an output y = 2 x, of these types."""
    module = ModuleType("tensorrt")
    kinds = {"FLOAT": np.float32, "HALF": np.float16}

    class Context:
        def __init__(self) -> None:
            self.shape: tuple[int, ...] = ()
            self.addresses: dict[str, int] = {}

        def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
            self.shape = shape
            return shape[-1] == 3

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            return self.shape

        def set_tensor_address(self, name: str, address: int) -> None:
            self.addresses[name] = address

        def execute_async_v3(self, stream: int) -> bool:
            x, y = (self._array(name) for name in ("x", "y"))
            y[...] = (2 * x.astype(np.float32)).astype(y.dtype)
            return True

        def _array(self, name: str) -> np.ndarray:
            dtype = np.dtype(kinds[types[name]])
            size = int(np.prod(self.shape)) * dtype.itemsize
            held = (ctypes.c_char * size).from_address(self.addresses[name])
            return np.frombuffer(held, dtype).reshape(self.shape)

    engine = SimpleNamespace(
        num_io_tensors=2,
        get_tensor_name=lambda index: "xy"[index],
        get_tensor_mode=lambda name: "in" if name == "x" else "out",
        get_tensor_dtype=lambda name: f"DataType.{types[name]}",
        get_tensor_location=lambda name: "device",
        create_execution_context=Context,
    )
    module.Logger = type("Logger", (), {"WARNING": 1, "__init__": lambda self, level: None})  # type: ignore[attr-defined]
    module.TensorIOMode = SimpleNamespace(INPUT="in")  # type: ignore[attr-defined]
    module.TensorLocation = SimpleNamespace(HOST="host")  # type: ignore[attr-defined]
    runtime = SimpleNamespace(deserialize_cuda_engine=lambda plan: engine if loads else None)
    module.Runtime = lambda logger: runtime  # type: ignore[attr-defined]
    return module


def ran(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, *words: str, driver: Any = None
) -> tuple[int, Any]:
    script = folder / "m.build.py"
    script.write_text(build_script(ScriptRequest(Target.parse("trt-10.9"), "m.onnx", engine="m.engine")))
    driver = driver or Driver()

    def load(name: str) -> Any:
        if isinstance(driver, OSError):
            raise driver
        return driver

    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    return int(ended.value.code or 0), driver


def samples(folder: Path) -> Path:
    (folder / "samples").mkdir()
    for number in (2, 10):
        np.savez(folder / "samples" / f"{number}.npz", x=np.full((1, 3), number + 0.1, np.float32))
    return folder / "samples"


@pytest.mark.parametrize("kind", ["FLOAT", "HALF"])
def test_every_sample_gets_its_answer(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.engine").write_bytes(b"an engine")
    (tmp_path / "engine-outputs").mkdir()
    (tmp_path / "engine-outputs" / "old.npz").write_bytes(b"")
    code, driver = ran(tmp_path, monkeypatch, tensorrt({"x": kind, "y": "FLOAT"}), "--run", str(samples(tmp_path)))
    assert code == 0 and not driver.held
    found = {path.name: np.load(path)["y"] for path in (tmp_path / "engine-outputs").glob("*.npz")}
    assert sorted(found) == ["10.npz", "2.npz"]
    expected = np.float32(2 * np.float16(10.1)) if kind == "HALF" else np.float32(20.2)
    assert found["10.npz"].dtype == np.float32 and found["10.npz"].tolist() == [[expected] * 3]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("no folder named", 2),
        ("no samples", 2),
        ("no engine", 2),
        ("another gpu", 3),
        ("no driver", 3),
        ("another input", 2),
        ("another shape", 2),
    ],
)
def test_what_stops_a_run(
    case: str,
    code: int,
    says: Says,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = samples(tmp_path)
    if case != "no engine":
        (tmp_path / "m.engine").write_bytes(b"an engine")
    if case == "no samples":
        folder = tmp_path
    if case in ("another input", "another shape"):
        np.savez(folder / "2.npz", **{"z" if "input" in case else "x": np.ones((1, 4), np.float32)})
    module = tensorrt({"x": "FLOAT", "y": "FLOAT"}, loads=case != "another gpu")
    words = ("--run",) if case == "no folder named" else ("--run", str(folder))
    driver = OSError("libcuda.so.1: cannot open") if case == "no driver" else None
    assert ran(tmp_path, monkeypatch, module, *words, driver=driver)[0] == code
    says(capsys.readouterr().err)
