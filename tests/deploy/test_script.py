"""The build script, run against a stand-in for TensorRT that records what it is asked, and against TensorRT-RTX."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.targets import Target
from halfwise.deploy.script import ScriptRequest, build_script
from halfwise.deploy.trtexec import InputShape
from halfwise.deploy.trtexec_grammar import IoFormat

F32, F16, BF16, I32, BOOL = "float32", "float16", "bfloat16", "int32", "bool"


class Tensor:
    def __init__(self, dtype=F32, name="t", shape=(1,), is_shape_tensor=False):
        self.dtype, self.name, self.shape, self.is_shape_tensor = dtype, name, shape, is_shape_tensor
        self.allowed_formats = 0


class Layer:
    """A layer of a parsed network; remembers what was asked of it."""

    def __init__(self, name, metadata, inputs=(F32,), outputs=(F32,)):
        self.name, self.metadata = name, metadata
        self.inputs = [Tensor(kind) if isinstance(kind, str) else kind for kind in inputs]
        self.outputs = [Tensor(kind) for kind in outputs]
        self.precision = None
        self.output_types = {}

    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))

    def get_input(self, index):
        return self.inputs[index]

    def get_output(self, index):
        return self.outputs[index]

    def set_output_type(self, index, dtype):
        self.output_types[index] = dtype


def fake_tensorrt(layers, *, inputs=(), outputs=(), version="10.3.0", lacks=(), parses=True, plan=b"plan", loads=True):
    """A module with the part of TensorRT's interface that a script uses; `lacks` names what this version has not."""
    seen = SimpleNamespace(
        flags=None, config=set(), cleared=set(), profile={}, parsed=None, verbosity=None, severity=None
    )
    network = SimpleNamespace(
        num_layers=len(layers),
        get_layer=lambda index: layers[index],
        num_inputs=len(inputs),
        get_input=lambda index: inputs[index],
        num_outputs=len(outputs),
        get_output=lambda index: outputs[index],
    )

    class Config:
        def set_flag(self, flag):
            seen.config.add(flag)

        def clear_flag(self, flag):
            seen.cleared.add(flag)

        def add_optimization_profile(self, profile):
            seen.profile = profile.shapes

        def __setattr__(self, name, value):
            assert name == "profiling_verbosity"
            seen.verbosity = value

    class Profile:
        def __init__(self):
            self.shapes = {}

        def set_shape(self, name, low, usual, high):
            self.shapes[name] = (low, usual, high)

        def set_shape_input(self, name, low, usual, high):
            self.shapes[name] = ("values", low, usual, high)

    class Builder:
        def __init__(self, logger):
            pass

        def create_network(self, flags):
            seen.flags = flags
            return network

        def create_builder_config(self):
            return Config()

        def create_optimization_profile(self):
            return Profile()

        def build_serialized_network(self, network, config):
            return plan

    class OnnxParser:
        num_errors = 0 if parses else 1

        def __init__(self, network, logger):
            pass

        def parse_from_file(self, path):
            seen.parsed = path
            return parses

        def get_error(self, index):
            return "no importer for Foo"

    class Logger:
        VERBOSE, WARNING = "verbose", "warning"

        def __init__(self, severity):
            seen.severity = severity

    inspector = SimpleNamespace(get_engine_information=lambda form: json.dumps({"Layers": [], "form": form}))
    engine = SimpleNamespace(create_engine_inspector=lambda: inspector) if loads else None

    def enum(*names, number=False):
        kept = [name for name in names if name not in lacks]
        return SimpleNamespace(**{name: index if number else name for index, name in enumerate(kept)})

    module = SimpleNamespace(
        __version__=version,
        Builder=Builder,
        OnnxParser=OnnxParser,
        Logger=Logger,
        Runtime=lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: engine),
        ILayer=SimpleNamespace() if "metadata" in lacks else SimpleNamespace(metadata=""),
        BuilderFlag=enum("FP16", "BF16", "TF32", "OBEY_PRECISION_CONSTRAINTS"),
        NetworkDefinitionCreationFlag=enum("EXPLICIT_BATCH", "STRONGLY_TYPED", number=True),
        TensorFormat=enum("LINEAR", "CHW2", "HWC8", "CHW16", number=True),
        ProfilingVerbosity=SimpleNamespace(DETAILED="detailed"),
        LayerInformationFormat=SimpleNamespace(JSON="json"),
        float32=F32,
        float16=F16,
    )
    if "bfloat16" not in lacks:
        module.bfloat16 = BF16
    return module, seen


