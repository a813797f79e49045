"""The build script, run against a stand-in for TensorRT that records what it is asked, and against TensorRT-RTX."""

from __future__ import annotations

import json

import pytest

from halfwise.core.formats import Format
from halfwise.core.targets import Target
from halfwise.deploy.script import ScriptRequest, build_script
from halfwise.deploy.trtexec import InputShape
from halfwise.deploy.trtexec_grammar import IoFormat
from tests.support.says import Says
from tests.support.scripts import BF16, BOOL, F16, F32, I32, Layer, Tensor, fake_tensorrt, run, weak


def test_every_layer_of_a_node_is_kept_in_fp32_and_no_other(tmp_path, monkeypatch, capsys, says: Says):
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
    says(capsys.readouterr().err)


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


def test_nodes_that_cannot_be_found_are_named_and_nothing_is_built(tmp_path, monkeypatch, capsys, says: Says):
    module, _ = fake_tensorrt([Layer("a", "[ONNX Layer: a]"), Layer("cut", "[ONNX Layer: gon")])
    assert run(tmp_path, weak("a", "gone", 'it\'s "x"'), module, monkeypatch) == 1
    says(capsys.readouterr().err)
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


def test_types_and_layouts_of_inputs_and_outputs(tmp_path, monkeypatch, capsys, says: Says):
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
    says(capsys.readouterr().err, "the model has")
    assert "set_model_io" not in build_script(weak())


def test_the_values_of_an_input_that_holds_a_shape(tmp_path, monkeypatch, capsys, says: Says):
    sizes, ids = Tensor(I32, "sizes", (2,), is_shape_tensor=True), Tensor(I32, "ids", (2,))
    values = (InputShape("sizes", (1, 8), (4, 8), (9, 8)), InputShape("ids", (0, 0), (3, 1), (5, 5)))
    module, seen = fake_tensorrt([], inputs=[sizes, ids])
    assert run(tmp_path, weak(values=values), module, monkeypatch) == 0
    assert seen.profile == {"sizes": ("values", (1, 8), (4, 8), (9, 8))}
    module, _ = fake_tensorrt([], inputs=[sizes])
    assert run(tmp_path, weak(), module, monkeypatch) == 2
    says(capsys.readouterr().err, "the value of")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"lacks": ("FP16",), "version": "11.1.0"}, 3),
        ({"lacks": ("metadata",), "version": "8.5.3"}, 3),
        ({"parses": False}, 2),
        ({"inputs": [Tensor(name="x", shape=(-1, 3))]}, 2),
        ({"plan": None}, 1),
    ],
)
def test_what_stops_a_weak_build(tmp_path, monkeypatch, capsys, options, code, says: Says):
    module, _ = fake_tensorrt([], **options)
    assert run(tmp_path, weak(), module, monkeypatch) == code
    says(capsys.readouterr().err)
    assert not (tmp_path / "model.engine").exists()


def test_missing_model_and_missing_tensorrt(tmp_path, monkeypatch, capsys):
    module, _ = fake_tensorrt([])
    request = ScriptRequest(Target.parse("trt-8.6"), "absent.onnx")
    assert run(tmp_path, request, module, monkeypatch) == 2
    assert f"{tmp_path / 'absent.onnx'}: no such file" in capsys.readouterr().err
    # None in sys.modules makes an import fail as if nothing were installed.
    assert run(tmp_path, request, None, monkeypatch) == 3
    assert "cannot import tensorrt: " in capsys.readouterr().err


def test_its_help_needs_no_tensorrt(tmp_path, monkeypatch, capsys):
    request = ScriptRequest(Target.parse("trt-8.6"), "absent.onnx")
    for word in ("-h", "--help"):
        assert run(tmp_path, request, None, monkeypatch, arguments=[word]) == 0
        assert "--run FOLDER" in capsys.readouterr().out


def test_an_engine_that_cannot_be_loaded_is_kept(tmp_path, monkeypatch, capsys, says: Says):
    module, _ = fake_tensorrt([], loads=False)
    assert run(tmp_path, weak(), module, monkeypatch) == 0
    assert (tmp_path / "model.engine").exists()
    assert not (tmp_path / "layers.json").exists()
    says(capsys.readouterr().err, "note: the engine")
