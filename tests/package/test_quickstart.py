"""The TensorRT quickstart works as it is written: its commands run in order, with a stand-in where a GPU is needed."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "tensorrt-quickstart.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]

# Writes the layer list of an engine that keeps the model's types: one layer a node.
TRTEXEC = """
import json, sys
import onnx
said = dict(word.partition("=")[::2] for word in sys.argv[1:])
graph = onnx.shape_inference.infer_shapes(onnx.load(said["--onnx"])).graph
names = {1: "Float", 10: "Half"}
types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)}
types |= {tensor.name: tensor.data_type for tensor in graph.initializer}

def tensors(those):
    return [{"Name": name, "Datatype": names[types[name]]} for name in those if types.get(name) in names]

layers = [
    {"Name": node.name, "LayerType": "kgen", "Inputs": tensors(node.input), "Outputs": tensors(node.output),
     "Metadata": f"[ONNX Layer: {node.name}]"}
    for node in graph.node
]
open(said["--exportLayerInfo"], "w").write(json.dumps({"Layers": layers}))
print("built", "strong" if "--stronglyTyped" in said else "weak")
"""


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell script")
def test_the_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halfwise_cli: CommandLine) -> None:
    model, inputs = save(SHAPES["cumulative_sum"](), tmp_path)
    model.rename(tmp_path / "model.onnx")
    inputs.rename(tmp_path / "samples")
    tool = tmp_path / "bin" / "trtexec"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\n{TRTEXEC}", encoding="utf-8")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    ran = []
    for command in COMMANDS:
        program, *words = shlex.split(command)
        ran.append(words[0] if program == "halfwise" else program)
        if program == "halfwise":
            ended = halfwise_cli(*words)
            assert ended.code == 0, (command, ended.err, ended.out)
        else:
            done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
            assert done.stdout.strip() == "built strong"
    assert ran == ["scan", "fix", "verify", "sh", "audit", "gate"]

    plan = json.loads((tmp_path / "out" / "model.plan.json").read_text(encoding="utf-8"))
    assert plan["fp32_nodes"], "nothing stays in FP32"
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert set(re.findall(r"^\| `(model\.[\w.]+)` \|", PAGE, re.M)) <= files

    layers = tmp_path / "out" / "model.layers.json"
    layers.write_text(layers.read_text(encoding="utf-8").replace("Float", "Half"), encoding="utf-8")
    (audit,) = (command for command in COMMANDS if command.startswith("halfwise audit"))
    assert halfwise_cli(*shlex.split(audit)[1:]).code == 1  # as the page states: a planned node ran in FP16
