"""Targets: what the text means, what each runtime, version and GPU can do, and what is said when it is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.core.targets import DEFAULT_TARGET, RUNTIMES, Fit, Target, Typing, Version, VersionRange
from halfwise.core.targets.flags import TRTEXEC_FLAGS, flag_history
from halfwise.core.targets.gpus import KNOWN_GPUS, Gpu
from halfwise.core.targets.version import best_fit
from tests.support.messages import kinds
from tests.support.says import Says

WEAK, STRONG = Typing.WEAK, Typing.STRONG


@pytest.mark.parametrize(
    ("text", "typings", "profile"),
    [
        ("onnx", (STRONG,), "strict"),
        ("ort-cuda", (STRONG,), "ort-cuda"),
        ("rtx-1.7", (STRONG,), "tensorrt"),
        ("trt-8.6", (WEAK,), "tensorrt"),
        ("trt-8", (WEAK,), "tensorrt"),
        ("trt-9.1", (STRONG, WEAK), "tensorrt"),
        ("trt-10.0.1@t4", (STRONG, WEAK), "tensorrt"),
        ("trt-10", (STRONG, WEAK), "tensorrt"),
        ("trt-10.16.1", (STRONG, WEAK), "tensorrt"),
        ("trt-11.0", (STRONG,), "tensorrt"),
        ("trt-11.4@l4", (STRONG,), "tensorrt"),
    ],
)
def test_typing_and_profile_follow_from_runtime_and_version(text, typings, profile):
    target = Target.parse(text)
    assert (target.typings, target.typing, target.profile) == (typings, typings[0], profile)
    assert str(target) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("TRT-10.0.1@T4", "trt-10.0.1@t4"),
        ("trt-10.9+strong@l4", "trt-10.9@l4"),
        ("trt-10.9@l4+weak", "trt-10.9+weak@l4"),
        ("trt10.9", "trt-10.9"),
        ("trt-10.9@RTX 4090", "trt-10.9@rtx4090"),
        ("trt-10.9@nvidia-geforce-rtx-3080-ti", "trt-10.9@rtx3080ti"),
        ("trt-8.6+weak", "trt-8.6"),
    ],
)
def test_text_has_one_canonical_form(text, canonical):
    assert str(Target.parse(text)) == canonical


runtimes = st.one_of(
    st.sampled_from(["onnx", "ort-cuda", "trt-8.4", "trt-8.6.1", "trt-9.3", "trt-11"]),
    st.builds("trt-10.{}.{}".format, st.integers(0, 30), st.integers(0, 9)),
    st.builds("rtx-1.{}".format, st.integers(0, 9)),
)


@given(
    runtimes,
    st.sampled_from(["", "+weak", "+strong"]),
    st.sampled_from(["", "@sm_86", "@rtx3090", *("@" + n for n in KNOWN_GPUS)]),
)
def test_text_round_trips(head, typing, gpu):
    try:
        target = Target.parse(head + typing + gpu)
    except InputError as error:
        assert "typing" in str(error)
        return
    assert Target.parse(str(target)) == target


def test_default_target_is_neutral():
    assert Target.parse("onnx") == DEFAULT_TARGET
    assert DEFAULT_TARGET.supports(Format.BF16)
    assert not DEFAULT_TARGET.has_flag("--onnx")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("t4", (7, 5)), ("v100", (7, 0)), ("a100", (8, 0)), ("a30", (8, 0)), ("a10", (8, 6)), ("rtx30", (8, 6)),
        ("rtx3080ti", (8, 6)),
        ("l4", (8, 9)), ("RTX 4090", (8, 9)), ("l40s", (8, 9)), ("h100", (9, 0)), ("h200", (9, 0)),
        ("b200", (10, 0)), ("rtx5080", (12, 0)), ("orin", (8, 7)), ("jetson-xavier", (7, 2)), ("thor", (11, 0)),
        ("gtx1650", (7, 5)), ("sm_86", (8, 6)), ("sm120", (12, 0)),
    ],
)  # fmt: skip
def test_compute_capability(name, capability):
    assert Gpu.parse(name).capability == capability


@pytest.mark.parametrize(
    ("target", "supported"),
    [
        ("trt-10.0.1@t4", False),
        ("trt-8.6@a100", False),
        ("ort-cuda", False),
        ("rtx-1.7@sm_75", False),
        ("trt-10.0.1@l4", True),
        ("trt-9.1", True),
        ("rtx-1.7", True),
    ],
)
def test_bf16_needs_version_and_gpu(target, supported, says: Says):
    parsed = Target.parse(target)
    assert parsed.supports(Format.BF16) is supported
    assert (parsed.why_not(Format.BF16) is None) is supported
    if not supported:
        says(parsed.why_not(Format.BF16))
    assert parsed.supports(Format.FP16)
    assert parsed.supports(Format.FP32)


@pytest.mark.parametrize(
    ("target", "present", "absent"),
    [
        ("trt-8.4", "--fp16 --buildOnly --layerPrecisions --explicitBatch", "--skipInference --bf16 --stronglyTyped"),
        ("trt-8.6", "--skipInference --buildOnly --fp8", "--bf16 --stronglyTyped"),
        ("trt-8", "--buildOnly", "--skipInference"),
        ("trt-9.3", "--stronglyTyped --buildOnly --bf16", "--markDebug"),
        ("trt-10.0.1", "--stronglyTyped --layerPrecisions --markDebug", "--buildOnly --explicitBatch --int4"),
        ("trt-10", "--layerPrecisions --fp16", "--int4"),
        ("trt-10.16", "--fp16 --markUnfusedTensorsAsDebugTensors", ""),
        ("trt-11.4", "--noTF32 --stronglyTyped --skipInference", "--fp16 --bf16 --layerPrecisions"),
        ("rtx-1.7", "", "--fp16 --onnx"),
        ("onnx", "", "--onnx"),
    ],
)
def test_flags_by_version(target, present, absent):
    parsed = Target.parse(target)
    assert [flag for flag in present.split() if not parsed.has_flag(flag)] == []
    assert [flag for flag in absent.split() if parsed.has_flag(flag)] == []


def test_every_flag_has_a_range_that_is_not_empty():
    for flag, (first, last) in TRTEXEC_FLAGS.items():
        assert flag.startswith("--")
        VersionRange.parse(f">={first}" + (f" <={last}" if last else ""))


def test_flag_history_in_words(says: Says):
    says(flag_history("--fp16"))
    says(flag_history("--buildOnly"))
    says(flag_history("--noTF32"))
    says(flag_history("--noTF23"))


def test_within_asks_for_every_release_meant():
    assert Target.parse("trt-8").within("8.4", "8.6")
    assert not Target.parse("trt-10").within("10.0", "10.0")
    assert Target.parse("trt-11.9").within("9.1")
    assert not Target.parse("rtx-1.7").within("8.4")
    assert not Target.parse("onnx").within("8.4")


@pytest.mark.parametrize(
    "text",
    [
        "trtt-10",
        "tensorrt-10.3",
        "@t4",
        "",
        "trt",
        "rtx",
        "trt-7.2",
        "trt-8.7",
        "trt-9.0",
        "trt-12.1",
        "trt-8.x",
        "trt-11+weak",
        "trt-8.6+strong",
        "trt-9+mixed",
        "trt-10@t4@l4",
        "onnx-3",
        "trt-10@t44",
        "trt-10@rtx4091",
        "trt-10@sm_99",
    ],
)
def test_errors_are_one_line_and_say_what_is_known(text, says: Says):
    with pytest.raises(InputError) as caught:
        Target.parse(text)
    says(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "caution"),
    [
        ("rtx-1.7@h200", NoteKind.RTX_WITHOUT_GPU),
        ("rtx-1.7@t4", NoteKind.RTX_SM75),
        ("trt-9.1", NoteKind.IMPORTERS_RETYPE),
    ],
)
def test_cautions(text, caution):
    assert kinds(Target.parse(text).cautions) == [caution]


@pytest.mark.parametrize(
    "text", ["rtx-1.7@rtx4090", "rtx-1.7@rtx5090", "rtx-1.7", "trt-9.1+weak", "trt-10.0", "onnx@t4"]
)
def test_no_caution_where_nothing_is_odd(text):
    assert Target.parse(text).cautions == ()


@pytest.mark.parametrize(
    ("text", "version", "fit"),
    [
        ("10.0.0", "10.0.0", Fit.YES),
        ("10.0.0", "10.0.1", Fit.NO),
        ("10.0.0", "10.0", Fit.MAYBE),
        ("8.6", "8.6.1", Fit.YES),
        ("8.6", "8", Fit.MAYBE),
        ("<10.8", "10.7.9", Fit.YES),
        ("<10.8", "10.8.0", Fit.NO),
        ("<10.8", "10", Fit.MAYBE),
        ("<=10.16", "10.16.1", Fit.YES),
        (">10.0", "10.0.1", Fit.NO),
        (">10.0", "10.1", Fit.YES),
        (">=10.8", "11.4", Fit.YES),
        (">=8.4 <=10", "10.16.1", Fit.YES),
        (">=8.4 <=10", "11.0", Fit.NO),
        (">=10.13? <=10.16.1", "10.16.1", Fit.YES),
        (">=10.13? <=10.16.1", "10.14", Fit.MAYBE),
        (">=10.13? <=10.16.1", "10.12", Fit.NO),
        (">=10.13? <=10.16.1", "10.16.2", Fit.NO),
    ],
)
def test_version_ranges(text, version, fit):
    assert VersionRange.parse(text).fit(Version.parse(version).span) is fit


@pytest.mark.parametrize("text", ["", "ten", ">=10 <9", "10.0.0.0.0", ">=", "10,11", "~10"])
def test_bad_ranges_are_refused(text):
    with pytest.raises(ValueError):
        VersionRange.parse(text)


versions = st.lists(st.integers(0, 20), min_size=1, max_size=4).map(tuple).map(Version)


@given(versions, versions, versions)
def test_a_range_agrees_with_comparing_tuples(low, high, version):
    full = version.span.low
    text = f">={low} <={high}"
    if low.span.low > high.span.high:
        with pytest.raises(ValueError):
            VersionRange.parse(text)
        return
    exact = Version(full).span
    assert VersionRange.parse(text).fit(exact) is (Fit.YES if low.span.low <= full <= high.span.high else Fit.NO)


def test_best_of_several_alternatives():
    assert best_fit([Fit.NO, Fit.MAYBE]) is Fit.MAYBE
    assert best_fit([Fit.MAYBE, Fit.YES]) is Fit.YES
    assert best_fit([]) is Fit.NO


def test_runtime_names_are_the_names_in_targets():
    assert list(RUNTIMES) == ["onnx", "trt", "rtx", "ort-cuda"]