def run(folder: Path, request: ScriptRequest, module, monkeypatch, name="tensorrt", arguments=()) -> int:
    """Run the script as its user would, with `module` in TensorRT's place; returns the exit code."""
    if not (folder / "m.onnx").exists() and request.onnx == "m.onnx":
        (folder / "m.onnx").write_bytes(b"model")
    script = folder / "build_engine.py"
    script.write_text(build_script(request), encoding="utf-8")
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    return ended.value.code


def weak(*nodes: str | tuple[str, Format], target="trt-10.3+weak", **options) -> ScriptRequest:
    wanted = tuple((node, Format.FP32) if isinstance(node, str) else node for node in nodes)
    return ScriptRequest(Target.parse(target), "m.onnx", nodes=wanted, **options)


def test_every_layer_of_a_node_is_kept_in_fp32_and_no_other(tmp_path, monkeypatch, capsys):
    layers = [
        Layer("node_linear", "[ONNX Layer: node_linear]"),
        Layer("node_linear_1", "[ONNX Layer: node_linear]"),
        Layer("node_linear_1_2", "[ONNX Layer: node_linear_1]"),
        Layer("ONNXTRT_Broadcast_4", ""),
        Layer("node_linear_1_5", "[ONNX Layer: node_linear_1 | Local Function: Block]"),
        Layer("fused", "[ONNX Layer: a]\x1e[ONNX Layer: b]\x1f[ONNX Layer: node_linear_1]"),
    ]
    module, seen = fake_tensorrt(layers)
    assert run(tmp_path, weak("node_linear_1"), module, monkeypatch) == 0
    assert [layer.name for layer in layers if layer.precision == F32] == ["node_linear_1_2", "node_linear_1_5", "fused"]
    assert [layer.name for layer in layers if layer.output_types == {0: F32}] == [
        "node_linear_1_2",
        "node_linear_1_5",
        "fused",
    ]
    assert seen.config == {"FP16", "OBEY_PRECISION_CONSTRAINTS"}
    assert seen.cleared == set()
    assert seen.verbosity == "detailed"
    assert seen.severity == "warning"
    assert seen.parsed == str(tmp_path / "m.onnx")
    assert (tmp_path / "model.engine").read_bytes() == b"plan"
    assert json.loads((tmp_path / "layers.json").read_text()) == {"Layers": [], "form": "json"}
    assert capsys.readouterr().err == (f"kept out of FP16: 1 nodes, 3 layers\nbuilt {tmp_path / 'model.engine'}\n")


def test_integer_outputs_and_shape_layers_stay_as_they_are(tmp_path, monkeypatch):
    topk = Layer("topk", "[ONNX Layer: topk]", (F32,), (F32, I32))
    compare = Layer("less", "[ONNX Layer: less]", (F32, F32), (BOOL,))
    gather = Layer("gather", "[ONNX Layer: gather]", (I32,), (I32,))
    shape = Layer("shape", "[ONNX Layer: shape]", (Tensor(F32, is_shape_tensor=True),), (F32,))
    constant = Layer("constant", "[ONNX Layer: constant]", (), (F32,))
    loose = Layer("slice", "[ONNX Layer: slice]", (None, F32), (F32,))
    loose.inputs[0] = None
    module, _ = fake_tensorrt([topk, compare, gather, shape, constant, loose])
    nodes = ("topk", "less", "gather", "shape", "constant", "slice")
    assert run(tmp_path, weak(*nodes), module, monkeypatch) == 0
    assert (topk.precision, topk.output_types) == (F32, {0: F32})
    assert (compare.precision, compare.output_types) == (F32, {})
    assert (gather.precision, gather.output_types) == (None, {})
    assert (shape.precision, shape.output_types) == (None, {})
    assert (constant.precision, constant.output_types) == (F32, {0: F32})
    assert (loose.precision, loose.output_types) == (F32, {0: F32})


