"""The verb `advise`: what it prints, its document, and its errors."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from halfwise.cli.advise import command
from halfwise.core.errors import InputError
from tests.support.says import Says

onnx = pytest.importorskip("onnx")

app = typer.Typer()
app.command()(command)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def attention(tmp_path):
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    float_type = onnx.TensorProto.FLOAT
    nodes = [node("MatMul", ["x", "x"], ["s"]), node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", float_type, [4, 4])], [value("y", float_type, [4, 4])])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_what_applies_is_shown_in_full_and_first(attention, says: Says):
    ended = run("--target", "trt-10.0.0@t4", str(attention))
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    says(lines[0])
    says(lines[2])
    says(lines, "do:  Update")
    assert "  see: https://github.com/NVIDIA/TensorRT/issues/3777" in lines
    later = lines.index("may apply (--full shows workarounds and sources)")
    assert any(line.startswith("  TRT-PROFILE-ACC-107 (") for line in lines[later:])
    says(lines[later:], "only with several")


def test_all_of_it_is_told_on_request(attention, says: Says):
    lines = run("--target", "trt-10.0.0@t4", str(attention), "--full").stdout.splitlines()
    assert "may apply" in lines and sum(line.startswith("  do: ") for line in lines) == 4 + 10
    says(lines, "unknown: only with")


def test_json_is_one_document(attention):
    ended = run("--target", "trt-10.0.0@t4", str(attention), "--json")
    document = json.loads(ended.stdout)
    assert (document["schema"], document["source"]) == ("halfwise.advise/1", str(attention))
    by_id = {advisory["id"]: advisory for advisory in document["advisories"]}
    assert by_id["TRT-MHA-V2-1000"]["applies"] == "yes"
    assert by_id["TRT-MHA-LONGSEQ-FP16"]["applies"] == "maybe"
    assert "TRT-CUMSUM-108" not in by_id


def test_a_model_may_be_absent():
    document = json.loads(run("--target", "trt-10.9", "--json").stdout)
    assert document["source"] is None
    assert "TRT-CUMSUM-108" in {advisory["id"] for advisory in document["advisories"]}


def test_cautions_of_the_target_are_shown(says: Says):
    says(run("--target", "rtx-1.7@h200").stdout, "note: TensorRT-RTX does")


def test_errors_are_for_the_command_line_to_show(tmp_path):
    bad_target = run("--target", "trt-7")
    assert isinstance(bad_target.exception, InputError)
    assert "TensorRT 7 is not known" in str(bad_target.exception)
    no_file = run("--target", "trt-10", str(tmp_path / "gone.onnx"))
    assert isinstance(no_file.exception, InputError)
    assert "there is no such file" in str(no_file.exception)
    assert run().exit_code == 2
