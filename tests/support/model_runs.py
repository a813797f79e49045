"""Runs a model as ONNX Runtime runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["run"]


def run(proto: onnx.ModelProto | Path, feeds: dict[str, Any]) -> dict[str, Any]:
    return Emulator().session(Assignment(Sites(load(proto)), {})).run(feeds)
