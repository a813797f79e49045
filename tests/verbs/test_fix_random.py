"""Random nodes draw the same numbers in FP32 and in FP16, so that a verdict is about rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from halfwise import fix, gate, verify
from halfwise.backends.as_written import run_as_written
from halfwise.core.notes import NoteKind
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((2, 32)).astype(np.float32)} for seed in range(4)]


def noisy(op: str = "RandomNormalLike", **attributes: Any) -> onnx.ModelProto:
    """A voice's latent: the mean of a product, and noise on it, as large as the mean."""
    rng = np.random.default_rng(7)
    draw = helper.make_node(op, ["m"], ["z"], **attributes)
    after = [node("Add", "m z", "s"), node("Tanh", "s", "t"), node("MatMul", "t w", "y")]
    return model(
        [node("MatMul", "x w", "m"), draw, *after],
        [value("x", shape=(2, 32))],
        [value("y", shape=(2, 32))],
        [weight("w", (rng.standard_normal((32, 32)) / 6).astype(np.float32))],
        opset=15,
    )


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike"])
@pytest.mark.parametrize("target", ["onnx", "ort-cuda", "trt-10.9"])
def test_noise_needs_no_fp32(op: str, target: str, tmp_path: Path) -> None:
    made = fix(noisy(op), FEEDS, out=tmp_path, target=target)
    assert made.good and made.plan.nodes == ()
    assert made.fixed["y"].rel_l2 < 2e-3
    assert made.delivered is not None and made.delivered.outputs["y"].rel_l2 < 2e-3
    assert only(made.notes, NoteKind.RANDOM_NODE).subject == "node_of_z"


def test_what_is_delivered_goes_on_drawing_as_before(tmp_path: Path) -> None:
    made = fix(noisy(), FEEDS, out=tmp_path)
    assert made.typed is not None
    (draw,) = (n for n in onnx.load(made.typed.path).graph.node if n.op_type == "RandomNormalLike")
    assert [a.name for a in draw.attribute if a.name == "seed"] == []
    session = ort.InferenceSession(str(made.typed.path), providers=["CPUExecutionProvider"])
    one, other = (session.run(None, dict(FEEDS[0]))[0] for _ in range(2))
    assert not np.array_equal(one, other)


def test_a_seed_of_the_model_stays(tmp_path: Path) -> None:
    made = fix(noisy(seed=3.0), FEEDS, out=tmp_path)
    assert made.good and made.typed is not None
    (draw,) = (n for n in onnx.load(made.typed.path).graph.node if n.op_type == "RandomNormalLike")
    assert [a.f for a in draw.attribute if a.name == "seed"] == [3.0]


def test_the_file_is_verified_and_guarded_by_the_same_draws(tmp_path: Path) -> None:
    onnx.save(noisy(), tmp_path / "model.onnx")
    made = fix(noisy(), FEEDS, out=tmp_path / "out")
    assert made.typed is not None
    for backend in (None, "ort-cpu"):
        assert verify(tmp_path / "model.onnx", made.typed.path, FEEDS, backend=backend).met
    assert gate(made.plan, tmp_path / "model.onnx", FEEDS).holds


def test_each_random_node_draws_its_own_numbers_and_every_sample_the_same(tmp_path: Path) -> None:
    given = model(
        [node("RandomNormalLike", "x", "a"), node("RandomNormalLike", "x", "b")],
        [value("x", shape=(2, 32))],
        [value("a", shape=(2, 32)), value("b", shape=(2, 32))],
        opset=15,
    )
    onnx.save(given, tmp_path / "noise.onnx")
    first, second = run_as_written(tmp_path / "noise.onnx", FEEDS[:2], 60.0, Sites(load(given)))
    assert np.array_equal(first["a"], second["a"]) and not np.array_equal(first["a"], first["b"])
    assert NoteKind.RANDOM_NODE in kinds(fix(given, FEEDS).notes)


def test_a_session_may_be_told_to_go_on_drawing() -> None:
    proto = noisy(seed=3.0)
    again, onwards = Session(proto), Session(proto, redraw=False)
    feed = FEEDS[0]
    assert np.array_equal(again.run(feed)["y"], again.run(feed)["y"])
    assert not np.array_equal(onwards.run(feed)["y"], onwards.run(feed)["y"])
