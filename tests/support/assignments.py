"""Assignments of a model's nodes for tests."""

from __future__ import annotations

import onnx

from halfwise.core.formats import Format
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["narrow"]


def narrow(proto: onnx.ModelProto, *kept: str, io: Format = Format.FP32) -> Assignment:
    """All of a model in FP16 but these nodes."""
    sites = Sites(load(proto))
    return Assignment.all_narrow(sites, frozenset(s.node for s in sites.all if s.name in kept), io)
