"""TensorRT proper without the library: every release is played by a module with the names of its released bindings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from halfwise.compiler import build, capabilities, tensorrt
from halfwise.compiler.build import BuildRequest, InputProfile
from halfwise.compiler.handover import Report
from halfwise.compiler.native_build import build_with, clean_message
from halfwise.core.errors import MissingBackend
from tests.support import fake_tensorrt
from tests.support.says import Says

WEAK_ONLY = ("8.6",)
BOTH = ("10.0", "10.3", "10.13", "10.16")
STRONG_ONLY = ("11.0", "11.4")
ALL = WEAK_ONLY + BOTH + STRONG_ONLY

# Two Gemms called node_linear and node_linear_1: the second layer of the first takes the name of the second node.
COLLISION = [
    ["node_linear", "node_linear", "MATRIX_MULTIPLY", "FLOAT"],
    ["node_linear.bias", "", "CONSTANT", "FLOAT"],
    ["node_linear_1", "node_linear", "ELEMENTWISE", "FLOAT"],
    ["node_linear_1_2", "node_linear_1", "MATRIX_MULTIPLY", "FLOAT"],
    ["node_linear_1_5", "node_linear_1", "ELEMENTWISE", "FLOAT"],
    ["norm", "norm", "NORMALIZATION", "FLOAT"],
    ["argmax", "argmax", "TOPK", "INT32"],
]


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def write(**parts: Any) -> Path:
        path = tmp_path / "model.onnx"
        path.write_text(json.dumps(parts), encoding="utf-8")
        return path

    return write


def built(module: ModuleType, request: BuildRequest) -> tuple[Report, Any, Any]:
    """The report, and the network and config that the module was asked to build."""
    report = build_with(module, request)
    assert report.status == "built", report.message
    ((network, config),) = module.built
    return report, network, config


@pytest.mark.parametrize("release", ALL)
def test_capabilities_are_what_the_release_has(release: str) -> None:
    can = capabilities.of(fake_tensorrt.make(release))
    assert can.weak_typing == (release in WEAK_ONLY + BOTH)
    assert can.precision_constraints == can.weak_typing
    assert can.norm_compute_precision == can.weak_typing
    assert can.strong_typing == (release in BOTH + STRONG_ONLY)
    assert can.strong_only == (release in STRONG_ONLY)
    assert can.implicit_batch == (release == "8.6")
    assert can.named_parser_errors == (release != "8.6")
    assert can.layer_metadata and can.needs_gpu
    assert (can.product, can.compute_capabilities, can.title) == ("tensorrt", (), f"TensorRT {release}")


def test_a_module_that_is_not_nvidias_is_told_at_once(says: Says) -> None:
    module = ModuleType("tensorrt")
    with says.raises(MissingBackend):
        capabilities.of(module)
    whole = fake_tensorrt.make("10.3")
    del whole.OnnxParser
    with pytest.raises(MissingBackend, match=r"it lacks OnnxParser$"):
        capabilities.of(whole)


def test_a_stranger_called_tensorrt_is_a_missing_backend(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    (tmp_path / "tensorrt.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with says.raises(MissingBackend):
        tensorrt.build(script(layers=[]))


def test_rtx_is_strongly_typed_even_where_it_has_the_weak_names() -> None:
    module = fake_tensorrt.make("10.16")
    module.ComputeCapability = fake_tensorrt._enum("ComputeCapability", ["NONE", "CURRENT", "SM75", "SM120", "SM89"])  # type: ignore[attr-defined]
    can = capabilities.of(module)
    assert (can.product, can.weak_typing, can.strong_only, can.needs_gpu) == ("tensorrt-rtx", False, True, False)
    assert can.compute_capabilities == ("7.5", "8.9", "12.0")


@pytest.mark.parametrize("release", WEAK_ONLY + BOTH)
@pytest.mark.parametrize("metadata", [True, False])
def test_weak_typing_constrains_the_layers_of_the_node_and_no_namesake(
    script: Any, release: str, metadata: bool
) -> None:
    module = fake_tensorrt.make(release, metadata=metadata)
    path = script(inputs=[["x", [1, 4], False]], layers=COLLISION)
    request = BuildRequest(path, typing="weak", fp32_nodes=("node_linear_1", "norm", "argmax", "gone"), tf32=False)
    report, network, config = built(module, request)
    layers = {layer.name: layer for layer in network._layers}
    fp32 = {name for name, layer in layers.items() if layer.precision is not None}
    assert fp32 == {"node_linear_1_2", "node_linear_1_5", "norm"}
    assert all(layers[name].precision.name == "FLOAT" and layers[name]._types == {0: "FLOAT"} for name in fp32)
    assert layers["norm"].compute_precision.name == "FLOAT"
    assert config._set == {"FP16", "OBEY_PRECISION_CONSTRAINTS"}
    assert report.constrained == {"node_linear_1": ("node_linear_1_2", "node_linear_1_5"), "norm": ("norm",)}
    assert report.unmatched == ("argmax", "gone")


@pytest.mark.parametrize("release", ALL)
def test_network_flags_are_taken_by_name(script: Any, release: str) -> None:
    typing: Any = "weak" if release in WEAK_ONLY else "strong"
    _, network, config = built(fake_tensorrt.make(release), BuildRequest(script(layers=COLLISION), typing=typing))
    # 8.6: EXPLICIT_BATCH is bit 0. 10.x: STRONGLY_TYPED is bit 1. 11.x: nothing is left to ask for.
    assert network._flags == {"8.6": 1, "11.0": 0, "11.4": 0}.get(release, 2)
    assert config._set == ({"TF32", "FP16"} if typing == "weak" else {"TF32"})
    assert config.profiling_verbosity.name == "DETAILED"


@pytest.mark.parametrize("release", ALL)
def test_dynamic_shapes_and_shape_tensors_become_one_profile(script: Any, release: str) -> None:
    inputs = [["x", [-1, 4], False], ["fixed", [2], False], ["shape", [2], True]]
    typing: Any = "weak" if release in WEAK_ONLY else "strong"
    values = ((1, 4), (2, 4), (8, 4))
    profiles = {
        "x": InputProfile((1, 4), (2, 4), (8, 4)),
        "fixed": InputProfile((2,), (2,), (2,)),
        "shape": InputProfile((2,), (2,), (2,), values),
    }
    request = BuildRequest(script(inputs=inputs, layers=COLLISION), profiles=profiles, typing=typing)
    _, _, config = built(fake_tensorrt.make(release), request)
    (profile,) = config._profiles
    assert profile._shapes == {"x": ((1, 4), (2, 4), (8, 4))}
    assert profile._values == {"shape": values}


@pytest.mark.parametrize("release", ALL)
def test_engine_and_layer_information_are_written_and_tf32_is_off(script: Any, tmp_path: Path, release: str) -> None:
    typing: Any = "weak" if release in WEAK_ONLY else "strong"
    engine, info = tmp_path / "e.plan", tmp_path / "layers.json"
    request = BuildRequest(
        script(layers=COLLISION), typing=typing, engine_path=engine, layer_info_path=info, tf32=False
    )
    report, _, config = built(fake_tensorrt.make(release), request)
    assert "TF32" not in config._set
    assert engine.read_bytes() == b"an engine" and report.engine_bytes == 9
    assert json.loads(info.read_text()) == {"Layers": [], "Format": "JSON"}


@pytest.mark.parametrize(
    ("release", "change"),
    [
        ("11.4", {"typing": "weak"}),
        ("8.6", {"typing": "strong"}),
        ("10.16", {"fp32_nodes": ("n",)}),
        ("10.16", {"compute_capabilities": ("8.6",)}),
        ("10.16", {"profiles": {"y": InputProfile((1,), (1,), (1,))}}),
        ("10.16", {}),
    ],
)
def test_what_a_release_cannot_do_is_said(script: Any, release: str, change: dict[str, Any], says: Says) -> None:
    path = script(inputs=[["x", [-1, 4], False]], layers=COLLISION)
    report = build_with(fake_tensorrt.make(release), BuildRequest(path, **change))
    assert report.status == "refused"
    says(report.message)


@pytest.mark.parametrize("release", ["8.6", "10.0", "11.4"])
def test_a_refusal_names_the_node_as_far_as_the_release_does(script: Any, release: str, says: Says) -> None:
    error = {"desc": "No importer registered for op: Foo", "node": 3, "name": "/foo", "op": "Foo"}
    typing: Any = "weak" if release in WEAK_ONLY else "strong"
    report = build_with(fake_tensorrt.make(release), BuildRequest(script(errors=[error]), typing=typing))
    assert report.status == "refused"
    says(report.message)


def test_a_failed_build_tells_what_the_logger_heard(script: Any, says: Says) -> None:
    failure = "buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for node /a.)"
    report = build_with(fake_tensorrt.make("10.3"), BuildRequest(script(layers=COLLISION, failure=failure)))
    assert report.status == "refused"
    says(report.message)


@pytest.mark.parametrize(
    "failure",
    [
        "IBuilder::buildSerializedNetwork: Error Code 2: OutOfMemory (Requested size was 23472639 bytes.)",
        "Unexpected exception std::bad_alloc",
    ],
)
def test_a_lack_of_memory_is_no_refusal_of_the_model(script: Any, failure: str, says: Says) -> None:
    report = build_with(fake_tensorrt.make("10.3"), BuildRequest(script(layers=COLLISION, failure=failure)))
    assert report.status == "failed"
    says(report.message)


def test_no_gpu_is_a_reason_and_not_a_traceback(script: Any, says: Says) -> None:
    module = fake_tensorrt.make("10.3")

    def no_driver(logger: Any) -> Any:
        logger.log(module.ILogger.Severity.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    no_driver.max_batch_size = None  # type: ignore[attr-defined]
    module.Builder = no_driver  # type: ignore[attr-defined]
    report = build_with(module, BuildRequest(script(layers=COLLISION), typing="strong"))
    assert report.status == "failed"
    says(report.message)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (
            "Invalid Node - /add\n"
            "ITensor::getDimensions: Error Code 4: API Usage Error (/add: ElementWiseOperation SUM must have same "
            "input types. But they are of types Half and Float. In validateTypes at /_src/elementWiseNode.cpp:40)\n"
            "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at /_src/c.cpp:250 "
            "(cudaError 35: CUDA driver version is insufficient for CUDA runtime version))",
            "/add: ElementWiseOperation SUM must have same input types. But they are of types Half and Float",
        ),
        ('creator && "Plugin not found, is the name correct?"', "Plugin not found, is the name correct?"),
        ("Assertion failed: c && v(c) == A::kV3: NonZero plugin was not found.", "NonZero plugin was not found."),
        (
            "Failed to import initializer: In node -1: UNSUPPORTED_NODE: Assertion failed: c->w(i, &j): Failed on: w1",
            "Failed on: w1",
        ),
        ("No importer registered for op: Foo", "No importer registered for op: Foo"),
    ],
)
def test_messages_lose_source_positions_and_keep_their_words(raw: str, clean: str) -> None:
    assert clean_message(raw) == clean


def test_the_whole_way_through_a_child_process(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    install = "from tests.support import fake_tensorrt; globals().update(vars(fake_tensorrt.make('10.16')))"
    (tmp_path / "tensorrt.py").write_text(install, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("tensorrt", None)
    result = tensorrt.build(
        script(inputs=[["x", [1, 4], False]], layers=COLLISION),
        typing="weak",
        fp32_nodes=["node_linear"],
        engine_path=tmp_path / "e.plan",
        layer_info_path=tmp_path / "layers.json",
    )
    assert (result.backend, result.version, result.engine_bytes) == ("tensorrt", "10.16", 9)
    assert (tmp_path / "e.plan").read_bytes() == b"an engine" and result.layer_info_path == tmp_path / "layers.json"
    assert result.constrained == {"node_linear": ("node_linear", "node_linear_1")}
    assert result.node_layers["node_linear_1"] == ("node_linear_1_2", "node_linear_1_5")
    says(*result.notes)
    assert any("ONNX node: norm" in line for line in result.log_lines())


def test_without_tensorrt_the_line_says_what_to_install(
    script: Any, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with says.raises(MissingBackend):
        tensorrt.build(script())
