"""What scan says to change in training: of this model's findings, by name, and apart from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.verbs.scan import scan
from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES, cnn_tiny_weights, encoder, norm_log_head
from tests.support.command_line import CommandLine


def conv(scale: float, behind: str) -> onnx.ModelProto:
    """A convolution whose weights are small, with or without a norm behind it."""
    rng = np.random.default_rng(0)
    ones = [weight(name, np.ones(4, np.float32)) for name in ("g", "b", "m", "v")]
    w = weight("w", (scale * rng.standard_normal((4, 3, 1, 1))).astype(np.float32))
    last = node("BatchNormalization", "h g b m v", "y") if behind == "norm" else node("Relu", "h", "y")
    weights = [w, *(ones if behind == "norm" else [])]
    return model([node("Conv", "x w", "h"), last], [value("x", shape=(1, 3, 4, 4))], [value("y", shape=None)], weights)


def test_small_weights_in_front_of_a_norm_and_elsewhere() -> None:
    (idle,) = scan(conv(1e-9, "norm")).training
    assert idle.startswith("weight decay: leave out w; the norm behind cancels")
    (tiny,) = scan(conv(1e-9, "relu")).training
    assert tiny.startswith("weight decay: lower it, or leave out w, and scale")
    assert scan(conv(1.0, "norm")).training == ()


def test_large_weights_need_weight_decay() -> None:
    (huge,) = scan(conv(1e6, "relu")).training
    assert huge.startswith("weight decay: put it on w, or clip them after each step")


def test_the_layers_are_named() -> None:
    assert "stages.0.shrink.weight, stages.1.shrink.weight" in scan(cnn_tiny_weights("tensors").model).training[0]


def test_norms_and_where_they_stand() -> None:
    operator, placement = scan(encoder(layers=2).model).training
    assert operator.startswith("norms: train with the framework's own operator in place of /layers.0/norm1/Pow")
    assert placement.startswith("norm placement: /layers.0/norm2/Pow, ")
    assert "and 1 more" in placement or "/norm/Pow" in placement
    alone = scan(SHAPES["layer_norm_overflow"]().model).training
    assert not any(sentence.startswith("norm placement") for sentence in alone)


def test_guards_sums_and_softmaxes() -> None:
    said = [sentence.partition(":")[0] for sentence in scan(norm_log_head().model).training]
    assert said == ["epsilons", "softmax", "sums"]


def test_nothing_is_said_of_a_healthy_model() -> None:
    assert scan(SHAPES["healthy_mlp"]().model).training == ()


def test_it_stands_apart_from_the_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cli = CommandLine(monkeypatch, capsys)
    onnx.save(conv(1e-9, "relu"), tmp_path / "m.onnx")
    findings, _, advice = cli("scan", tmp_path / "m.onnx").out.partition("\nif the model can be trained again:\n")
    assert "HW102" in findings
    assert advice.startswith("  weight decay: lower it")
    assert set(cli("scan", tmp_path / "m.onnx", "--json").document) == {"schema", "weights", "findings"}
