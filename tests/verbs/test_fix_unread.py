"""Operators of ONNX that a target does not read: written as products, searched and planned so, and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.model.model import load
from halfwise.verbs.fix.own_operators import read_by
from halfwise.verbs.gate import gate
from tests.models.build import graph, model, node, value, weight
from tests.support.deployed import needs_rtx
from tests.support.messages import only

LENGTH = 64


def mixed(length: int | str = LENGTH, gain: float = 1.0) -> onnx.ModelProto:
    """Features of a spectrum that is smoothed and brought back."""
    rng = np.random.default_rng(2)
    return model(
        [
            node("DFT", "x - axis", "spectrum", onesided=1),
            node("Mul", "spectrum gains", "smooth"),
            node("DFT", "smooth length axis", "back", onesided=1, inverse=1),
            node("Squeeze", "back last", "rows"),
            node("MatMul", "rows mix", "z"),
            node("Tanh", "z", "y"),
        ],
        [value("x", shape=(2, 8, length, 1))],
        [value("y", shape=None)],
        [
            *(weight("axis", np.array(-2)), weight("length", np.array(LENGTH)), weight("last", np.array([-1]))),
            weight("gains", (gain * rng.uniform(0.5, 1, (LENGTH // 2 + 1, 1))).astype(np.float32)),
            weight("mix", (rng.normal(size=(LENGTH, 16)) / gain / 8).astype(np.float32)),
        ],
        opset=20,
    )


def feeds(*shape: int) -> list[dict[str, Any]]:
    drawn = (np.random.default_rng(seed).normal(size=shape or (2, 8, LENGTH, 1)) for seed in range(4))
    return [{"x": each.astype(np.float32)} for each in drawn]


def ops(given: onnx.ModelProto, target: str) -> list[str]:
    return [each.op_type for each in read_by(Target.parse(target), load(given))[0].nodes]


def test_a_target_that_does_not_read_it_gets_products(tmp_path: Path) -> None:
    result = fix(mixed(), feeds(), target="trt-10.9", out=tmp_path)
    assert result.met and result.typed is not None
    (note,) = (each for each in result.notes if each.kind is NoteKind.STANDARD_NOT_READ)
    assert list(note.values["ops"]) == ["DFT"]
    typed = onnx.load(result.typed.path)
    assert [each.op_type for each in typed.graph.node].count("MatMul") == 3
    for given in feeds():
        (expected,) = ort.InferenceSession(mixed().SerializeToString()).run(None, given)
        (found,) = ort.InferenceSession(str(result.typed.path)).run(None, given)
        assert np.linalg.norm(found - expected) <= 0.01 * np.linalg.norm(expected)
    again = fix(mixed(), feeds(), plan=result.plan)
    assert again.met and again.fp32_nodes == result.fp32_nodes


@pytest.mark.parametrize(
    ("target", "left"), [("onnx", 2), ("ort-cuda", 2), ("trt-11.2", 2), ("trt-11.1", 0), ("trt-8.6", 0), ("rtx-1.7", 0)]
)
def test_the_releases_that_read_a_transform(target: str, left: int) -> None:
    assert ops(mixed(), target).count("DFT") == left


def framed(parts: int = 1) -> onnx.ModelProto:
    """Under a window that is computed, as exporters leave it."""
    return model(
        [
            node("HannWindow", "size", "hann"),
            node("Mul", "hann half", "window"),
            node("STFT", "x step window", "frames", onesided=0),
            node("Tanh", "frames", "y"),
        ],
        [value("x", shape=(1, "length", parts))],
        [value("y", shape=None)],
        [weight("size", np.array(16)), weight("half", np.float32(0.5)), weight("step", np.array(4))],
        opset=17,
    )


@pytest.mark.parametrize(
    ("target", "parts", "expected"),
    [
        ("onnx", 1, "HannWindow Mul STFT Tanh"),
        ("trt-10.5", 1, "STFT Tanh"),
        ("rtx-1.7", 1, "STFT Tanh"),
        ("trt-10.4", 1, "Transpose Conv Transpose Reshape Tanh"),
        ("trt-10.9", 2, "Transpose Conv Transpose Reshape Tanh"),
    ],
)
def test_the_releases_that_read_frames_and_the_window_is_stored(target: str, parts: int, expected: str) -> None:
    assert ops(framed(parts), target) == expected.split()


def filtered() -> onnx.ModelProto:
    sizes = {"mels": np.array(8), "length": np.array(64), "rate": np.array(16000)}
    edges = {"low": np.float32(0), "high": np.float32(8000)}
    return model(
        [node("MelWeightMatrix", "mels length rate low high", "filters"), node("MatMul", "x filters", "y")],
        [value("x", shape=(2, 8, 33))],
        [value("y", shape=(2, 8, 8))],
        [weight(name, each) for name, each in {**sizes, **edges}.items()],
        opset=17,
    )


def laid() -> onnx.ModelProto:
    return model(
        [node("Tanh", "x", "t"), node("Col2Im", "t image block", "y", strides=[2, 2], pads=[1, 1, 1, 1])],
        [value("x", shape=("batch", 27, 16))],
        [value("y", shape=("batch", 3, 8, 8))],
        [weight("image", np.array([8, 8])), weight("block", np.array([3, 3]))],
        opset=18,
    )


def resized() -> onnx.ModelProto:
    return model(
        [node("Resize", "x - - sizes", "s", mode="cubic", antialias=1), node("Tanh", "s", "y")],
        [value("x", shape=(1, 3, 16, 12))],
        [value("y", shape=(1, 3, 7, 9))],
        [weight("sizes", np.array([1, 3, 7, 9]))],
        opset=18,
    )


def upsampled() -> onnx.ModelProto:
    """Keras' UpSampling2D as tf2onnx writes it."""
    options = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    return model(
        [node("Resize", "x - scales", "s", mode="nearest", **options), node("Tanh", "s", "y")],
        [value("x", shape=("batch", 3, "height", "width"))],
        [value("y", shape=("batch", 3, "tall", "wide"))],
        [weight("scales", np.array([1, 1, 2, 2], np.float32))],
        opset=17,
    )


