"""The versions of a model that are compared: all FP16, and what plans make of it."""

from __future__ import annotations

from pathlib import Path

import onnx

from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan, read_plan
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair import reapplied

__all__ = ["VERSIONS", "assignment_of_version", "typed_version"]

VERSIONS = ("fp16", "fixed", "repaired")


def assignment_of_version(proto: onnx.ModelProto, version: str, plan: Path | None = None) -> Assignment | None:
    """The decision behind a version; None where there is no plan for it."""
    model = load(proto)
    if version == "fp16":
        return Assignment.all_narrow(Sites(model))
    if plan is None or not plan.exists():
        return None
    read: Plan = read_plan(plan)
    model = reapplied(model, read.repairs)
    formats = {model.node_by_name[node.name]: node.format for node in read.nodes}
    sites = Sites(model)
    return Assignment(sites, {site.node: formats.get(site.node, sites.fmt) for site in sites.free})


def typed_version(proto: onnx.ModelProto, version: str, plan: Path | None = None) -> onnx.ModelProto | None:
    assignment = assignment_of_version(proto, version, plan)
    return None if assignment is None else typed_proto(assignment)
