"""What each version of trtexec reads out of a command, and what it refuses."""

from __future__ import annotations

import pytest

from halfwise.core.targets import Version
from halfwise.deploy.trtexec_grammar import (
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
from tests.support.says import Says

V8_6, V9_1, V10_3, V11 = (Version.parse(text).span for text in ("8.6", "9.1", "10.3", "11.1"))


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


@pytest.mark.parametrize("value", ["'a,b':fp32", "it's:fp32", "a,b:fp32", "a:fp33", ":fp32", "a:fp32,a:fp16", ""])
def test_what_the_grammar_refuses(value, says: Says):
    with pytest.raises(GrammarError) as caught:
        parse_layer_precisions(value, V10_3)
    says(caught.value)


def test_bf16_came_with_9_1():
    assert parse_layer_precisions("a:bf16", V9_1) == {"a": "bf16"}
    with pytest.raises(GrammarError):
        parse_layer_precisions("a:bf16", V8_6)


def test_output_types_one_or_one_each(says: Says):
    types = parse_layer_output_types("topk:fp32+int32,ln:fp32", V10_3)
    assert types == {"topk": ("fp32", "int32"), "ln": ("fp32",)}
    assert output_types_of("topk", types, 2, V10_3) == ("fp32", "int32")
    assert output_types_of("ln", types, 3, V10_3) == ("fp32",) * 3
    with pytest.raises(GrammarError) as caught:
        output_types_of("topk", types, 3, V10_3)
    says(caught.value)
    with pytest.raises(GrammarError) as caught:
        parse_layer_output_types("a:fp32+half", V10_3)
    says(caught.value)


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


def test_overlapping_patterns_have_no_defined_winner(says: Says):
    with pytest.raises(GrammarError) as caught:
        precision_of("foo1", {"foo*": "fp32", "*": "fp16"}, V10_3)
    says(caught.value)


def test_the_output_type_of_a_pattern_is_not_the_one_set():
    assert output_types_of("foo1", {"foo*": ("fp16",)}, 2, V10_3) == ("fp32", "fp32")
    assert output_types_of("foo1", {"*": ("fp16", "int32")}, 2, V10_3) == ("fp16", "fp16")
    assert output_types_of("foo1", {"foo1": ("fp16",)}, 1, V10_3) == ("fp16",)
    assert output_types_of("foo1", {"*": ("fp16", "int32")}, 2, V8_6) == ("fp16", "int32")
    assert output_types_of("bar", {"foo*": ("fp16",)}, 1, V10_3) is None


def test_io_formats_lost_their_type_with_11(says: Says):
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
    says(caught.value)


def test_shapes(says: Says):
    assert parse_shapes("x:1x3x224x224,a:b:2") == {"x": (1, 3, 224, 224), "a:b": (2,)}
    with pytest.raises(GrammarError) as caught:
        parse_shapes("x:1x-1")
    says(caught.value)


@pytest.mark.parametrize(
    ("word", "span"),
    [
        ("--fp16", V11),
        ("--explicitBatch", V10_3),
        ("--stronglyTyped", V8_6),
        ("--exportLayerinfo=x", V10_3),
        ("--onnx=again", V10_3),
    ],
)
def test_options_by_version(word, span, says: Says):
    with pytest.raises(GrammarError) as caught:
        parse_command(["trtexec", "--onnx=m", word], span)
    says(caught.value)