@pytest.mark.parametrize(("target", "expected"), [("onnx", False), ("ort-cuda", False), ("trt-10.9", True)])
def test_who_does_not_read_the_nearest_place_as_keras_writes_it(target: str, expected: bool) -> None:
    read, notes = read_by(Target.parse(target), load(upsampled()))
    mode = read.nodes[0].attributes["coordinate_transformation_mode"].value
    assert (mode == "half_pixel") is expected
    assert [note.kind for note in notes] == [NoteKind.STANDARD_NOT_READ] * expected


@needs_rtx
@pytest.mark.parametrize(
    ("proto", "shape"),
    [
        (mixed(), ()),
        (mixed(gain=1e6), ()),
        (framed(2), (1, 80, 2)),
        (filtered(), (2, 8, 33)),
        (laid(), (2, 27, 16)),
        (resized(), (1, 3, 16, 12)),
        (upsampled(), (1, 3, 8, 6)),
    ],
    ids=["transform", "loud transform", "frames", "filters", "columns", "resize", "upsampling"],
)
def test_tensorrt_rtx_builds_it(proto: onnx.ModelProto, shape: tuple[int, ...], tmp_path: Path) -> None:
    result = fix(proto, feeds(*shape), target="rtx-1.7", out=tmp_path)
    assert result.good and result.refusal == "" and not result.fp32_nodes


@pytest.mark.parametrize("chosen", ["op:DFT", "name:n_spectrum", "scope:n_spectrum"])
def test_what_the_user_says_of_it_holds_for_its_steps(chosen: str) -> None:
    kept = fix(mixed(), feeds(), target="trt-10.9", keep=chosen)
    names = {each.name for each in kept.plan.nodes}
    assert "n_spectrum/matmul" in names and (chosen != "op:DFT" or "n_back/matmul" in names)
    with pytest.raises(InputError, match="contradict"):
        fix(mixed(), feeds(), target="trt-10.9", keep=chosen, force="name:n_spectrum/matmul")


