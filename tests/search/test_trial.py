"""Trial perturbations: in parts, with the numbers of the whole, and within a few times the tensor."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search import trial
from halfwise.search.effects import Sensitivity
from halfwise.search.rounding import Rounding
from halfwise.search.sensitivity import measure_sensitivity
from halfwise.search.trial import Signs, noise_like, strength
from tests.models.build import model, node, value, weight


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 7, 1000, 100_003])
def test_noise_in_parts_is_that_of_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = _normal(size, 3)
    whole = (array * (2.0**-11 * np.random.default_rng(5).uniform(-1, 1, array.shape))).astype(np.float32)
    monkeypatch.setattr(trial, "_BLOCK", 1024)
    noise = noise_like(array, 2.0**-11, np.random.default_rng(5))
    assert np.array_equal(noise, whole)
    assert strength(noise) == float(np.sum(np.square(whole, dtype=np.float64)))


@pytest.mark.parametrize("repeated", [False, True])
def test_signs_cost_what_their_whole_gradient_does(repeated: bool) -> None:
    array = np.tile(_normal(4, 5), (30, 30)) if repeated else _normal(120, 150)
    rounding = Rounding.to(array, Format.FP16)
    assert rounding is not None and (rounding.groups is not None) == repeated
    drawn = (2 * np.random.default_rng(0).integers(0, 2, (4, *array.shape), dtype=np.int8) - 1).astype(np.int8)
    signs = Signs(drawn, np.float32(0.37))
    assert signs.energy(rounding) == rounding.energy(signs.whole())
    assert Signs(drawn, np.float32(np.inf)).energy(rounding) == 0.0


def test_a_weight_that_no_rule_knows_takes_a_few_times_its_size() -> None:
    """Not a gradient for each probe, and not a copy for each look at it."""
    image, grid = _normal(1, 1, 1024, 1024), np.zeros((1, 1, 2, 2), np.float32)
    proto = model(
        [node("GridSample", "image grid", "y")],
        [value("grid", shape=[1, 1, 2, 2])],
        [value("y", shape=[1, 1, 1, 2])],
        [weight("image", image)],
    )
    sites = Sites(load(proto))
    stepper = Stepper(Emulator())
    measure_sensitivity(stepper, sites, {"grid": grid}, Sensitivity())
    tracemalloc.start()
    try:
        measure_sensitivity(stepper, sites, {"grid": grid}, found := Sensitivity())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.weights[sites.all[0].node] > 0
    assert peak < 4.5 * image.nbytes
