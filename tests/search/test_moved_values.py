from __future__ import annotations

import numpy as np

from halfwise.core.counting import count
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search.tensor_statistics import tensor_statistics
from tests.models.build import model, node, value


def test_what_only_moves_is_counted_as_it_would_be_by_itself() -> None:
    proto = model(
        [
            node("Transpose", "x", "turned", perm=[1, 0]),
            node("Flatten", "turned", "flat", axis=0),
            node("Squeeze", "flat", "line"),
            node("Cast", "line", "whole", to=7),
            node("Identity", "whole", "copy"),
            node("Relu", "line", "y"),
        ],
        [value("x", shape=[300, 70])],
        [value("y"), value("copy", 7)],
    )
    x = (np.random.default_rng(3).standard_normal((300, 70)) ** 9).astype(np.float32)
    found = tensor_statistics(Stepper(Emulator()), Sites(load(proto)), {"x": x})
    counts = {each.name: counts for each, counts in found.tensors.items()}
    expected = count(x)
    assert expected.underflow and expected.overflow and expected.subnormal
    assert counts == {**dict.fromkeys(("x", "turned", "flat", "line"), expected), "y": count(np.maximum(x, 0))}
    assert {each.name: shape for each, shape in found.shapes.items()} == {
        "x": (300, 70),
        "turned": (70, 300),
        "flat": (1, 21_000),
        "line": (21_000,),
        "whole": (21_000,),
        "copy": (21_000,),
        "y": (21_000,),
    }
