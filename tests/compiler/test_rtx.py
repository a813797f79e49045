"""TensorRT-RTX for real, on tiny models and without a GPU; its crashes and hangs are played by stand-ins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler import build, rtx
from halfwise.compiler.build import BuildError, BuildRequest, InputProfile, normalised, profiles_from_samples
from halfwise.compiler.handover import read_build_log
from halfwise.core.errors import InputError, MissingBackend
from tests.support.paths import REAL_MODELS
from tests.support.says import Says

needs_rtx = pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
HALF, FLOAT, INT64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    output: list[Any],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    **options: Any,
) -> Path:
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [helper.make_tensor_value_info("y", HALF, output)]
    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    graph = helper.make_graph(nodes, "g", values, results, stored)
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path), **options)
    return path


def dense(path: Path, rows: Any = 2, bias: Any = np.float16, **options: Any) -> Path:
    """MatMul, Add and a Softmax without a name; a bias of another type is what TensorRT-RTX must refuse."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="/mm"),
        helper.make_node("Add", ["m", "b"], ["a"], name="/add"),
        helper.make_node("Softmax", ["a"], ["y"]),
    ]
    weights = {"w": np.eye(8, dtype=np.float16), "b": np.ones(8, dtype=bias)}
    return save(path, nodes, {"x": (HALF, [rows, 8])}, [rows, 8], weights, **options)


@needs_rtx
def test_a_build_gives_the_engine_the_kernels_and_the_layers_of_every_node(tmp_path: Path, says: Says) -> None:
    engine, log = tmp_path / "e.plan", tmp_path / "build.log"
    result = rtx.build(dense(tmp_path / "m.onnx"), engine_path=engine, log_path=log)
    assert (result.backend, result.engine_path, result.log_path) == ("tensorrt-rtx", engine, log)
    assert engine.stat().st_size == result.engine_bytes > 1000
    assert int(result.version.split(".")[0]) >= 1 and 0 < result.seconds < 600
    assert result.node_layers == {"/mm": ("/mm",), "/add": ("/add",), "node_of_y": ("node_of_y",)}
    in_kernels = "".join(result.kernels)
    assert all(line.startswith("Name: ") and "Datatype: Half" in line for line in result.kernels)
    assert all(f"[ONNX Layer: {node}]" in in_kernels for node in result.node_layers)
    lines = list(result.log_lines())
    assert any(line.endswith(" for ONNX node: /mm") for line in lines)
    assert lines[lines.index("[V] [TRT] Layers:") + 1 :][: len(result.kernels)] == list(result.kernels)
    says(*result.notes)


@needs_rtx
def test_no_engine_is_kept_unless_asked_for(tmp_path: Path) -> None:
    result = rtx.build(dense(tmp_path / "m.onnx"))
    assert result.engine_path is None and result.engine_bytes > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert result.log_path.is_file()


@needs_rtx
def test_one_node_may_become_several_layers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["m"], name="fc"),
        helper.make_node("Gemm", ["m", "w", "b"], ["y"], name="fc_1"),
    ]
    weights = {"w": np.eye(8, dtype=np.float16), "b": np.ones(8, dtype=np.float16)}
    result = rtx.build(save(tmp_path / "m.onnx", nodes, {"x": (HALF, [2, 8])}, [2, 8], weights))
    assert {node: len(layers) for node, layers in result.node_layers.items()} == {"fc": 2, "fc_1": 2}


@needs_rtx
def test_types_that_disagree_are_refused_in_nvidias_words(tmp_path: Path) -> None:
    model, engine = dense(tmp_path / "m.onnx", bias=np.float32), tmp_path / "e.plan"
    engine.write_bytes(b"the engine of before")
    with pytest.raises(BuildError) as caught:
        rtx.build(model, engine_path=engine, log_path=tmp_path / "build.log")
    words = "ElementWiseOperation SUM must have same input types. But they are of types Half and Float"
    assert f"refuses {model}: node '/add' (Add): {words} (whole log: {tmp_path / 'build.log'})" in str(caught.value)
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    assert caught.value.failure == "refused"
    (refusal,) = caught.value.refusals
    assert (refusal.node, refusal.operator, refusal.message) == ("/add", "Add", words)
    assert any("While parsing node number 1" in line for line in caught.value.log_tail)
    assert engine.read_bytes() == b"the engine of before" and not list(tmp_path.glob(".*"))


