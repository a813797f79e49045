"""What scan says to change in training: of this model's findings, by name, and apart from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from halfwise.core.notes import NoteKind
from halfwise.model.elements import WINDOW
from halfwise.verbs.scan import scan
from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES, cnn_tiny_weights, encoder, norm_log_head


def conv(scale: float, behind: str) -> onnx.ModelProto:
    """A convolution whose weights are small, with or without a norm behind it."""
    rng = np.random.default_rng(0)
    ones = [weight(name, np.ones(4, np.float32)) for name in ("g", "b", "m", "v")]
    w = weight("w", (scale * rng.standard_normal((4, 3, 1, 1))).astype(np.float32))
    last = node("BatchNormalization", "h g b m v", "y") if behind == "norm" else node("Relu", "h", "y")
    weights = [w, *(ones if behind == "norm" else [])]
    return model([node("Conv", "x w", "h"), last], [value("x", shape=(1, 3, 4, 4))], [value("y", shape=None)], weights)


def advice(model: Any) -> dict[NoteKind, list[str]]:
    """Its kinds, and the layers that each names."""
    return {note.kind: note.values["at"] for note in scan(model).training}


def test_small_weights_in_front_of_a_norm_and_elsewhere() -> None:
    assert advice(conv(1e-9, "norm")) == {NoteKind.TRAIN_NO_DECAY: ["w"]}
    assert advice(conv(1e-9, "relu")) == {NoteKind.TRAIN_LESS_DECAY: ["w"]}
    assert advice(conv(1.0, "norm")) == {}


def test_large_weights_need_weight_decay() -> None:
    assert advice(conv(1e6, "relu")) == {NoteKind.TRAIN_MORE_DECAY: ["w"]}


def test_training_does_not_move_constants_of_the_program() -> None:
    """What stands for padding, 1,123,581,321 in TimesFM, is written in the code; so is what fills a table."""
    sentinels = [weight("w", np.float32(1123581321.0)), weight("v", np.full((3, 4), 1e6, np.float32))]
    nodes = [node("Sub", "x w", "h"), node("MatMul", "h v", "y")]
    built = model(nodes, [value("x", shape=(2, 3))], [value("y", shape=None)], sentinels)
    assert [finding.rule for finding in scan(built).findings if finding.rule == "HW104"] == ["HW104", "HW104"]
    assert advice(built) == {}


def test_a_weight_that_begins_with_one_number_is_none_of_them() -> None:
    """Rows of a pruned layer or of a table are zeros, more of them than are read at a time."""
    rows = np.zeros((1025, WINDOW // 1024), np.float32)
    rows[-1] = 1e6 * np.random.default_rng(0).standard_normal(rows.shape[1])
    nodes = [node("MatMul", "x w", "y")]
    built = model(nodes, [value("x", shape=(1, 1025))], [value("y", shape=None)], [weight("w", rows)])
    assert advice(built) == {NoteKind.TRAIN_MORE_DECAY: ["w"]}


def test_the_layers_are_named() -> None:
    first, *_ = advice(cnn_tiny_weights("tensors").model).values()
    assert first[:2] == ["stages.0.shrink.weight", "stages.1.shrink.weight"]


def test_norms_and_where_they_stand() -> None:
    found = advice(encoder(layers=2).model)
    assert list(found) == [NoteKind.TRAIN_NORM_OPERATOR, NoteKind.TRAIN_NORM_PLACE]
    norms = [f"/layers.{layer}/norm{place}/Pow" for layer in (0, 1) for place in (1, 2)] + ["/norm/Pow"]
    assert found[NoteKind.TRAIN_NORM_OPERATOR] == norms
    assert found[NoteKind.TRAIN_NORM_PLACE] == norms[1:]
    assert NoteKind.TRAIN_NORM_PLACE not in advice(SHAPES["layer_norm_overflow"]().model)


def test_guards_sums_and_softmaxes() -> None:
    found = list(advice(norm_log_head().model))
    assert found == [NoteKind.TRAIN_EPSILON, NoteKind.TRAIN_SOFTMAX, NoteKind.TRAIN_SUM]


def test_nothing_is_said_of_a_healthy_model() -> None:
    assert advice(SHAPES["healthy_mlp"]().model) == {}