def test_the_gate_knows_the_graph_that_the_target_reads(tmp_path: Path) -> None:
    plan = fix(mixed(), feeds(), target="trt-10.9").plan
    path = tmp_path / "trained.onnx"
    onnx.save(mixed(gain=1.5), path)
    found = gate(plan, path, feeds())
    assert found.change == "weights" and found.holds


def test_inside_a_body_as_well() -> None:
    body = graph([node("DFT", "x", "inner")], [], [value("inner", shape=(2, LENGTH, 2))])
    other = graph([node("Concat", "x x", "outer", axis=2)], [], [value("outer", shape=(2, LENGTH, 2))])
    proto = model(
        [node("If", "flag", "y", then_branch=body, else_branch=other)],
        [value("x", shape=(2, LENGTH, 1)), value("flag", TensorProto.BOOL, ())],
        [value("y", shape=(2, LENGTH, 2))],
        opset=17,
    )
    found, _ = read_by(Target.parse("trt-10.9"), load(proto))
    assert "DFT" not in {each.op_type for each in found.ir.graph.all_nodes()}


def test_what_cannot_be_written_out_is_told() -> None:
    read, notes = read_by(Target.parse("trt-10.9"), load(mixed("length")))
    assert [each.op_type for each in read.nodes].count("DFT") == 1
    assert only(notes, NoteKind.NOT_WRITTEN_OUT).values["nodes"] == ["n_spectrum"]


def scores(by_hand: bool) -> onnx.ModelProto:
    """Values up to 30, whose exponentials leave FP16."""
    rng = np.random.default_rng(3)
    nodes = [node("MatMul", "x w", "z")]
    if by_hand:
        nodes += [node("Exp", "z", "e"), node("ReduceSum", "e axes", "s", keepdims=0), node("Log", "s", "y")]
    else:
        nodes += [node("ReduceLogSumExp", "z", "y", axes=[-1], keepdims=0)]
    weights = [weight("w", (2.5 * rng.normal(size=(16, 32))).astype(np.float32))]
    weights += [weight("axes", np.array([-1]))] if by_hand else []
    return model(nodes, [value("x", shape=(4, 16))], [value("y", shape=(4,))], weights, opset=17)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("target", ["trt-8.6", "trt-10.9", "trt-11.2"])
def test_tensorrt_gets_the_logarithm_of_a_sum_in_steps_that_stay_finite(
    by_hand: bool, target: str, tmp_path: Path
) -> None:
    """Its parser writes log(sum(exp(x))): infinite in FP16 from 11 on, also where a repair wrote the operator."""
    given = [{"x": np.random.default_rng(seed).normal(size=(4, 16)).astype(np.float32)} for seed in range(4)]
    result = fix(scores(by_hand), given, target=target, out=tmp_path)
    assert result.met and not result.fp32_nodes and result.typed is not None
    kinds = [note.kind for note in result.notes]
    assert (NoteKind.STANDARD_OVERFLOWS in kinds) is not by_hand and NoteKind.CLAMPED_WEIGHTS not in kinds
    typed = onnx.load(result.typed.path)
    written = [each.op_type for each in typed.graph.node]
    assert "ReduceLogSumExp" not in written and "ReduceMax" in written
    for each in given:
        (found,) = ort.InferenceSession(str(result.typed.path)).run(None, each)
        z = each["x"].astype(np.float64) @ np.asarray(onnx.numpy_helper.to_array(scores(by_hand).graph.initializer[0]))
        expected = np.logaddexp.reduce(z, axis=-1)
        assert np.linalg.norm(found - expected) <= 0.01 * np.linalg.norm(expected)
    again = fix(scores(by_hand), given, plan=result.plan)
    assert again.met and again.fp32_nodes == result.fp32_nodes


@pytest.mark.parametrize("target", ["onnx", "rtx-1.7", "ort-cuda"])
def test_others_read_the_logarithm_of_a_sum(target: str) -> None:
    assert ops(scores(by_hand=False), target).count("ReduceLogSumExp") == 1