@needs_rtx
def test_an_unknown_operator_is_refused_by_name(tmp_path: Path, says: Says) -> None:
    node = helper.make_node("Foo", ["x"], ["y"], name="/foo", domain="my")
    with says.raises(BuildError):
        rtx.build(save(tmp_path / "m.onnx", [node], {"x": (HALF, [2])}, [2]))


@needs_rtx
def test_a_refusal_that_names_its_importer_alone_is_about_the_node_read_last(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="/tanh"),
        helper.make_node("ScatterElements", ["t", "at", "x"], ["y"], name="/scatter", axis=0, reduction="add"),
    ]
    weights = {"at": np.zeros((2, 8), np.int64)}
    with pytest.raises(BuildError, match="'/scatter'") as caught:
        rtx.build(save(tmp_path / "m.onnx", nodes, {"x": (HALF, [2, 8])}, [2, 8], weights))
    assert [(each.node, each.operator) for each in caught.value.refusals] == [("/scatter", "ScatterElements")]


@needs_rtx
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, says: Says) -> None:
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"hello world, this is not a model")
    with says.raises(BuildError):
        rtx.build(junk)


@needs_rtx
def test_open_shapes_are_taken_from_samples(tmp_path: Path, says: Says) -> None:
    model = dense(tmp_path / "m.onnx", rows="batch")
    samples = [{"x": np.zeros((rows, 8), np.float16)} for rows in (2, 5, 5, 9)]
    log = "\n".join(rtx.build(model, profiles=profiles_from_samples(samples)).log_lines())
    assert "MinShape: [2,8], OptShape: [5,8]," in log and "MaxShape: [9,8]" in log


@needs_rtx
@pytest.mark.parametrize("rows", [2, "n"])
def test_an_input_that_is_an_output_has_its_profile(rows: Any, tmp_path: Path) -> None:
    proto = onnx.load(dense(tmp_path / "m.onnx", rows=rows))
    proto.graph.output.append(proto.graph.input[0])
    onnx.save(proto, tmp_path / "m.onnx")
    assert rtx.build(tmp_path / "m.onnx", profiles={"x": ((2, 8), (2, 8), (4 if rows == "n" else 2, 8))}).kernels


@needs_rtx
@pytest.mark.parametrize("profiles", [None, {"z": ((1, 8), (1, 8), (1, 8))}, {"x": ((1, 7), (1, 7), (1, 7))}])
def test_a_profile_that_does_not_fit_is_refused(tmp_path: Path, profiles: Any, says: Says) -> None:
    with says.raises(BuildError):
        rtx.build(dense(tmp_path / "m.onnx", rows="batch"), profiles=profiles)


