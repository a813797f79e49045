"""Runners: what is answered to all samples is not held in memory."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.core import set_aside
from halfwise.model.model import load
from halfwise.verbs.runners import EmulatedRunner
from tests.models.zoo import encoder


def test_large_answers_to_all_samples_are_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "LARGE", 1)
    zoo = encoder(layers=1)
    runner = EmulatedRunner(load(zoo.model), "tensorrt", narrow=True)
    for answer, feed in zip(runner.all(zoo.inputs[:2]), zoo.inputs, strict=False):
        assert all(set_aside.is_aside(array) for array in answer.values())
        assert all(np.array_equal(array, answer[name]) for name, array in runner.run(0, feed).items())
