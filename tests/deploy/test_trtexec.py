"""trtexec commands: what a version can be asked for, what it cannot say, and that it understands what was meant."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.deploy.trtexec import InputShape, LayerPrecision, Unexpressible, trtexec_command
from halfwise.deploy.trtexec_grammar import (
    IoFormat,
    output_types_of,
    parse_command,
    parse_layer_output_types,
    parse_layer_precisions,
    precision_of,
)
from tests.support.messages import kinds, only
from tests.support.says import Says
from tests.support.trtexec_cases import request


def test_weak_command_of_8_6_in_full():
    command = trtexec_command(
        request("trt-8.6@t4", "/ln/Pow", LayerPrecision("topk", outputs=("fp32", "int32")), tf32=False, engine="e.plan")
    )
    assert command.argv == (
        "trtexec",
        "--onnx=m.onnx",
        "--fp16",
        "--precisionConstraints=obey",
        "--layerPrecisions=/ln/Pow:fp32,topk:fp32",
        "--layerOutputTypes=/ln/Pow:fp32,topk:fp32+int32",
        "--noTF32",
        "--profilingVerbosity=detailed",
        "--exportLayerInfo=layers.json",
        "--saveEngine=e.plan",
        "--skipInference",
        "--verbose",
    )
    assert command.shell == shlex.join(command.argv)


def test_a_typed_model_needs_no_precision_options():
    common = ["--profilingVerbosity=detailed", "--exportLayerInfo=layers.json", "--saveEngine=model.engine"]
    first = ["trtexec", "--onnx=m.onnx"]
    ten = trtexec_command(request("trt-10.3"))
    eleven = trtexec_command(request("trt-11.4"))
    assert list(ten.argv) == [*first, "--stronglyTyped", *common, "--skipInference"]
    assert list(eleven.argv) == [*first, *common, "--skipInference"]


def test_weak_without_layers_asks_for_no_constraints():
    argv = trtexec_command(request("trt-10.3+weak")).argv
    assert "--fp16" in argv
    assert not [word for word in argv if word.startswith(("--precision", "--layer"))]


@pytest.mark.parametrize(
    ("target", "switch"),
    [
        ("trt-8.4", "--buildOnly"),
        ("trt-8", "--buildOnly"),
        ("trt-8.6", "--skipInference"),
        ("trt-9", "--skipInference"),
    ],
)
def test_build_without_running(target, switch):
    assert switch in trtexec_command(request(target)).argv


TARGETS = [
    "trt-8.4",
    "trt-8.5.3",
    "trt-8.6.1",
    "trt-8",
    "trt-9.1+weak",
    "trt-9+weak",
    "trt-10.0.1+weak",
    "trt-10.16+weak",
]
STRONG_TARGETS = ["trt-9.1", "trt-9", "trt-10.0.1", "trt-10.16.1", "trt-10", "trt-11.0", "trt-11.4@l4", "trt-11"]


@pytest.mark.parametrize("target", TARGETS + STRONG_TARGETS)
def test_every_option_exists_in_the_version(target):
    layers = ("a", "b") if target in TARGETS else ()
    parsed = Target.parse(target)
    io = (IoFormat("fp32", ("chw", "hwc8")),)
    wanted = request(
        target, *layers, inputs=io, outputs=io, tf32=False, shapes=(InputShape("x", (1, 3), (2, 3), (8, 3)),)
    )
    command = trtexec_command(wanted)
    options = parse_command(command.argv, parsed.span)
    assert options["--inputIOFormats"] == ("chw+hwc8" if target.startswith("trt-11") else "fp32:chw+hwc8")
    assert (options["--minShapes"], options["--optShapes"], options["--maxShapes"]) == ("x:1x3", "x:2x3", "x:8x3")
    assert "--noTF32" in options
    assert "--explicitBatch" not in options
    if target in STRONG_TARGETS:
        assert not {"--fp16", "--layerPrecisions", "--layerOutputTypes", "--precisionConstraints"} & set(options)
    else:
        assert options["--precisionConstraints"] == "obey"


# All of Unicode but the characters that trtexec cannot take in a name, and surrogates, which ONNX cannot.
names = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters=",'\0"), min_size=1, max_size=20
).filter(lambda name: name != "*")
awkward = st.sampled_from(
    [
        "a:b",
        "a b",
        "node [0]",
        '"q"',
        "$HOME",
        "`x`",
        "a\\b",
        "(Unnamed Layer* 12) [Shuffle]",
        "x*",
        "é",
        "line\nbreak",
        "-x",
        "::",
        "=",
        "a:fp16",
    ]
)
precisions = st.sampled_from([Format.FP32, Format.FP16])
outputs = st.lists(st.sampled_from(["fp32", "fp16", "int32"]), max_size=3).map(tuple)
layer_lists = st.lists(
    st.builds(LayerPrecision, names | awkward, precisions, outputs),
    min_size=1,
    max_size=8,
    unique_by=lambda one: one.name,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TARGETS), layer_lists)
def test_what_is_read_back_is_what_was_meant(target, layers):
    wanted = request(target, *layers, known_layers=frozenset(layer.name for layer in layers))
    command = trtexec_command(wanted)
    assert shlex.split(command.shell) == list(command.argv)
    span = Target.parse(target).span
    options = parse_command(command.argv, span)
    said = parse_layer_precisions(options["--layerPrecisions"], span)
    types = parse_layer_output_types(options["--layerOutputTypes"], span) if "--layerOutputTypes" in options else {}
    assert said == {layer.name: layer.precision.value for layer in layers}
    assert types == {layer.name: layer.outputs for layer in layers if layer.outputs}
    for layer in layers:
        assert precision_of(layer.name, said, span) == layer.precision.value
        if layer.outputs:
            assert output_types_of(layer.name, types, len(layer.outputs), span) == layer.outputs


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TARGETS), st.text(st.characters(blacklist_categories=["Cs"]), max_size=12))
def test_any_name_is_said_exactly_or_refused(target, name):
    wanted = request(target, name, known_layers=frozenset([name]))
    try:
        command = trtexec_command(wanted)
    except Unexpressible:
        assert name in ("", "*") or set(name) & set(",'\0")
        return
    span = Target.parse(target).span
    assert parse_layer_precisions(parse_command(command.argv, span)["--layerPrecisions"], span) == {name: "fp32"}


def test_a_shell_hands_over_the_words_unchanged():
    layers = ["a b", "it is $HOME", "`x`", "(Unnamed Layer* 12) [Shuffle]", "line\nbreak", '"q"', "a\\b", "!x"]
    command = trtexec_command(request("trt-10.3+weak", *layers, known_layers=frozenset(layers)))
    assert command.shell.startswith("trtexec ")
    listed = subprocess.run(
        ["sh", "-c", "printf '%s\\0'" + command.shell.removeprefix("trtexec")], capture_output=True, check=True
    )
    assert tuple(listed.stdout.decode().split("\0")[:-1]) == command.argv[1:]


@pytest.mark.parametrize(
    ("target", "layer"),
    [
        ("trt-10.3+weak", "a,b"),
        ("trt-9.1+weak", "a,b"),
        ("trt-8.6", "a,b"),
        ("trt-8.4", "a,b"),
        ("trt-8.4", "it's"),
        ("trt-8.4", "*"),
        ("trt-8.4", ""),
        ("trt-10.3+weak", "a\0b"),
        pytest.param("trt-10.3+weak", "x" * 140_000, id="long"),
        ("trt-10.3+weak", LayerPrecision("a", outputs=("half",))),
        ("trt-10.3+weak@t4", LayerPrecision("a", Format.BF16)),
        ("trt-8.6", LayerPrecision("a", Format.BF16)),
        ("trt-9.3+weak", LayerPrecision("a", Format.BF16)),
        ("trt-10.3", "a"),
        ("trt-11.4", "a"),
        ("rtx-1.7", "a"),
    ],
)
def test_what_a_version_cannot_express_is_said_with_the_way_out(target, layer, says: Says):
    with pytest.raises(Unexpressible) as caught:
        trtexec_command(request(target, layer))
    says(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_the_network_does_not_have_is_refused(says: Says):
    with pytest.raises(Unexpressible) as caught:
        trtexec_command(request("trt-10.3+weak", "gone", known_layers=frozenset(["here"])))
    says(caught.value)


def test_two_precisions_for_one_layer_are_refused_and_repeats_are_not(says: Says):
    with pytest.raises(InputError) as caught:
        trtexec_command(request("trt-8.6", "a", LayerPrecision("a", Format.FP16)))
    says(caught.value)
    assert "--layerPrecisions=a:fp32" in trtexec_command(request("trt-8.6", "a", "a")).argv


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_only_tensorrt_has_a_command(target, says: Says):
    with pytest.raises(InputError) as caught:
        trtexec_command(request(target))
    says(caught.value)


@pytest.mark.parametrize(
    ("target", "io"),
    [
        ("trt-10.3", IoFormat("fp16", ("nchw",))),
        ("trt-10.3", IoFormat("fp16", ())),
        ("trt-10.3", IoFormat(None)),
        ("trt-8.6", IoFormat("bf16")),
        ("trt-8.6", IoFormat("int64")),
    ],
)
def test_io_formats_are_checked(target, io, says: Says):
    with pytest.raises(InputError) as caught:
        trtexec_command(request(target, inputs=(io,)))
    says(caught.value)


def test_shape_names_that_cannot_be_written_are_refused(says: Says):
    with pytest.raises(Unexpressible) as caught:
        trtexec_command(request("trt-11.4", shapes=(InputShape("a,b", (1,), (1,), (1,)),)))
    says(caught.value)


def notes(target: str, *layers: str | LayerPrecision, **options: object) -> tuple[Note, ...]:
    return trtexec_command(request(target, *layers, **options)).notes


def test_predicted_names_are_called_predicted():
    ten = notes("trt-10.3+weak", "node_linear", "node_linear_1")
    assert "Python build script" in only(ten, NoteKind.NAMES_PREDICTED).values["check"]
    assert only(ten, NoteKind.NAME_SHADOWED) == Note.of(NoteKind.NAME_SHADOWED, "node_linear_1", other="node_linear")
    assert "Registering layer" in only(notes("trt-8.4", "a"), NoteKind.NAMES_PREDICTED).values["check"]
    assert NoteKind.NAMES_PREDICTED not in kinds(notes("trt-10.3+weak", "a", known_layers=frozenset("a")))


def test_a_name_that_is_also_a_pattern_says_what_else_it_reaches():
    name = "(Unnamed Layer* 2) [Shuffle]"
    also = "(Unnamed Layer* 1) [X] 2) [Shuffle]"
    layers = frozenset([name, also, "other"])
    told = only(notes("trt-10.3+weak", name, known_layers=layers), NoteKind.NAME_IS_PATTERN)
    assert (told.subject, told.values) == (name, {"layers": [also]})
    assert NoteKind.NAME_IS_PATTERN not in kinds(notes("trt-8.6", name, known_layers=layers))


@pytest.mark.parametrize(
    ("target", "layers", "kind"),
    [
        ("trt-8.5", ["a"], NoteKind.NO_LAYER_METADATA),
        ("trt-10.3+weak", ["a"], NoteKind.STRONG_TYPING_HELPS),
        ("trt-8.6", ["a"], NoteKind.WEAK_TYPING_LIMITS),
        ("trt-10.3@l4", [], NoteKind.TF32),
        ("rtx-1.7", [], NoteKind.TOOL_UNVERIFIED),
        ("rtx-1.7@h100", [], NoteKind.RTX_WITHOUT_GPU),
    ],
)
def test_notes(target, layers, kind):
    assert kind in kinds(notes(target, *layers))


def test_notes_that_do_not_apply_are_not_given():
    assert NoteKind.TF32 not in kinds(notes("trt-10.3@t4"))
    assert NoteKind.TF32 not in kinds(notes("trt-10.3", tf32=False))
    assert NoteKind.STRONG_TYPING_HELPS not in kinds(notes("trt-8.6", "a"))
    io = (IoFormat("fp32"),)
    assert NoteKind.IO_TYPES_FIXED in kinds(notes("trt-10.3", inputs=io))
    assert NoteKind.IO_TYPES_FIXED not in kinds(notes("trt-10.3+weak", "a", inputs=io))


def test_rtx_command():
    assert trtexec_command(request("rtx-1.7")).argv == (
        "tensorrt_rtx", "--onnx=m.onnx", "--saveEngine=model.engine"
    )  # fmt: skip
