"""What is handed to an engine: every mistake is found, said in one line, and comes with its remedy."""

from __future__ import annotations

import gc
import json
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise import InputError
from halfwise.torch import check_bindings
from tests.models.build import model, node, value
from tests.support.says import Says

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")


class DataType(Enum):
    FLOAT, HALF, INT32, INT64, BOOL = range(5)


class TensorIOMode(Enum):
    INPUT, OUTPUT = 1, 2


class TensorLocation(Enum):
    DEVICE, HOST = 0, 1


class Engine:
    """Answers as a TensorRT engine of 8.5 and later does."""

    def __init__(self, **tensors: tuple[str, DataType, tuple[int, ...]]) -> None:
        self.tensors = tensors
        self.num_io_tensors = len(tensors)
        self.host: set[str] = set()
        self.profile: tuple[tuple[int, ...], ...] = ()

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[self.tensors[name][0]]

    def get_tensor_dtype(self, name: str) -> DataType:
        return self.tensors[name][1]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name][2]

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if name in self.host else TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name: str, profile: int) -> tuple[tuple[int, ...], ...]:
        return self.profile


class OldEngine:
    """Answers as one before 8.5 does, with two profiles."""

    num_bindings = 4
    num_optimization_profiles = 2

    def get_binding_name(self, index: int) -> str:
        return ["x", "y", "x [profile 1]", "y [profile 1]"][index]

    def binding_is_input(self, index: int) -> bool:
        return index % 2 == 0

    def get_binding_dtype(self, index: int) -> DataType:
        return DataType.HALF

    def get_binding_shape(self, index: int) -> tuple[int, ...]:
        return (1, 3, 4, 4)


class OnGpu:
    """A tensor that says it lies on a GPU."""

    def __init__(self, tensor: Any, device: str = "cuda:0") -> None:
        self._tensor, self.device = tensor, device
        self.shape, self.dtype, self.layout = tensor.shape, tensor.dtype, tensor.layout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def image_engine(dtype: DataType = DataType.FLOAT) -> Engine:
    return Engine(x=("INPUT", dtype, (1, 3, 4, 4)), y=("OUTPUT", DataType.FLOAT, (1, 8)))


