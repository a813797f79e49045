"""Runs one node, or a graph, under a profile."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import (
    Profile,
)
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Array", "h", "narrow", "run"]


Array = NDArray[np.float32]


def h(array: Any) -> Array:
    """Rounded to FP16."""
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float32).astype(np.float16).astype(np.float32)


def narrow(proto: onnx.ModelProto) -> Assignment:
    return Assignment.all_narrow(Sites(load(proto)))


def run(profile: Profile, proto: onnx.ModelProto, **feeds: Array) -> Array:
    return Emulator(profile).session(narrow(proto)).run(feeds)["y"]