def test_nodes_that_cannot_be_found_are_named_and_nothing_is_built(tmp_path, monkeypatch, capsys):
    module, _ = fake_tensorrt([Layer("a", "[ONNX Layer: a]"), Layer("cut", "[ONNX Layer: gon")])
    assert run(tmp_path, weak("a", "gone", 'it\'s "x"'), module, monkeypatch) == 1
    assert capsys.readouterr().err.splitlines() == [
        'not found: no layer came from ONNX node "gone"',
        'not found: no layer came from ONNX node "it\'s \\"x\\""',
        "2 of 3 nodes not found, nothing built",
    ]
    assert not (tmp_path / "model.engine").exists()


def test_bf16_nodes(tmp_path, monkeypatch, capsys):
    layer = Layer("a", "[ONNX Layer: a]")
    request = weak(("a", Format.BF16))
    module, seen = fake_tensorrt([layer])
    assert run(tmp_path, request, module, monkeypatch) == 0
    assert (layer.precision, layer.output_types) == (BF16, {0: BF16})
    assert "BF16" in seen.config
    without, _ = fake_tensorrt([layer], version="9.0", lacks=("bfloat16",))
    assert run(tmp_path, request, without, monkeypatch) == 3
    assert "TensorRT 9.0 has no BF16" in capsys.readouterr().err


def test_tf32_verbosity_and_shapes(tmp_path, monkeypatch):
    module, seen = fake_tensorrt([], inputs=[Tensor(name="x", shape=(-1, 3)), Tensor(name="y", shape=(2, 3))])
    request = weak(
        tf32=False, shapes=(InputShape("x", (1, 3), (4, 3), (8, 3)), InputShape("y", (2, 3), (2, 3), (2, 3)))
    )
    assert run(tmp_path, request, module, monkeypatch, arguments=["--verbose"]) == 0
    assert seen.cleared == {"TF32"}
    assert seen.severity == "verbose"
    assert seen.profile == {"x": ((1, 3), (4, 3), (8, 3))}


def test_types_and_layouts_of_inputs_and_outputs(tmp_path, monkeypatch, capsys):
    ends = (("x", IoFormat("fp16", ("hwc8",))), ("y", IoFormat("fp16", ("chw", "chw16"))), ("odd", IoFormat("bf16")))
    tensors = [Tensor(name="x"), Tensor(name="left alone")], [Tensor(name="y"), Tensor(BF16, name="odd")]
    module, _ = fake_tensorrt([], inputs=tensors[0], outputs=tensors[1])
    assert run(tmp_path, weak(model_io=ends), module, monkeypatch) == 0
    seen = {tensor.name: (tensor.dtype, tensor.allowed_formats) for side in tensors for tensor in side}
    assert seen == {"x": (F16, 1 << 2), "left alone": (F32, 0), "y": (F16, 1 << 0 | 1 << 3), "odd": (BF16, 1)}
    strong = ScriptRequest(Target.parse("trt-11.0"), "m.onnx", model_io=ends[:1])
    module, _ = fake_tensorrt([], inputs=[Tensor(F32, name="x")])
    assert run(tmp_path, strong, module, monkeypatch) == 0
    assert (module.Builder(None).create_network(0).get_input(0).dtype) == F32  # the typed model says it
    module, _ = fake_tensorrt([], inputs=[Tensor(name="x")], lacks=["HWC8"])
    assert run(tmp_path, strong, module, monkeypatch) == 3
    assert "has no memory layout hwc8" in capsys.readouterr().err
    module, _ = fake_tensorrt([], inputs=[Tensor(name="z")])
    assert run(tmp_path, strong, module, monkeypatch) == 2
    assert 'the model has no input or output "x"' in capsys.readouterr().err
    assert "set_model_io" not in build_script(weak())


