"""What ONNX Runtime loads in FP16 and does not run stays in FP32: what is delivered runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import halfwise
from halfwise.core.errors import HalfwiseError
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.ort import Session
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds

OPS = [(op, how) for op in ("ScatterND", "ScatterElements") for how in ("none", "add", "mul", "min", "max")]


def scatter(op: str, how: str) -> onnx.ModelProto:
    """What is scattered is computed before, and computed with behind it."""
    places = np.array([[0], [2]]) if op == "ScatterND" else np.array([0, 2])
    nodes = [node("Mul", "x x", "s"), node(op, "s places x2", "m", reduction=how), node("Add", "m m", "y")]
    inputs = [value("x"), value("x2", shape=(2,))]
    return model(nodes, inputs, [value("y")], [weight("places", places)], opset=18)


FEEDS = [{"x": np.arange(1, 5, dtype=np.float32) + i, "x2": np.array([2, 3], np.float32)} for i in range(3)]


@pytest.mark.parametrize(("op", "how"), OPS)
def test_what_is_delivered_runs_on_the_cpu(op: str, how: str) -> None:
    fixed = halfwise.fix(scatter(op, how), FEEDS)
    typed = typed_proto(fixed.assignment)
    got = Session(typed).run(FEEDS[0])["y"]
    want = Session(scatter(op, how)).run(FEEDS[0])["y"]
    assert np.allclose(got, want, rtol=1e-2)
    assert fixed.fp32_nodes == (() if runs_in_fp16(op, how) else ("n_m",))


def runs_in_fp16(op: str, how: str) -> bool:
    """Asked of the installed runtime."""
    half = TensorProto.FLOAT16
    places = np.array([[0], [2]]) if op == "ScatterND" else np.array([0, 2])
    inputs = [value("x", half), value("u", half, (2,))]
    proto = model(
        [node(op, "x places u", "y", reduction=how)], inputs, [value("y", half)], [weight("places", places)], opset=18
    )
    try:
        Session(proto).run({"x": np.ones(4, np.float16), "u": np.ones(2, np.float16)})
    except HalfwiseError:
        return False
    return True


@pytest.mark.parametrize(("op", "how"), OPS)
def test_a_model_for_others_keeps_it_in_fp16_and_is_not_blamed(op: str, how: str, tmp_path: Path) -> None:
    """A graph network sums over edges so: the CPU provider failed on it, or crashed in its threads."""
    made = halfwise.fix(scatter(op, how), FEEDS, target="trt-10.9", out=tmp_path)
    told = [note.values["why"] for note in made.notes if note.kind is NoteKind.DELIVERED_NOT_RUN]
    assert made.good and not made.fp32_nodes and NoteKind.DELIVERED_FAILS not in kinds(made.notes)
    assert told == ([] if runs_in_fp16(op, how) else [Note.of(NoteKind.NO_CPU_KERNEL, op)])


def warped(of: str) -> onnx.ModelProto:
    """A spatial transformer: a grid of positions, and what lies there."""
    size = [1, 2, 8, 8] if of == "pictures" else [1, 2, 4, 4, 4]
    rank = len(size) - 2
    nodes = [node("Mul", "theta half", "t"), node("AffineGrid", "t size", "g"), node("GridSample", "x g", "y")]
    inputs = [value("x", shape=size), value("theta", shape=(1, rank, rank + 1))]
    held = [weight("half", np.float32(0.5)), weight("size", np.array(size))]
    return model(nodes, inputs, [value("y", shape=size)], held, opset=20, ir_version=9)


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
@pytest.mark.parametrize("of", ["pictures", "volumes"])
def test_a_grid_that_no_provider_computes_in_fp16_stays_in_fp32(of: str, target: str) -> None:
    given = warped(of)
    drawn = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in given.graph.input}
    feeds = [{n: drawn.standard_normal(s).astype(np.float32) for n, s in shapes.items()} for _ in range(3)]
    fixed = halfwise.fix(given, feeds, target=target)
    got, want = (Session(proto).run(feeds[0])["y"] for proto in (typed_proto(fixed.assignment), given))
    assert np.linalg.norm(got - want) <= 0.01 * np.linalg.norm(want)
    assert fixed.fp32_nodes == (("n_g",) if of == "pictures" else ())


def test_it_is_no_matter_on_a_gpu() -> None:
    assert halfwise.fix(scatter("ScatterND", "add"), FEEDS, target="ort-cuda").fp32_nodes == ()


def test_the_user_outranks_it_and_is_told() -> None:
    fixed = halfwise.fix(scatter("ScatterND", "add"), FEEDS, force="name:n_m")
    assert fixed.fp32_nodes == ()
    assert NoteKind.ORT_CPU_REFUSES in kinds(fixed.notes)
