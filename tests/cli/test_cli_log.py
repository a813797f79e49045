"""`halfwise log` prints short, plain text or one JSON document; bad input is one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
import typer
from typer.testing import CliRunner

import halfwise
from halfwise.cli import log as verb
from halfwise.core.errors import InputError
from tests.models.zoo import SHAPES
from tests.support.paths import DATA
from tests.support.says import Says

LOGS = DATA / "logs"

app = typer.Typer()
app.command()(verb.command)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_text(says: Says) -> None:
    output = run(str(LOGS / "weights_10.0_trtexec.log"))
    head, *_ = output.split("\n")
    says(head)
    says(output, "error  ")
    says(output, "warning HW701 111")
    assert "\x1b" not in output


def test_long_groups_are_cut(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "build.log"
    path.write_text(
        "".join(
            f"[W] No implementation of layer l{n} obeys the requested constraints in strict mode. x\n" for n in range(9)
        ),
        encoding="utf-8",
    )
    output = run(str(path))
    assert "error   HW722 l4: " in output
    assert "l5" not in output
    says(output, "... and 4")
    assert output.count("->") == 1


def test_nothing_found(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "build.log"
    path.write_text("[V] [TRT] quiet\n", encoding="utf-8")
    output = run(str(path))
    says(output, "a TensorRT log")
    verbose = "[V] [TRT] Registering layer: a for ONNX node: a\n"
    path.write_text(verbose, encoding="utf-8")
    assert run(str(path)).endswith("without a warning about precision\n")


def test_a_log_that_lists_the_engines_layers_leads_to_the_audit(tmp_path: Path) -> None:
    path = tmp_path / "my build.log"
    path.write_text(
        "[V] [TRT] Engine Layer Information:\nLayer(Gemm): c, Tactic: 0x1, x (Half[4]) -> y (Half[4])\n",
        encoding="utf-8",
    )
    assert run(str(path)).endswith(f"\nnext    halfwise audit '{path}'\n")


@pytest.mark.parametrize("text", ["", "GET / 200\n"])
def test_empty_and_foreign_logs_are_refused(tmp_path: Path, text: str, says: Says) -> None:
    path = tmp_path / "build.log"
    path.write_text(text, encoding="utf-8")
    for arguments in ((), ("--json",)):
        with says.raises(InputError):
            run(str(path), *arguments)


def test_where_the_version_is_not_stated_one_note_says_what_holds_from_11_on(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    line = "[W] - 4 weights are affected by this issue: Detected subnormal FP16 values.\n"
    path.write_text(line, encoding="utf-8")
    assert run(str(path)).count("build a typed ONNX model") == 1
    path.write_text("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec\n" + line, encoding="utf-8")
    assert "from 11 on" not in run(str(path))


def test_json() -> None:
    document = json.loads(run(str(LOGS / "weights_8.5_python.log"), "--json"))
    assert (document["schema"], document["trt_version"]) == ("halfwise.log/1", "8.5.3")
    assert [finding["rule"] for finding in document["findings"]] == ["HW701", "HW702", "HW703"]


def test_missing_log_and_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        run(str(tmp_path / "none.log"))
    with pytest.raises(InputError, match="there is no such file"):
        run(str(LOGS / "weights_8.5_python.log"), "--model", str(tmp_path / "none.onnx"))


def test_names_in_the_command_are_looked_up_in_the_model(tmp_path: Path) -> None:
    onnx.save(SHAPES["rms_norm_overflow"]().model, tmp_path / "m.onnx")
    names = [node.name for node in onnx.load(tmp_path / "m.onnx").graph.node]
    flags = f"--onnx=m.onnx --fp16 --precisionConstraints=obey --layerPrecisions={names[0]}:fp32,/nothere:fp32"
    (tmp_path / "build.log").write_text(f"&&&& RUNNING TensorRT.trtexec [TensorRT v101300] # trtexec {flags}\n")
    assert not halfwise.log(tmp_path / "build.log").findings
    found = halfwise.log(tmp_path / "build.log", tmp_path / "m.onnx").findings
    assert [(each.rule, each.numbers["names"]) for each in found] == [("HW601", ["/nothere"])]


def test_a_finding_names_its_flag_once(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    flags = "--onnx=m.onnx --fp16 --layerPrecisions=a:fp32"
    log.write_text(f"&&&& RUNNING TensorRT.trtexec [TensorRT v101300] # trtexec {flags}\n")
    told = run(str(log)).partition("HW604")[2].partition("->")[0]
    assert told.count("--precisionConstraints") == told.count("--layerPrecisions") == 1
