"""Made-up inputs take sizes with which the FP32 model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import halfwise
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.model.inputs.samples import load_samples
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, open_dimensions
from halfwise.model.model import load
from tests.models.build import model, node, value, weight


def windowed(pad: int, *shape: Any) -> onnx.ModelProto:
    """Audio that is reflected at both ends: it has to be longer than that."""
    nodes = [node("Pad", "x pads", "p", mode="reflect"), node("Mul", "p half", "y")]
    weights = [weight("pads", np.array([0, pad, 0, pad])), weight("half", np.float32(0.5))]
    return model(nodes, [value("x", shape=shape)], [value("y", shape=None)], weights)


@pytest.mark.parametrize(("pad", "size"), [(4, 16), (40, 64), (300, 512), (700, 4096)])
@pytest.mark.parametrize("length", ["samples", None])
def test_a_window_fits(pad: int, size: int, length: str | None) -> None:
    given = load(windowed(pad, "batch", length))
    sizes = sizes_that_run(given, None)
    assert sizes == OpenSizes(size)
    feed = load_samples(given.inputs, None, sizes=sizes).search[0]
    assert feed["x"].shape == (1, size)


def test_a_state_of_one_beside_a_window() -> None:
    """Added to a state whose second dimension, unnamed, is the batch."""
    nodes = [node("Pad", "x pads", "p", mode="reflect"), node("MatMul", "state p", "y")]
    weights = [weight("pads", np.array([0, 40, 0, 40]))]
    inputs = [value("x", shape=(None, None)), value("state", shape=(2, None))]
    given = load(model(nodes, inputs, [value("y", shape=None)], weights))
    assert open_dimensions(given.inputs) == ("x[1]", "state[1]")
    assert sizes_that_run(given, None) == OpenSizes(64, frozenset({"state[1]"}))


def test_given_inputs_and_closed_shapes_need_no_run() -> None:
    assert sizes_that_run(load(windowed(40, "batch", "samples")), [{}]) is USUAL
    assert sizes_that_run(load(windowed(4, 1, 8)), None) is USUAL


def test_where_no_size_runs_the_usual_one_says_why() -> None:
    nodes = [node("Concat", "x fixed", "y", axis=0)]
    fixed = weight("fixed", np.ones((1, 77), "f4"))
    proto = model(nodes, [value("x", shape=("n", "m"))], [value("y", shape=None)], [fixed])
    assert sizes_that_run(load(proto), None) is USUAL
    with pytest.raises(halfwise.core.errors.InputError, match="77"):
        halfwise.fix(proto)


def test_the_job_finds_its_inputs() -> None:
    fixed = halfwise.fix(windowed(40, "batch", "samples"))
    assert fixed.met
    assert fixed.samples.search[0]["x"].shape == (1, 64)
