"""TensorRT proper without the library: every release is played by a module with the names of its released bindings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise.compiler import build, capabilities, tensorrt, trtexec_process
from halfwise.compiler.build import BuildError, BuildRequest, InputProfile
from halfwise.compiler.handover import Report
from halfwise.compiler.native_build import build_with, clean_message
from halfwise.core.errors import InputError, MissingBackend
from tests.support import fake_tensorrt

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


def test_a_module_that_is_not_nvidias_is_told_at_once() -> None:
    module = ModuleType("tensorrt")
    with pytest.raises(
        MissingBackend, match="'tensorrt' is not NVIDIA's module, or not all of it: it has no Builder and"
    ):
        capabilities.of(module)
    whole = fake_tensorrt.make("10.3")
    del whole.OnnxParser
    with pytest.raises(MissingBackend, match=r"it has no OnnxParser$"):
        capabilities.of(whole)


def test_a_stranger_called_tensorrt_is_a_missing_backend(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorrt.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        MissingBackend, match=r"TensorRT is not usable here: 'tensorrt' \(.*tensorrt.py\) is not NVIDIA's"
    ):
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
    ("release", "change", "message"),
    [
        ("11.4", {"typing": "weak"}, "it knows strong typing only; give it a model typed FP16 and FP32"),
        ("8.6", {"typing": "strong"}, "it has no strong typing (that came with 9.1); ask for weak typing"),
        ("10.16", {"fp32_nodes": ("n",)}, "layer precisions need weak typing"),
        ("10.16", {"compute_capabilities": ("8.6",)}, "it builds for the GPU of this machine"),
        ("10.16", {"profiles": {"y": InputProfile((1,), (1,), (1,))}}, "names 'y', which is no input of the model (x)"),
        ("10.16", {}, "input 'x' has the open shape (-1, 4): give sample inputs or a profile (min, opt, max)"),
    ],
)
def test_what_a_release_cannot_do_is_said(script: Any, release: str, change: dict[str, Any], message: str) -> None:
    path = script(inputs=[["x", [-1, 4], False]], layers=COLLISION)
    report = build_with(fake_tensorrt.make(release), BuildRequest(path, **change))
    assert report.status == "refused" and message in report.message


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ("8.6", "node number 3: No importer registered for op: Foo"),
        ("10.0", "node '/foo' (Foo): No importer registered for op: Foo"),
        ("11.4", "node '/foo' (Foo): No importer registered for op: Foo"),
    ],
)
def test_a_refusal_names_the_node_as_far_as_the_release_does(script: Any, release: str, told: str) -> None:
    error = {"desc": "No importer registered for op: Foo", "node": 3, "name": "/foo", "op": "Foo"}
    typing: Any = "weak" if release in WEAK_ONLY else "strong"
    report = build_with(fake_tensorrt.make(release), BuildRequest(script(errors=[error]), typing=typing))
    assert (report.status, report.message) == ("refused", told)


def test_a_failed_build_tells_what_the_logger_heard(script: Any) -> None:
    failure = "buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for node /a.)"
    report = build_with(fake_tensorrt.make("10.3"), BuildRequest(script(layers=COLLISION, failure=failure)))
    assert report.status == "refused"
    assert report.message == "Could not find any implementation for node /a."


def test_no_gpu_is_a_reason_and_not_a_traceback(script: Any) -> None:
    module = fake_tensorrt.make("10.3")

    def no_driver(logger: Any) -> Any:
        logger.log(module.ILogger.Severity.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    no_driver.max_batch_size = None  # type: ignore[attr-defined]
    module.Builder = no_driver  # type: ignore[attr-defined]
    report = build_with(module, BuildRequest(script(layers=COLLISION), typing="strong"))
    assert report.status == "failed"
    assert report.message.startswith("CUDA initialization failure with error: 35; TypeError: ")
    assert report.message.endswith("(TensorRT needs an NVIDIA GPU and its driver to build)")


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


def test_the_whole_way_through_a_child_process(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert result.notes == ("built for the GPU of this machine; the engine was not run",)
    assert "[V] [TRT] Registering layer: norm for ONNX node: norm" in list(result.log_lines())


def test_without_tensorrt_the_line_says_what_to_install(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(MissingBackend, match=r"^TensorRT is not installed: pip install tensorrt \(it also needs"):
        tensorrt.build(script())


# --- trtexec ---------------------------------------------------------------------------------------------------------

HELP = {
    "8.4": "--onnx --fp16 --buildOnly --noTF32 --precisionConstraints",
    "10.3": "--onnx --fp16 --stronglyTyped --skipInference --noTF32",
    "11.4": "--onnx --stronglyTyped --skipInference --noTF32",
}


def options(release: str) -> frozenset[str]:
    return frozenset(HELP[release].split())


@pytest.mark.parametrize(
    ("release", "typing", "wanted"),
    [
        ("8.4", "weak", ["--buildOnly", "--fp16"]),
        ("10.3", "weak", ["--skipInference", "--fp16"]),
        ("10.3", "strong", ["--skipInference", "--stronglyTyped"]),
        ("11.4", "strong", ["--skipInference"]),
    ],
)
def test_trtexec_command_speaks_the_release(release: str, typing: Any, wanted: list[str]) -> None:
    request = BuildRequest(Path("m.onnx"), typing=typing, arguments=("--fp16",) if typing == "weak" else ())
    line = trtexec_process.command("trtexec", request, options(release))
    assert line == ["trtexec", "--onnx=m.onnx", "--verbose", "--profilingVerbosity=detailed", *wanted]


def test_trtexec_command_with_everything() -> None:
    request = BuildRequest(
        Path("m.onnx"),
        profiles={
            "x": InputProfile((1, 8), (2, 8), (4, 8)),
            "y": InputProfile((1,), (1,), (1,)),
            "z": InputProfile((3,), (3,), (9,)),
        },
        engine_path=Path("e.plan"),
        layer_info_path=Path("li.json"),
        tf32=False,
        arguments=("--builderOptimizationLevel=3",),
    )
    line = trtexec_process.command("trtexec", request, options("11.4"), open_inputs=("x", "z"))
    assert line[5:] == [
        "--noTF32",
        "--saveEngine=e.plan",
        "--exportLayerInfo=li.json",
        "--minShapes=x:1x8,z:3",
        "--optShapes=x:2x8,z:3",
        "--maxShapes=x:4x8,z:9",
        "--builderOptimizationLevel=3",
    ]


@pytest.mark.parametrize(
    ("release", "change", "message"),
    [
        ("11.4", {"typing": "weak"}, "this trtexec knows strong typing only"),
        ("8.4", {"typing": "strong"}, "this trtexec has no strong typing"),
        ("10.3", {"fp32_nodes": ("n",)}, "trtexec takes layer names, not ONNX nodes"),
        ("10.3", {"compute_capabilities": ("8.6",)}, "compute capabilities cannot be chosen"),
        ("10.3", {"profiles": {"a,b": InputProfile((1,), (1,), (1,))}}, "input 'a,b' cannot be named to trtexec"),
    ],
)
def test_what_trtexec_cannot_do_is_said(release: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trtexec_process.command("trtexec", BuildRequest(Path("m.onnx"), **change), options(release), ("a,b",))


@pytest.mark.parametrize(("banner", "version"), [("101601", "10.16.1"), ("110201", "11.2.1"), ("8601", "8.6.1")])
def test_version_of_the_banner(banner: str, version: str) -> None:
    assert trtexec_process.version_of(banner) == version


LOG = """&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec --onnx=m.onnx
[07/07/2026-02:10:59] [W] Weakly-typed networks have been deprecated in TensorRT.
[07/07/2026-02:11:23] [V] [TRT] Registering layer: /a_1 for ONNX node: /a
[07/07/2026-02:11:24] [V] [TRT] Engine Layer Information:
Layer(Myelin): dropped strategy, Tactic: 0x0000000000000000, x (Half[1]) -> y (Half[1])
[07/07/2026-02:11:24] [V] [TRT] Engine Layer Information:
Layer(Myelin): {ForeignNode[/a]}, Tactic: 0x0000000000000000, x (Half[1]) -> y (Half[1])
[07/07/2026-02:11:24] [I] Engine built
"""


@pytest.fixture
def fake_trtexec(tmp_path: Path) -> Any:
    def write(body: str) -> str:
        path = tmp_path / "trtexec"
        lines = [
            f"#!{sys.executable}",
            "import sys, time",
            "args = dict(a.partition('=')[::2] for a in sys.argv[1:])",
            f"if '--help' in args: print({HELP['10.3']!r}); sys.exit()",
            body,
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def dynamic_model(tmp_path: Path) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "dynamic.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for trtexec is a script with a #! line")


@posix
def test_trtexec_builds_and_its_log_is_read(fake_trtexec: Any, dynamic_model: Path, tmp_path: Path) -> None:
    body = f"print({LOG!r})\nprint(*sys.argv[1:], sep='\\n')\nopen(args['--saveEngine'], 'wb').write(b'engine')"
    result = trtexec_process.build(
        dynamic_model,
        executable=fake_trtexec(body),
        profiles={"x": ((1, 8), (4, 8), (9, 8))},
        engine_path=tmp_path / "e.plan",
    )
    assert (result.backend, result.version, result.engine_bytes) == ("trtexec", "10.16.1", 6)
    assert result.kernels == (
        "Layer(Myelin): {ForeignNode[/a]}, Tactic: 0x0000000000000000, x (Half[1]) -> y (Half[1])",
    )
    assert result.node_layers == {"/a": ("/a_1",)}
    assert result.warnings == ("Weakly-typed networks have been deprecated in TensorRT.",)
    assert "--maxShapes=x:9x8" in list(result.log_lines())
    assert (tmp_path / "e.plan").read_bytes() == b"engine"


@posix
@pytest.mark.parametrize(
    ("body", "failure", "message"),
    [
        (
            "print('[E] [TRT] f: Error Code 4: API Usage Error (/Sub: types Half and Float.)'); sys.exit(1)",
            "failed",
            "could not build {model}: /Sub: types Half and Float.",
        ),
        ("print('one', flush=True); time.sleep(60)", "timeout", "trtexec did not finish within 1 s and was stopped"),
        ("print('two', flush=True); __import__('os').abort()", "crashed", r"trtexec crashed \(SIGABRT\) .* two"),
    ],
)
def test_trtexec_that_fails_is_one_clear_error(
    fake_trtexec: Any, dynamic_model: Path, tmp_path: Path, body: str, failure: str, message: str
) -> None:
    engine = tmp_path / "e.plan"
    wanted = message.replace("{model}", str(dynamic_model))
    limit = 1 if failure == "timeout" else 60
    with pytest.raises(BuildError, match=wanted) as caught:
        trtexec_process.build(dynamic_model, executable=fake_trtexec(body), engine_path=engine, time_limit_s=limit)
    assert caught.value.failure == failure
    assert not engine.exists() and not list(tmp_path.glob(".*"))


def test_no_trtexec_is_a_missing_backend(dynamic_model: Path) -> None:
    with pytest.raises(MissingBackend, match="no-such-trtexec is not on the PATH; it comes with TensorRT"):
        trtexec_process.build(dynamic_model, executable="no-such-trtexec")


@posix
def test_another_tool_is_not_taken_for_trtexec(tmp_path: Path, dynamic_model: Path) -> None:
    impostor = tmp_path / "impostor"
    impostor.write_text("#!/bin/sh\necho --version\n", encoding="utf-8")
    impostor.chmod(0o755)
    with pytest.raises(MissingBackend, match="names no --onnx option; is it trtexec"):
        trtexec_process.build(dynamic_model, executable=str(impostor))


def test_profiles_need_a_real_model_for_trtexec(fake_trtexec: Any, tmp_path: Path) -> None:
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"\xff\xfe not a model")
    with pytest.raises(InputError, match="is not an ONNX model"):
        trtexec_process.build(junk, executable=fake_trtexec("pass"), profiles={"x": (np.array([1]),) * 3})
