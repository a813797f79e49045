"""trtexec commands: what each version takes, what it cannot say, and that it understands what was meant."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfwise.emit.layer_names import LayerMap, nodes_in_metadata, read_registrations, shadowed_names
from halfwise.emit.trtexec import InputShape, LayerPrecision, TrtexecRequest, Unexpressible, trtexec_command
from halfwise.emit.trtexec_grammar import (
    GrammarError,
    IoFormat,
    output_types_of,
    parse_command,
    parse_io_formats,
    parse_layer_output_types,
    parse_layer_precisions,
    parse_shapes,
    precision_of,
)
from halfwise.engine.layers_fields import nodes_of_metadata
from halfwise.errors import InputError
from halfwise.formats import Format
from halfwise.target import Target, Version

V8_6, V9_1, V10_3, V11 = (Version.parse(text).span for text in ("8.6", "9.1", "10.3", "11.1"))


def request(target: str, *layers: str | LayerPrecision, **options: object) -> TrtexecRequest:
    wanted = tuple(LayerPrecision(layer) if isinstance(layer, str) else layer for layer in layers)
    return TrtexecRequest(Target.parse(target), "m.onnx", layers=wanted, **options)  # type: ignore[arg-type]


# The grammar on its own


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("a:fp32", {"a": "fp32"}),
        ("/layer/LN:fp32,b:fp16", {"/layer/LN": "fp32", "b": "fp16"}),
        ("onnx::Mul_209:fp32", {"onnx::Mul_209": "fp32"}),
        ("'a:b':fp32", {"a:b": "fp32"}),
        ("pre'fix':fp32", {"prefix": "fp32"}),
        ("(Unnamed Layer* 12) [Shuffle]:fp32", {"(Unnamed Layer* 12) [Shuffle]": "fp32"}),
    ],
)
def test_layer_precisions_are_read_as_trtexec_reads_them(value, meaning):
    assert parse_layer_precisions(value, V10_3) == meaning


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'a,b':fp32", "Found invalid number of 's when parsing 'a"),
        ("it's:fp32", "Found invalid number of 's"),
        ("a,b:fp32", "no ':' in 'a'"),
        ("a:fp33", "'fp33' is not a layer precision of this version"),
        (":fp32", "an empty name"),
        ("a:fp32,a:fp16", "'a' is given twice"),
        ("", "no ':' in ''"),
    ],
)
def test_what_the_grammar_refuses(value, message):
    with pytest.raises(GrammarError) as caught:
        parse_layer_precisions(value, V10_3)
    assert message in str(caught.value)


def test_bf16_came_with_9_1():
    assert parse_layer_precisions("a:bf16", V9_1) == {"a": "bf16"}
    with pytest.raises(GrammarError):
        parse_layer_precisions("a:bf16", V8_6)


def test_output_types_one_or_one_each():
    types = parse_layer_output_types("topk:fp32+int32,ln:fp32", V10_3)
    assert types == {"topk": ("fp32", "int32"), "ln": ("fp32",)}
    assert output_types_of("topk", types, 2, V10_3) == ("fp32", "int32")
    assert output_types_of("ln", types, 3, V10_3) == ("fp32",) * 3
    with pytest.raises(GrammarError) as caught:
        output_types_of("topk", types, 3, V10_3)
    assert str(caught.value) == ("Layer topk has 3 outputs but 2 output types are given in --layerOutputTypes flag.")
    with pytest.raises(GrammarError) as caught:
        parse_layer_output_types("a:fp32+half", V10_3)
    assert str(caught.value) == "'half' is not an output type of this version"


@pytest.mark.parametrize(
    ("span", "specs", "layer", "precision"),
    [
        (V8_6, {"LN_*": "fp32"}, "LN_1", None),
        (V8_6, {"LN_*": "fp32"}, "LN_*", "fp32"),
        (V8_6, {"*": "fp16", "LN_1": "fp32"}, "LN_1", "fp32"),
        (V8_6, {"*": "fp16", "LN_1": "fp32"}, "LN_2", "fp16"),
        (V9_1, {"LN_*": "fp32"}, "LN_1", "fp32"),
        (V10_3, {"*norm": "fp32"}, "a/norm", "fp32"),
        (V10_3, {"a*b": "fp32"}, "ab", "fp32"),
        (V10_3, {"a*a": "fp32"}, "a", None),
        (V10_3, {"a*b*c": "fp32"}, "axb*c", "fp32"),
        (V10_3, {"a*b*c": "fp32"}, "axbyc", None),
        (V10_3, {"ln_*": "fp32"}, "LN_1", None),
        (V10_3, {"LN_*": "fp16", "LN_1": "fp32"}, "LN_1", "fp32"),
        (V10_3, {}, "LN_1", None),
    ],
)
def test_wildcards_by_version(span, specs, layer, precision):
    assert precision_of(layer, specs, span) == precision


def test_overlapping_patterns_have_no_defined_winner():
    with pytest.raises(GrammarError) as caught:
        precision_of("foo1", {"foo*": "fp32", "*": "fp16"}, V10_3)
    assert str(caught.value) == "the patterns *, foo* all match layer foo1: the winner is undefined"


def test_the_output_type_of_a_pattern_is_not_the_one_set():
    assert output_types_of("foo1", {"foo*": ("fp16",)}, 2, V10_3) == ("fp32", "fp32")
    assert output_types_of("foo1", {"*": ("fp16", "int32")}, 2, V10_3) == ("fp16", "fp16")
    assert output_types_of("foo1", {"foo1": ("fp16",)}, 1, V10_3) == ("fp16",)
    assert output_types_of("foo1", {"*": ("fp16", "int32")}, 2, V8_6) == ("fp16", "int32")
    assert output_types_of("bar", {"foo*": ("fp16",)}, 1, V10_3) is None


def test_io_formats_lost_their_type_with_11():
    assert parse_io_formats("fp16:chw,fp32:hwc8+chw", V10_3) == (
        IoFormat("fp16", ("chw",)),
        IoFormat("fp32", ("hwc8", "chw")),
    )
    assert parse_io_formats("chw+hwc8", V11) == (IoFormat(None, ("chw", "hwc8")),)
    with pytest.raises(GrammarError) as caught:
        parse_io_formats("fp16:chw", V11)
    assert str(caught.value) == "Invalid TensorFormat fp16:chw"
    with pytest.raises(GrammarError) as caught:
        parse_io_formats("chw", V10_3)
    assert str(caught.value) == "'chw' is not type:format of this version"


def test_shapes():
    assert parse_shapes("x:1x3x224x224,a:b:2") == {"x": (1, 3, 224, 224), "a:b": (2,)}
    with pytest.raises(GrammarError) as caught:
        parse_shapes("x:1x-1")
    assert str(caught.value) == "'1x-1' is not a shape such as 1x3x224x224"


@pytest.mark.parametrize(
    ("word", "span", "message"),
    [
        ("--fp16", V11, "Unknown option: --fp16 (--fp16 exists from TensorRT 8.4 to 10.x)"),
        ("--explicitBatch", V10_3, "Unknown option: --explicitBatch (--explicitBatch exists from TensorRT 8.4 to 9.3)"),
        ("--stronglyTyped", V8_6, "(--stronglyTyped exists from TensorRT 9.1 on)"),
        ("--exportLayerinfo=x", V10_3, "did you mean --exportLayerInfo?"),
        ("--onnx=again", V10_3, "Unknown option: --onnx (given twice)"),
    ],
)
def test_options_by_version(word, span, message):
    with pytest.raises(GrammarError) as caught:
        parse_command(["trtexec", "--onnx=m", word], span)
    assert message in str(caught.value)


# The commands


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
    ("target", "layer", "message"),
    [
        ("trt-10.3+weak", "a,b", "layer 'a,b': trtexec splits its layer lists at every comma, quoted or not, so this"),
        (
            "trt-10.3+weak",
            "a,b",
            "; use the Python build script, which finds layers by their metadata, or build the typed",
        ),
        ("trt-9.1+weak", "a,b", "or build the typed ONNX model with strong typing"),
        ("trt-8.6", "a,b", "; use the Python build script, which finds layers by their metadata, or rename the node"),
        (
            "trt-8.4",
            "a,b",
            "; rename the node in the ONNX model, or build the typed ONNX model with TensorRT 9.1 or later",
        ),
        ("trt-8.4", "it's", 'layer "it\'s": trtexec drops single quotes from names, so this name cannot be written'),
        ("trt-8.4", "*", "layer '*': trtexec reads this name as the default for all layers"),
        ("trt-8.4", "", "layer '': a layer without a name cannot be told to trtexec"),
        ("trt-10.3+weak", "a\0b", "--layerPrecisions holds a zero byte, which no command line can carry"),
        ("trt-10.3+weak", "x" * 140_000, "--layerPrecisions would be 140023 bytes long, and Linux takes 131071 in one"),
        (
            "trt-10.3+weak",
            LayerPrecision("a", outputs=("half",)),
            "10.3 takes no output type 'half' in --layerOutputTypes",
        ),
        ("trt-10.3+weak@t4", LayerPrecision("a", Format.BF16), "BF16 is not there: t4 (compute capability 7.5) has no"),
        ("trt-8.6", LayerPrecision("a", Format.BF16), "BF16 is not there: TensorRT 8.6 has no BF16; it came with 9.1"),
        ("trt-9.3+weak", LayerPrecision("a", Format.BF16), "only with the preview feature fasterDynamicShapes0805"),
        ("trt-10.3", "a", "TensorRT 10.3 with strong typing takes no layer precisions: give it the typed ONNX model"),
        ("trt-10.3", "a", "or name a weakly typed target (+weak)"),
        ("trt-11.4", "a", "TensorRT 11.4 with strong typing takes no layer precisions: give it the typed ONNX model"),
        (
            "rtx-1.7",
            "a",
            "TensorRT-RTX 1.7 is strongly typed and takes no layer precisions: give it the typed ONNX model",
        ),
    ],
)
def test_what_a_version_cannot_express_is_said_with_the_way_out(target, layer, message):
    with pytest.raises(Unexpressible) as caught:
        trtexec_command(request(target, layer))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_the_network_does_not_have_is_refused():
    with pytest.raises(Unexpressible) as caught:
        trtexec_command(request("trt-10.3+weak", "gone", known_layers=frozenset(["here"])))
    assert "the parsed network has no such layer, and trtexec ignores unknown names without a word" in str(caught.value)


def test_two_precisions_for_one_layer_are_refused_and_repeats_are_not():
    with pytest.raises(InputError) as caught:
        trtexec_command(request("trt-8.6", "a", LayerPrecision("a", Format.FP16)))
    assert str(caught.value) == "layer 'a' is given two precisions; a layer has one"
    assert "--layerPrecisions=a:fp32" in trtexec_command(request("trt-8.6", "a", "a")).argv


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_only_tensorrt_has_a_command(target):
    with pytest.raises(InputError) as caught:
        trtexec_command(request(target))
    assert str(caught.value) == f"target {target}: trtexec is for TensorRT; name a version, e.g. --target trt-10.9"


@pytest.mark.parametrize(
    ("target", "io", "message"),
    [
        ("trt-10.3", IoFormat("fp16", ("nchw",)), "--inputIOFormats: 'nchw' is no memory layout (known: cdhw32 chw"),
        ("trt-10.3", IoFormat("fp16", ()), "--inputIOFormats: '' is no memory layout"),
        ("trt-10.3", IoFormat(None), "TensorRT 10.3 wants a type with each format, not 'None' (known: bf16 bool fp16"),
        ("trt-8.6", IoFormat("bf16"), "TensorRT 8.6 wants a type with each format, not 'bf16'"),
        ("trt-8.6", IoFormat("int64"), "not 'int64' (known: bool fp16 fp32 int32 int8 uint8)"),
    ],
)
def test_io_formats_are_checked(target, io, message):
    with pytest.raises(InputError) as caught:
        trtexec_command(request(target, inputs=(io,)))
    assert message in str(caught.value)


def test_shape_names_that_cannot_be_written_are_refused():
    with pytest.raises(Unexpressible) as caught:
        trtexec_command(request("trt-11.4", shapes=(InputShape("a,b", (1,), (1,), (1,)),)))
    assert "input 'a,b': trtexec takes no name with a comma or a single quote in its shape options" in str(caught.value)


def notes(target: str, *layers: str | LayerPrecision, **options: object) -> str:
    return "\n".join(trtexec_command(request(target, *layers, **options)).notes)


def test_predicted_names_are_called_predicted():
    ten = notes("trt-10.3+weak", "node_linear", "node_linear_1")
    assert "These layer names are predicted from the ONNX nodes, and trtexec ignores a name that no layer has" in ten
    assert "'Set layer ... to precision' lines" in ten
    assert "The layer named 'node_linear_1' may be a second layer of node 'node_linear'" in ten
    assert "the Registering layer lines of the verbose log hold the real ones" in notes("trt-8.4", "a")
    assert "predicted" not in notes("trt-10.3+weak", "a", known_layers=frozenset("a"))


def test_a_name_that_is_also_a_pattern_says_what_else_it_reaches():
    name = "(Unnamed Layer* 2) [Shuffle]"
    layers = frozenset([name, "(Unnamed Layer* 1) [X] 2) [Shuffle]", "other"])
    text = notes("trt-10.3+weak", name, known_layers=layers)
    assert f"also reads the name '{name}' as a pattern; it reaches (Unnamed Layer* 1) [X] 2) [Shuffle] too." in text
    assert "pattern" not in notes("trt-8.6", name, known_layers=layers)


@pytest.mark.parametrize(
    ("target", "layers", "text"),
    [
        ("trt-8.5", ["a"], "Before TensorRT 8.6 layers carry no metadata"),
        ("trt-10.3+weak", ["a"], "use the typed ONNX model with --stronglyTyped; mark the tensors around it"),
        ("trt-8.6", ["a"], "export norms as LayerNormalization (opset 17)"),
        ("trt-10.3@l4", [], "may use TF32 (10 bits of mantissa)"),
        ("rtx-1.7", [], "The options of the tensorrt_rtx executable are not verified here"),
        ("rtx-1.7@h100", [], "TensorRT-RTX does not run on h100"),
    ],
)
def test_notes(target, layers, text):
    assert text in notes(target, *layers)


def test_notes_that_do_not_apply_are_not_given():
    assert "TF32" not in notes("trt-10.3@t4")
    assert "TF32" not in notes("trt-10.3", tf32=False)
    assert "--stronglyTyped" not in notes("trt-8.6", "a")
    io = (IoFormat("fp32"),)
    assert "from 10.15 on trtexec stops" in notes("trt-10.3", inputs=io)
    assert "10.15" not in notes("trt-10.3+weak", "a", inputs=io)


def test_rtx_command():
    assert trtexec_command(request("rtx-1.7")).argv == (
        "tensorrt_rtx", "--onnx=m.onnx", "--saveEngine=model.engine"
    )  # fmt: skip


# Layer names

COLLISION = """\
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear for ONNX node: node_linear
[07/07/2026-02:10:59] [V] [TRT] Registering layer: gemm1.bias required by ONNX-TRT
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear_1 for ONNX node: node_linear
[07/07/2026-02:10:59] [V] [TRT] node_linear_1 [Gemm] inputs: [relu -> (-1, 1024)[FLOAT]],
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear_1_2 for ONNX node: node_linear_1
[07/07/2026-02:10:59] [V] [TRT] Registering layer: ONNXTRT_Broadcast_4 required by ONNX-TRT
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear_1_5 for ONNX node: node_linear_1
"""


def test_a_helper_layer_may_take_another_nodes_name():
    layers = LayerMap.from_log(COLLISION.splitlines())
    assert layers.layers_of("node_linear") == ("node_linear", "node_linear_1")
    assert layers.layers_of("node_linear_1") == ("node_linear_1_2", "node_linear_1_5")
    assert layers.node_of("node_linear_1") == "node_linear"
    assert layers.node_of("ONNXTRT_Broadcast_4") is None
    assert layers.layers_of("absent") == ()
    assert "gemm1.bias" in layers.all_layers


def test_the_command_for_the_second_linear_names_its_own_layers():
    layers = LayerMap.from_log(COLLISION.splitlines())
    wanted = layers.layers_of("node_linear_1")
    command = trtexec_command(request("trt-10.16.1+weak", *wanted, known_layers=layers.all_layers))
    assert "--layerPrecisions=node_linear_1_2:fp32,node_linear_1_5:fp32" in command.argv


def test_registrations_and_metadata_agree():
    registered = LayerMap.from_log(COLLISION.splitlines())
    pairs = [(layer, f"[ONNX Layer: {node}]" if node else "") for layer, node in registered.nodes.items()]
    assert LayerMap.from_metadata(pairs) == registered


def test_a_model_parsed_twice_is_one_map_and_two_models_are_refused():
    once = list(read_registrations(COLLISION.splitlines()))
    assert LayerMap.from_registrations(once + once) == LayerMap.from_registrations(once)
    with pytest.raises(InputError) as caught:
        LayerMap.from_registrations([*once, ("node_linear_1", "other")])
    assert str(caught.value) == (
        "layer 'node_linear_1' is registered for node 'node_linear' and for node 'other': "
        "the log holds the parses of two models, use the log of one build"
    )


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("[ONNX Layer: a]", ("a",)),
        ("[ONNX Layer: a]\x1e[ONNX Layer: b]\x1f[ONNX Layer: a]", ("a", "b")),
        ("[ONNX Layer: b | Local Function: Block_1]", ("b",)),
        ("[ONNX Layer: b | then (If_3) | f(x)]", ("b",)),
        ("[ONNX Layer: a | b]", ("a | b",)),
        ("[ONNX Layer: a][ONNX Layer: b]", ("a", "b")),
        ("[ONNX Layer: x[0]]\x1f[ONNX Layer: y]z]", ("x[0]", "y]z")),
        ("[ONNX Layer: a]\x1f[ONNX Layer: cut o", ("a",)),
        ("", ()),
    ],
)
def test_metadata(text, nodes):
    assert nodes_in_metadata(text) == nodes


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x1e\x1f|"), min_size=1), unique=True
    )
)
def test_any_names_in_metadata_are_found_and_the_audit_finds_the_same(nodes):
    metadata = "\x1f".join(f"[ONNX Layer: {node}]" for node in nodes)
    assert nodes_in_metadata(metadata) == tuple(nodes) == nodes_of_metadata(metadata)


def test_shadowed_names():
    assert shadowed_names(["X", "X_1", "Y_2", "X_1_5", "X_a"]) == (("X_1", "X"), ("X_1_5", "X_1"))
    assert shadowed_names(["X_1", "Y_2"], ["X", "Z"]) == (("X_1", "X"),)


def test_a_name_that_may_be_another_nodes_second_layer_is_told_even_where_the_plan_has_but_one_of_them():
    """The collision of node_linear and node_linear_1, seen in 10.16: the second name is the first one's bias."""
    layers = (LayerPrecision("node_linear_1"),)
    nodes = ("node_linear", "node_linear_1", "node_softmax")
    said = "The layer named 'node_linear_1' may be a second layer of node 'node_linear'"
    told = trtexec_command(TrtexecRequest(Target.parse("trt-8.6"), "m.onnx", layers=layers, nodes=nodes)).notes
    assert any(note.startswith(said) for note in told)
    alone = trtexec_command(TrtexecRequest(Target.parse("trt-8.6"), "m.onnx", layers=layers)).notes
    assert not any(note.startswith(said) for note in alone)


@pytest.mark.parametrize("target", ["trt-8.6", "trt-10.9", "trt-11.4", "rtx-1.7"])
def test_the_limits_of_open_shapes_are_told(target):
    shapes = (InputShape("x", (1, 8), (4, 8), (9, 8)), InputShape("y", (2, 2), (2, 2), (2, 2)))
    notes = trtexec_command(TrtexecRequest(Target.parse(target), "m.onnx", shapes=shapes)).notes
    (note,) = [note for note in notes if "inputs of open shape" in note]
    assert "only as the samples have them: x goes from 1x8 to 9x8, tuned for 4x8; y is pinned to 2x2" in note
