"""Builds through the trtexec program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise.compiler import trtexec_process
from halfwise.compiler.build import BuildError, BuildRequest, InputProfile
from halfwise.core.errors import InputError, MissingBackend
from tests.support.says import Says

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
    ("release", "change"),
    [
        ("11.4", {"typing": "weak"}),
        ("8.4", {"typing": "strong"}),
        ("10.3", {"fp32_nodes": ("n",)}),
        ("10.3", {"compute_capabilities": ("8.6",)}),
        ("10.3", {"profiles": {"a,b": InputProfile((1,), (1,), (1,))}}),
    ],
)
def test_what_trtexec_cannot_do_is_said(release: str, change: dict[str, Any], says: Says) -> None:
    with says.raises(InputError):
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
    ("body", "failure"),
    [
        (
            "print('[E] [TRT] f: Error Code 4: API Usage Error (/Sub: types Half and Float.)'); sys.exit(1)",
            "failed",
        ),
        ("print('one', flush=True); time.sleep(60)", "timeout"),
        ("print('two', flush=True); __import__('os').abort()", "crashed"),
    ],
)
def test_trtexec_that_fails_is_one_clear_error(
    fake_trtexec: Any, dynamic_model: Path, tmp_path: Path, body: str, failure: str, says: Says
) -> None:
    engine = tmp_path / "e.plan"
    limit = 1 if failure == "timeout" else 60
    with says.raises(BuildError) as caught:
        trtexec_process.build(dynamic_model, executable=fake_trtexec(body), engine_path=engine, time_limit_s=limit)
    assert caught.value.failure == failure
    assert not engine.exists() and not list(tmp_path.glob(".*"))


def test_no_trtexec_is_a_missing_backend(dynamic_model: Path, says: Says) -> None:
    with says.raises(MissingBackend):
        trtexec_process.build(dynamic_model, executable="no-such-trtexec")


@posix
def test_another_tool_is_not_taken_for_trtexec(tmp_path: Path, dynamic_model: Path, says: Says) -> None:
    impostor = tmp_path / "impostor"
    impostor.write_text("#!/bin/sh\necho --version\n", encoding="utf-8")
    impostor.chmod(0o755)
    with says.raises(MissingBackend):
        trtexec_process.build(dynamic_model, executable=str(impostor))


def test_profiles_need_a_real_model_for_trtexec(fake_trtexec: Any, tmp_path: Path) -> None:
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"\xff\xfe not a model")
    with pytest.raises(InputError, match="is not an ONNX model"):
        trtexec_process.build(junk, executable=fake_trtexec("pass"), profiles={"x": (np.array([1]),) * 3})
