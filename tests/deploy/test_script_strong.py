"""The build script under strong typing, and what no script can say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.targets import Target
from halfwise.deploy.script import ScriptRequest, build_script
from halfwise.deploy.trtexec import InputShape
from tests.support.says import Says
from tests.support.scripts import F16, Layer, fake_tensorrt, run, weak

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


def test_a_model_without_fp16_is_noticed(tmp_path, monkeypatch, capsys, says: Says):
    module, _ = fake_tensorrt([Layer("a", "")])
    assert run(tmp_path, ScriptRequest(Target.parse("trt-10.3"), "m.onnx"), module, monkeypatch) == 0
    says(capsys.readouterr().err, "note: no tensor")


def test_a_version_without_strong_typing_is_refused(tmp_path, monkeypatch, capsys, says: Says):
    module, _ = fake_tensorrt([], version="8.6.1", lacks=("STRONGLY_TYPED",))
    assert run(tmp_path, ScriptRequest(Target.parse("trt-10.3"), "m.onnx"), module, monkeypatch) == 3
    says(capsys.readouterr().err, "TensorRT 8.6.1 has")


def test_rtx_is_imported_by_either_name(tmp_path, monkeypatch):
    module, seen = fake_tensorrt([], lacks=("EXPLICIT_BATCH",))
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    request = ScriptRequest(Target.parse("rtx-1.7"), "m.onnx")
    assert run(tmp_path, request, module, monkeypatch, name="tensorrt_rtx_bindings") == 0
    assert seen.flags == 1


# What cannot be written


@pytest.mark.parametrize(
    ("target", "node"),
    [
        ("onnx", None),
        ("trt-8.5", None),
        ("trt-8", None),
        ("trt-11.1", ("a", Format.FP32)),
        ("trt-8.6", ("a", Format.BF16)),
    ],
)
def test_requests_that_no_script_can_meet(target, node, says: Says):
    request = ScriptRequest(Target.parse(target), "m.onnx", nodes=(node,) if node else ())
    with pytest.raises(InputError) as caught:
        build_script(request)
    says(caught.value)


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
    assert "no tensor of this model" not in ended.stderr
    assert (tmp_path / "model.engine").stat().st_size > 0