def test_the_values_of_an_input_that_holds_a_shape(tmp_path, monkeypatch, capsys):
    sizes, ids = Tensor(I32, "sizes", (2,), is_shape_tensor=True), Tensor(I32, "ids", (2,))
    values = (InputShape("sizes", (1, 8), (4, 8), (9, 8)), InputShape("ids", (0, 0), (3, 1), (5, 5)))
    module, seen = fake_tensorrt([], inputs=[sizes, ids])
    assert run(tmp_path, weak(values=values), module, monkeypatch) == 0
    assert seen.profile == {"sizes": ("values", (1, 8), (4, 8), (9, 8))}
    module, _ = fake_tensorrt([], inputs=[sizes])
    assert run(tmp_path, weak(), module, monkeypatch) == 2
    assert "the value of input sizes is dynamic: add [min, opt, max] to values in SETTINGS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"lacks": ("FP16",), "version": "11.1.0"}, 3, "TensorRT 11.1.0 has no weak typing: build the typed model"),
        ({"lacks": ("metadata",), "version": "8.5.3"}, 3, "TensorRT 8.5.3 has no layer metadata; it came with 8.6"),
        ({"parses": False}, 2, "m.onnx: TensorRT's parser refuses this model"),
        ({"parses": False}, 2, "parser: no importer for Foo"),
        ({"inputs": [Tensor(name="x", shape=(-1, 3))]}, 2, "the shape of input x is dynamic: add [min, opt,"),
        ({"plan": None}, 1, "the build failed; TensorRT's messages above say why"),
    ],
)  # fmt: skip
def test_what_stops_a_weak_build(tmp_path, monkeypatch, capsys, options, code, message):
    module, _ = fake_tensorrt([], **options)
    assert run(tmp_path, weak(), module, monkeypatch) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "model.engine").exists()


def test_missing_model_and_missing_tensorrt(tmp_path, monkeypatch, capsys):
    module, _ = fake_tensorrt([])
    request = ScriptRequest(Target.parse("trt-8.6"), "absent.onnx")
    assert run(tmp_path, request, module, monkeypatch) == 2
    assert f"{tmp_path / 'absent.onnx'}: no such file" in capsys.readouterr().err
    # None in sys.modules makes an import fail as if nothing were installed.
    assert run(tmp_path, request, None, monkeypatch) == 3
    assert "cannot import tensorrt: " in capsys.readouterr().err


def test_an_engine_that_cannot_be_loaded_is_kept(tmp_path, monkeypatch, capsys):
    module, _ = fake_tensorrt([], loads=False)
    assert run(tmp_path, weak(), module, monkeypatch) == 0
    assert (tmp_path / "model.engine").exists()
    assert not (tmp_path / "layers.json").exists()
    assert "note: the engine cannot be loaded here, so no layer info was written" in capsys.readouterr().err


# Strong typing


@pytest.mark.parametrize(
    ("target", "lacks", "flags"),
    [
        ("trt-10.3", (), 0b11),
        ("trt-10.16", ("EXPLICIT_BATCH",), 0b1),
        ("trt-11.1", ("EXPLICIT_BATCH", "FP16"), 0b0),
        ("trt-11.1", (), 0b11),  # run with 10.x all the same
        ("trt-9.1", (), 0b11),
    ],
)
def test_strong_typing_is_asked_for_by_name(tmp_path, monkeypatch, capsys, target, lacks, flags):
    module, seen = fake_tensorrt([Layer("a", "", outputs=(F16,)), Layer("sink", "", outputs=())], lacks=lacks)
    request = ScriptRequest(Target.parse(target), "m.onnx")
    assert run(tmp_path, request, module, monkeypatch) == 0
    assert seen.flags == flags
    assert seen.config == set()
    assert "no tensor" not in capsys.readouterr().err


def test_a_model_without_fp16_is_noticed(tmp_path, monkeypatch, capsys):
    module, _ = fake_tensorrt([Layer("a", "")])
    assert run(tmp_path, ScriptRequest(Target.parse("trt-10.3"), "m.onnx"), module, monkeypatch) == 0
    assert "note: no tensor of this model is FP16, so neither is the engine" in capsys.readouterr().err


def test_a_version_without_strong_typing_is_refused(tmp_path, monkeypatch, capsys):
    module, _ = fake_tensorrt([], version="8.6.1", lacks=("STRONGLY_TYPED",))
    assert run(tmp_path, ScriptRequest(Target.parse("trt-10.3"), "m.onnx"), module, monkeypatch) == 3
    assert "TensorRT 8.6.1 has no strong typing; it came with 9.1" in capsys.readouterr().err


