"""Emulates graphs as the kernels of an engine compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import Profile
from halfwise.precision.assignment import Assignment
from tests.models.build import model, value, weight

__all__ = ["Array", "drawn", "h", "one", "run"]


Array = NDArray[np.float32]


def h(array: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float64).astype(np.float16).astype(np.float32)


def drawn(seed: int, *shape: int) -> Array:
    return h(np.random.default_rng(seed).standard_normal(shape))


def run(profile: Profile, assignment: Assignment, **feeds: Array) -> Array:
    return Emulator(profile).session(assignment).run(feeds)["y"]


def one(nodes: Sequence[onnx.NodeProto], shape: Sequence[int], opset: int = 17, **weights: Array) -> onnx.ModelProto:
    given = [weight(name, array) for name, array in weights.items()]
    return model(nodes, [value("x", shape=shape)], [value("y", shape=None)], given, opset)
