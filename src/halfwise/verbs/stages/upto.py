"""The plan for converting a model stage by stage: everything after one stage stays in FP32."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.targets import DEFAULT_TARGET
from halfwise.core.tolerance import Tolerance
from halfwise.model.fingerprint import graph_sha256
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.sites import Sites
from halfwise.verbs.stages.cut import Piece

__all__ = ["later_nodes", "plan_upto"]


def later_nodes(sites: Sites, later: Sequence[Piece]) -> frozenset[ir.Node]:
    """The nodes of these stages whose precision is a choice, those in their subgraphs included."""
    mains = {node for piece in later for node in piece.nodes}
    found = []
    inside = False
    for site in sites.all:
        inside = site.node in mains if not site.nested else inside
        if inside and site.free:
            found.append(site.node)
    return frozenset(found)


def plan_upto(
    sites: Sites, stage: str, keep: frozenset[ir.Node], tolerance: Tolerance, profile: str, inputs: str
) -> Plan:
    """A plan that `fix --plan` takes."""
    model = sites.model
    nodes = tuple(
        PlannedNode(site.name, site.op, Format.FP32, Reason.WANTED, (Note.of(NoteKind.AFTER_STAGE, stage),))
        for site in sites.all
        if site.node in keep
    )
    return Plan(
        model=model.path.name if model.path else "",
        sha256=model.sha256,
        data_sha256=model.data_sha256,
        graph_sha256=graph_sha256(model),
        node_count=model.stored_nodes,
        target=str(DEFAULT_TARGET),
        profile=profile,
        tolerance=tolerance,
        io_types=Format.FP32,
        inputs=inputs,
        nodes=nodes,
    )
