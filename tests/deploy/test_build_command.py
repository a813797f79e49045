"""The command in a log or a script: how it is read, and which of its precision flags do nothing."""

from __future__ import annotations

import pytest

from halfwise.core.targets import Target
from halfwise.deploy.build_command import command_of_log, commands_in, lint, wanted_layers

LAYERS = ["/norm/Pow", "/norm/Sqrt", "/head/MatMul"]
OBEY = "trtexec --onnx=m.onnx --fp16 --precisionConstraints=obey"


def found(text: str, target: str = "trt-10.0+weak") -> dict[str, list[str]]:
    span = Target.parse(target).span
    assert span is not None
    each = list(lint(command_of_log(text), LAYERS, span))
    return {finding.rule: list(finding.numbers.get("names", ())) for finding in each}


@pytest.mark.parametrize(
    ("flags", "target", "expected"),
    [
        ("--layerPrecisions=/norm/Pow:fp32", "trt-8.6", {}),
        ("--layerPrecisions=/norm/*:fp32", "trt-10.0+weak", {}),
        ("--layerPrecisions=/norm/*:fp32", "trt-8.6", {"HW602": ["/norm/*"]}),
        ("--layerPrecisions=*:fp32", "trt-8.6", {}),
        ("--layerPrecisions=/norm/pow:fp32,/norm/Sqrt:fp32", "trt-8.6", {"HW601": ["/norm/pow"]}),
        ("--layerPrecisions=norm*:fp32", "trt-10.0+weak", {"HW601": ["norm*"]}),
        ("--layerPrecisions='/norm/Pow':fp32", "trt-8.6", {}),
        ("--layerPrecisions=/norm/Pow:fp99", "trt-8.6", {"HW603": []}),
        ("--layerPrecisions=/norm/Pow:fp32 --layerPrecisions=/norm/Sqrt:fp32", "trt-10.0+weak", {"HW603": []}),
        ("--layerOutputTypes=/norm/Pow:fp32,/lost:fp32", "trt-8.6", {"HW601": ["/lost"]}),
        ("--bf16", "trt-8.6", {"HW603": []}),
    ],
)
def test_flags_that_do_nothing(flags: str, target: str, expected: dict[str, list[str]]) -> None:
    assert found(f"{OBEY} {flags}", target) == expected


def test_precisions_need_a_constraint() -> None:
    assert found("trtexec --onnx=m.onnx --fp16 --layerPrecisions=/norm/Pow:fp32") == {"HW604": []}


def test_flags_of_weak_typing_are_gone_in_11() -> None:
    assert set(found(OBEY, "trt-11.0")) == {"HW603"}


def test_the_nearest_name_is_told() -> None:
    span = Target.parse("trt-8.6").span
    assert span is not None
    (told,) = lint(command_of_log(f"{OBEY} --layerPrecisions=/norm/Pow_1:fp32"), LAYERS, span)
    assert told.numbers["nearest"] == ["/norm/Pow"]


def test_what_the_flags_ask_for() -> None:
    span = Target.parse("trt-10.0+weak").span
    assert span is not None
    asked = wanted_layers(command_of_log(f"{OBEY} --layerPrecisions=/norm/*:fp32,/head/MatMul:fp16"), LAYERS, span)
    assert asked == {"/norm/Pow": "fp32", "/norm/Sqrt": "fp32", "/head/MatMul": "fp16"}
    assert wanted_layers(command_of_log("trtexec --layerPrecisions=/norm/*:fp32"), LAYERS, span) == {}


def test_scripts_are_read() -> None:
    call = "/usr/bin/trtexec --onnx='my model.onnx' \\\n  --fp16 \\\n  --layerPrecisions=a:fp32\n"
    (command,) = commands_in(f"# trtexec --onnx=old.onnx\nset -e\n{call}")
    assert command.model == "my model.onnx"
    assert dict(command.options) == {"--onnx": "my model.onnx", "--fp16": None, "--layerPrecisions": "a:fp32"}
    assert commands_in("echo 'no build'") == ()
    (rtx,) = commands_in("set -e\ntensorrt_rtx --onnx=model.fp16.onnx --saveEngine=model.engine\n")
    assert rtx.model == "model.fp16.onnx"
    (windows,) = commands_in("trtexec.exe --onnx=C:\\m\\net.onnx ^\r\n --fp16\r\n")
    assert [flag for flag, _ in windows.options] == ["--onnx", "--fp16"]