@needs_rtx
def test_a_table_of_one_row_may_hold_a_shape(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["shape", "flat"], ["s"]), helper.make_node("Reshape", ["x", "s"], ["r"])]
    inputs = {"x": (HALF, [4, 4]), "shape": (INT64, [1, 2])}
    nodes.append(helper.make_node("Relu", ["r"], ["y"]))
    model = save(tmp_path / "m.onnx", nodes, inputs, ["a", "b"], {"flat": np.array([-1])})
    samples = [{"x": np.zeros((4, 4), np.float16), "shape": np.array([[rows, 16 // rows]])} for rows in (2, 4)]
    assert rtx.build(model, profiles=profiles_from_samples(samples)).kernels


@needs_rtx
def test_an_input_that_holds_a_shape_is_profiled_by_its_values(tmp_path: Path, says: Says) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    inputs = {"x": (HALF, [4, 4]), "shape": (INT64, [2])}
    model = save(tmp_path / "m.onnx", nodes, inputs, ["a", "b"])
    samples = [{"x": np.zeros((4, 4), np.float16), "shape": np.array([2, 8])}]
    assert rtx.build(model, profiles=profiles_from_samples(samples)).kernels
    assert rtx.build(model, profiles={"shape": ((2, 8), (2, 8), (2, 8))}).kernels
    with says.raises(BuildError):
        rtx.build(model)


@needs_rtx
def test_compute_capabilities_can_be_chosen(tmp_path: Path, says: Says) -> None:
    model = dense(tmp_path / "m.onnx")
    assert rtx.build(model, compute_capabilities=["7.5", "8.9"]).notes[0].startswith("built for 7.5, 8.9;")
    with says.raises(BuildError):
        rtx.build(model, compute_capabilities=["9.0"])


@needs_rtx
def test_external_weights_are_found_beside_the_model(tmp_path: Path, says: Says) -> None:
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    model = dense(tmp_path / "m.onnx", **external)
    assert (tmp_path / "weights.bin").stat().st_size >= 2 * (64 + 8)
    assert rtx.build(model).node_layers["/mm"] == ("/mm",)
    (tmp_path / "weights.bin").unlink()
    with says.raises(BuildError):
        rtx.build(model)


@needs_rtx
@pytest.mark.skipif(not REAL_MODELS.is_dir(), reason=f"the real models are not at {REAL_MODELS}")
def test_real_models_build_or_are_refused_with_a_reason(says: Says) -> None:
    result = rtx.build(REAL_MODELS / "nanotrack_v3_head" / "model.onnx")
    assert len(result.kernels) > 50 and len(result.node_layers) > 50
    with says.raises(BuildError):
        rtx.build(REAL_MODELS / "lighterglue_L3" / "model.onnx")


# --- a compiler that misbehaves --------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a module in TensorRT-RTX's place, which the child process imports."""

    def install(code: str) -> None:
        folder = tmp_path / "library"
        folder.mkdir()
        (folder / "tensorrt_rtx_bindings.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("tensorrt_rtx_bindings", None)

    return install


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("print('compiling /mm', flush=True); import os; os.abort()", "crashed"),
        ("print('tactic 7', flush=True); import time; time.sleep(60)", "timeout"),
        ("import os; os._exit(0)", "crashed"),
        ("raise MemoryError('no room')", "failed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "failed"),
    ],
)
def test_whatever_the_compiler_does_is_one_clear_error(
    tmp_path: Path, stand_in: Any, code: str, failure: str, says: Says
) -> None:
    stand_in(code)
    engine = tmp_path / "e.plan"
    with says.raises(BuildError) as caught:
        limit = 2 if failure == "timeout" else 60
        rtx.build(dense(tmp_path / "m.onnx"), engine_path=engine, time_limit_s=limit)
    assert caught.value.failure == failure and "\n" not in str(caught.value)
    assert not engine.exists() and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "code", ["raise ImportError('libtensorrt_rtx.so.1: cannot open shared file')", "import not_there_at_all", "x = 1"]
)
def test_bindings_without_their_libraries_are_a_missing_backend(
    tmp_path: Path, stand_in: Any, code: str, says: Says
) -> None:
    stand_in(code)
    with pytest.raises(MissingBackend) as caught:
        rtx.build(dense(tmp_path / "m.onnx"))
    assert str(caught.value).startswith("TensorRT-RTX is not usable here: ")
    says(caught.value)


def test_without_rtx_the_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(MissingBackend) as caught:
        rtx.build(tmp_path / "m.onnx")
    assert caught.value.exit_code == 3
    says(caught.value)


def test_paths_are_checked_before_anything_is_started(tmp_path: Path, stand_in: Any, says: Says) -> None:
    stand_in("raise SystemExit('started')")
    with pytest.raises(InputError, match=r"no such model: .*absent\.onnx"):
        rtx.build(tmp_path / "absent.onnx")
    with says.raises(InputError):
        rtx.build(dense(tmp_path / "m.onnx"), engine_path=tmp_path / "nowhere" / "e.plan")
    with says.raises(InputError):
        rtx.build_request(BuildRequest(tmp_path / "m.onnx", layer_info_path=tmp_path / "li.json"))


# --- profiles and logs -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_a_profile_spans_every_sample(shapes: list[tuple[int, int]]) -> None:
    samples = [{"x": np.zeros(shape, np.float32)} for shape in shapes]
    profile = profiles_from_samples(samples)["x"]
    assert profile.opt in shapes and max(map(shapes.count, shapes)) == shapes.count(profile.opt)
    for axis in range(2):
        sizes = [shape[axis] for shape in shapes]
        assert (profile.min[axis], profile.max[axis]) == (min(sizes), max(sizes))
    assert profile.values is None and normalised({"x": profile}) == {"x": profile}


def test_the_usual_shapes_are_those_of_one_sample() -> None:
    """Of three prompts and three steps: alone, no token, a mask of 9 and an empty cache are the most common."""
    lengths = [(5, 0), (6, 0), (9, 0), (1, 4), (1, 8), (1, 8)]
    samples = [
        {"ids": np.zeros((1, new)), "past": np.zeros((1, old)), "mask": np.zeros((1, new + old))}
        for new, old in [*lengths, (9, 0)]
    ]
    usual = [profile.opt[1] for profile in profiles_from_samples(samples).values()]
    assert usual in ([9, 0, 9], [1, 8, 9])
    assert [profile.opt[1] for profile in profiles_from_samples(samples[:5]).values()] == [5, 0, 5]


def test_values_are_kept_for_small_integer_inputs_only() -> None:
    rest = {"ids": np.zeros((1, 65), np.int64), "f": np.ones(2, np.float32)}
    samples = [
        {"shape": np.array([2, 8]), "count": np.array(3), **rest},
        {"shape": np.array([4, 4]), "count": np.array(1), **rest},
    ]
    profiles = profiles_from_samples(samples)
    assert profiles["shape"] == InputProfile((2,), (2,), (2,), ((2, 4), (2, 8), (4, 8)))
    assert profiles["count"] == InputProfile((), (), (), ((1,), (3,), (3,)))
    assert profiles["ids"].values is None and profiles["f"].values is None


@pytest.mark.parametrize("samples", [[], [{"x": np.zeros(2)}, {}], [{"x": np.zeros(2)}, {"x": np.zeros((1, 2))}]])
def test_samples_that_give_no_profile_say_why(samples: Any, says: Says) -> None:
    with says.raises(InputError):
        profiles_from_samples(samples)


@pytest.mark.parametrize("given_profile", [((1,), (2,)), ((1,), (2, 2), (3,)), ((3,), (2,), (4,))])
def test_a_profile_that_makes_no_sense_says_why(given_profile: Any, says: Says) -> None:
    with says.raises(InputError):
        normalised({"x": given_profile})


def test_the_last_list_of_kernels_is_the_engines() -> None:
    lines = [
        "[V] [TRT] Registering layer: a for ONNX node: a",
        "[V] [TRT] Registering layer: a_1 for ONNX node: a",
        "[V] [TRT] Registering layer: w required by ONNX-TRT",
        "[V] [TRT] Layers:",
        "Name: dropped, LayerType: kgen",
        "",
        "[V] [TRT] Layers:",
        "Name: kept, LayerType: kgen, Metadata: [ONNX Layer: a]\x1e[ONNX Layer: b]",
        "Name: kept too, LayerType: gemm",
        "",
        "I/O Tensors:",
        " Name: x, IOMode: Input",
    ]
    log = read_build_log(lines)
    assert log.kernels == (lines[7], lines[8])
    assert log.node_layers == {"a": ("a", "a_1")}


LOADS_WITH_LITTLE_MEMORY = """
import resource, sys
from halfwise.compiler.native_build import import_first
from halfwise.core.errors import HalfwiseError

with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
try:
    import_first(sys.argv[1:])
except HalfwiseError as error:
    print(type(error).__name__, str(error).partition(":")[0])
"""


@needs_rtx
@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_library_for_which_there_is_no_memory_is_not_told_as_missing() -> None:
    """NVIDIA's package hides the error of its library of 234 MB, and the next one tells of a missing file."""
    asked = [sys.executable, "-c", LOADS_WITH_LITTLE_MEMORY, *rtx.MODULES]
    assert subprocess.run(asked, capture_output=True, text=True).stdout == "InputError memory ran out\n"
    asked[-len(rtx.MODULES) :] = ["no_module_of_this_name"]
    assert subprocess.run(asked, capture_output=True, text=True).stdout == "MissingBackend not installed\n"