def test_rtx_is_imported_by_either_name(tmp_path, monkeypatch):
    module, seen = fake_tensorrt([], lacks=("EXPLICIT_BATCH",))
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    request = ScriptRequest(Target.parse("rtx-1.7"), "m.onnx")
    assert run(tmp_path, request, module, monkeypatch, name="tensorrt_rtx_bindings") == 0
    assert seen.flags == 1


# What cannot be written


@pytest.mark.parametrize(
    ("target", "node", "message"),
    [
        ("onnx", None, "target onnx: a build script is for TensorRT; name a version, e.g. --target trt-10.9"),
        (
            "trt-8.5",
            None,
            "TensorRT before 8.6 does not tell which ONNX node a layer came from; use the trtexec command",
        ),
        ("trt-8", None, "TensorRT before 8.6 does not tell"),
        (
            "trt-11.1",
            ("a", Format.FP32),
            "a strongly typed build takes no precisions for nodes; give it the typed ONNX",
        ),
        ("trt-8.6", ("a", Format.BF16), "node 'a' cannot be bf16: TensorRT 8.6 has no BF16; it came with 9.1"),
    ],
)
def test_requests_that_no_script_can_meet(target, node, message):
    request = ScriptRequest(Target.parse(target), "m.onnx", nodes=(node,) if node else ())
    with pytest.raises(InputError) as caught:
        build_script(request)
    assert message in str(caught.value)


texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['"""', "'''", "\\", '\\"""', "@MODULES@", "@SETTINGS@", "{x}", "\n", "a\x00b", "\U0001f600", '"', ']"', "${x}"]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(texts, unique=True, max_size=5), texts)
def test_any_name_survives_in_the_script(tmp_path, nodes, path):
    text = build_script(
        ScriptRequest(Target.parse("trt-8.6"), path, nodes=tuple((node, Format.FP32) for node in nodes))
    )
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    loaded = runpy.run_path(str(script))
    assert loaded["SETTINGS"]["nodes"] == dict.fromkeys(nodes, "fp32")
    assert loaded["SETTINGS"]["model"] == path
    assert loaded["MODULES"] == ("tensorrt",)


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x1e\x1f|"), min_size=1), max_size=4
    )
)
def test_the_script_reads_metadata_as_the_library_does(names):
    from halfwise.deploy.layer_names import nodes_in_metadata

    scope: dict[str, object] = {"__name__": "script", "__file__": "script.py"}
    exec(compile(build_script(weak()), "script.py", "exec"), scope)
    metadata = "\x1e".join(f"[ONNX Layer: {name}]" for name in names)
    assert tuple(dict.fromkeys(scope["onnx_nodes"](metadata))) == nodes_in_metadata(metadata)


def test_the_script_is_for_old_pythons_too():
    import ast

    for target in ("trt-8.6", "trt-10.3+weak", "trt-10.3", "trt-11.1", "rtx-1.7"):
        ast.parse(build_script(ScriptRequest(Target.parse(target), "m.onnx")), feature_version=(3, 6))


def test_a_real_compiler_runs_the_script(tmp_path):
    pytest.importorskip("tensorrt_rtx_bindings", reason="needs the rtx extra")
    onnx = pytest.importorskip("onnx")
    half = onnx.TensorProto.FLOAT16
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "x"], ["y"], name="mm"),
            onnx.helper.make_node("Softmax", ["y"], ["z"], name="sm"),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", half, ["n", 8, 8])],
        [onnx.helper.make_tensor_value_info("z", half, ["n", 8, 8])],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10),
        tmp_path / "m.onnx",
    )
    shape = InputShape("x", (1, 8, 8), (2, 8, 8), (4, 8, 8))
    script = tmp_path / "build_engine.py"
    script.write_text(build_script(ScriptRequest(Target.parse("rtx-1.7"), "m.onnx", tf32=False, shapes=(shape,))))
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=dict(os.environ), timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert f"built {tmp_path / 'model.engine'}" in ended.stderr
    assert "no tensor of this model is FP16" not in ended.stderr
    assert (tmp_path / "model.engine").stat().st_size > 0