def aligned(*shape: int, dtype: Any = torch.float32) -> Any:
    """A contiguous tensor whose address is a multiple of 256, as a GPU's allocator gives them."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = torch.zeros(size + 256, dtype=torch.uint8)
    skip = -memory.data_ptr() % 256
    return memory[skip : skip + size].view(dtype).view(*shape)


def rules(check: Any) -> list[tuple[str, str, str]]:
    return [(problem.severity, problem.name, problem.rule) for problem in check.problems]


def test_nothing_is_wrong_with_good_bindings(says: Says) -> None:
    x, y = OnGpu(aligned(1, 3, 4, 4)), OnGpu(aligned(1, 8))
    check = check_bindings({"x": x, "y": y}, image_engine())
    assert check.ok
    says(check)
    assert check.to_json() == {"schema": "halfwise.bindings/1", "status": "ok", "checked": 2, "problems": []}
    assert check_bindings([x, y], image_engine()).problems == ()


def test_one_good_binding_is_no_plural(says: Says) -> None:
    x = OnGpu(aligned(1, 3, 4, 4))
    check = check_bindings({"x": x}, image_engine())
    says(check)


def test_a_permuted_view(says: Says) -> None:
    pixels = OnGpu(aligned(1, 4, 4, 3).permute(0, 3, 1, 2)[:, [0, 1, 2]].as_strided((1, 3, 4, 4), (48, 1, 3, 12)))
    check = check_bindings({"x": pixels}, image_engine())
    assert ("error", "x", "contiguity") in rules(check)
    line = next(str(problem) for problem in check.problems if problem.rule == "contiguity")
    says(line)


def test_channels_last_and_expanded_views_are_called_so(says: Says) -> None:
    last = OnGpu(aligned(1, 4, 4, 3).permute(0, 3, 1, 2))
    assert "in channels_last order" in str(check_bindings({"x": last}, image_engine()))
    wide = OnGpu(aligned(1, 3, 1, 1).expand(1, 3, 4, 4))
    says(check_bindings({"x": wide}, image_engine()), "expanded view: there")
    fine = OnGpu(aligned(1, 1, 4, 4).transpose(0, 1))  # sizes of 1 may have any stride
    engine = Engine(x=("INPUT", DataType.FLOAT, (1, 1, 4, 4)))
    assert check_bindings({"x": fine}, engine).ok


def test_types_and_what_narrowing_does(says: Says) -> None:
    engine = Engine(ids=("INPUT", DataType.INT32, (3,)), x=("INPUT", DataType.HALF, (2,)))
    ids, x = OnGpu(torch.tensor([1, 2, 3])), OnGpu(aligned(2))
    text = str(check_bindings({"ids": ids, "x": x}, engine))
    says(text, "ids: is int64")
    assert "ids = ids.to(torch.int32)" in text and "cannot hold" not in text
    says(text, "x: is float32")
    big = OnGpu(torch.tensor([1, 2, 2**40]))
    assert f"ids: holds {2**40}, which int32 cannot hold" in str(check_bindings({"ids": big, "x": x}, engine))


def test_shapes(says: Says) -> None:
    engine = image_engine()

    def remedy(shape: tuple[int, ...]) -> str:
        problems = check_bindings({"x": OnGpu(aligned(*shape))}, engine).problems
        return next(problem.remedy for problem in problems if problem.rule == "shape")

    says(remedy((3, 4, 4)))
    says(remedy((1, 4, 4, 3)))
    says(remedy((1, 48)))
    assert "read beyond its end" in remedy((1, 3, 2, 2))


def test_open_dimensions_and_profiles(says: Says) -> None:
    engine = Engine(x=("INPUT", DataType.FLOAT, (-1, 8)))
    engine.profile = ((1, 8), (2, 8), (4, 8))
    assert check_bindings({"x": OnGpu(aligned(4, 8))}, engine).ok
    text = str(check_bindings({"x": OnGpu(aligned(5, 8))}, engine))
    says(text, "has shape (5")


def test_where_memory_lies(says: Says) -> None:
    engine = image_engine()
    host = torch.zeros(1, 3, 4, 4)
    says(check_bindings({"x": host}, engine), "x: is on")
    array = np.zeros((1, 3, 4, 4), np.float32)
    assert "x = torch.from_numpy(x).cuda()" in str(check_bindings({"x": array}, engine))
    engine.host = {"x"}
    assert check_bindings({"x": host}, engine).ok
    says(check_bindings({"x": OnGpu(host)}, engine), "the engine reads")
    two = {"x": OnGpu(aligned(1, 3, 4, 4)), "y": OnGpu(aligned(1, 8), "cuda:1")}
    says(check_bindings(two, image_engine()), "y: is on")
    assert "has no memory" in str(check_bindings({"x": torch.zeros(1, 3, 4, 4, device="meta")}, image_engine()))
    assert "of layout torch.sparse_coo" in str(check_bindings({"x": host.to_sparse()}, image_engine()))


def test_addresses_and_temporaries() -> None:
    engine = image_engine()
    x = OnGpu(aligned(1, 3, 4, 4))
    assert rules(check_bindings({"x": x.data_ptr()}, engine)) == [("warning", "x", "address")]
    assert rules(check_bindings({"x": 0}, engine)) == [("error", "x", "null")]
    check = check_bindings({"x": aligned_on_gpu()}, engine)  # apart from the assertion, which holds what it is given
    assert rules(check) == [("warning", "x", "lifetime")]
    kept = {"x": aligned_on_gpu()}
    assert check_bindings(kept, engine).problems == ()
    assert check_bindings({"x": x}, engine).problems == ()


def test_a_variable_holds_the_bindings_where_python_does_not_count_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("halfwise.verbs.torch.bindings")
    monkeypatch.setattr(module, "NAMES_UNCOUNTED", True)
    monkeypatch.setattr(module, "references", lambda thing: 3)  # as many as this Python counts with a variable
    kept = {"x": aligned_on_gpu()}
    assert check_bindings(kept, image_engine()).problems == ()
    check = check_bindings({"x": aligned_on_gpu()}, image_engine())
    assert rules(check) == [("warning", "x", "lifetime")]


class _Owned(OnGpu):
    pass


def aligned_on_gpu() -> OnGpu:
    return _Owned(aligned(1, 3, 4, 4))


def test_a_tensor_that_is_freed_or_moved_after_the_check(says: Says) -> None:
    tensors = {"x": aligned_on_gpu()}
    check = check_bindings(tensors, image_engine())
    assert check.still_alive() == ()
    tensors["x"]._tensor = aligned(1, 3, 4, 4)
    assert [problem.rule for problem in check.still_alive()] == ["moved"]
    tensors.clear()
    gc.collect()
    assert [problem.rule for problem in check.still_alive()] == ["freed"]
    says(check.still_alive()[0], "keep a reference")


def test_a_slice_is_not_aligned(says: Says) -> None:
    rows = OnGpu(aligned(2, 3, 4, 4)[1:])
    text = str(check_bindings({"x": rows}, image_engine()))
    assert "x: begins " in text
    says(text, "bytes into a")
    assert "x = x.clone()" in text


def test_outputs(says: Says) -> None:
    both = aligned(64)
    x, y = OnGpu(both[:48].view(1, 3, 4, 4)), OnGpu(both[40:48].view(1, 8))
    text = str(check_bindings({"x": x, "y": y}, image_engine()))
    says(text, "y: shares memory")
    apart = {"x": OnGpu(both[:48].view(1, 3, 4, 4)), "y": OnGpu(both[48:56].view(1, 8))}
    assert "aliasing" not in [problem.rule for problem in check_bindings(apart, image_engine()).problems]
    half = OnGpu(aligned(1, 8, dtype=torch.float16))
    says(check_bindings({"x": x, "y": half}, image_engine()), "y: is float16")
    turned = OnGpu(aligned(8, 2).t()[:1])
    assert "writes its output densely" in str(check_bindings({"x": x, "y": turned}, image_engine()))


def test_names(says: Says) -> None:
    x = OnGpu(aligned(1, 3, 4, 4))
    given = {"X": x, "y": OnGpu(aligned(1, 8))}
    check = check_bindings(given, image_engine())
    assert rules(check) == [("error", "X", "unknown"), ("error", "x", "missing")]
    says(check, "hand over a")
    says(check_bindings({"x": "image.png"}, image_engine()), "is a str")
    with says.raises(InputError):
        check_bindings([x, x, x], image_engine())
    with pytest.raises(InputError, match="neither an engine"):
        check_bindings({"x": x}, object())


def test_engines_before_8_5(says: Says) -> None:
    x = OnGpu(aligned(1, 3, 4, 4))
    says(check_bindings([x], OldEngine()), "x: is float32")
    assert check_bindings([OnGpu(aligned(1, 3, 4, 4, dtype=torch.float16))], OldEngine()).ok


def test_an_onnx_model(tmp_path: Path, says: Says) -> None:
    inputs = [value("x", TensorProto.FLOAT, ("n", 3)), value("z", TensorProto.FLOAT, ("n", 3))]
    proto = model([node("Add", "x z", "y")], inputs, [value("y", TensorProto.FLOAT, ("n", 3))])
    onnx.save(proto, tmp_path / "m.onnx")
    arrays = {"x": np.zeros((2, 3), np.float32), "z": np.zeros((4, 3), np.float64).T[:3].T}
    text = str(check_bindings(arrays, tmp_path / "m.onnx"))
    says(text, "z: is float64")
    assert "z = z.astype('float32')" in text
    says(text, "its dimension 'n'")
    turned = {"x": np.zeros((3, 2), np.float32).T, "z": np.zeros((2, 3), np.float32)}
    assert "x = np.ascontiguousarray(x)" in str(check_bindings(turned, proto))
    assert "cuda:0" not in str(check_bindings(turned, proto))
    assert "in host memory" in str(check_bindings(turned, proto, device="cuda:0"))


def test_the_inspectors_json(tmp_path: Path, says: Says) -> None:
    tensor = {"Name": "x", "Dimensions": [1, 8], "Format/Datatype": "Row major linear FP16 format"}
    made = {"Name": "y", "Dimensions": [1, 8], "Format/Datatype": "Row major linear FP32"}
    layer = {"Name": "l", "LayerType": "Kernel", "Inputs": [tensor], "Outputs": [made]}
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Layers": [layer], "Bindings": ["x", "y"]}))
    text = str(check_bindings({"x": OnGpu(aligned(1, 8)), "y": OnGpu(aligned(1, 8))}, path))
    says(text.splitlines()[0])
    path.write_text(json.dumps({"Layers": [layer]}))
    with says.raises(InputError):
        check_bindings({}, path)
    path.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        check_bindings({}, path)
