"""Keeps casts out of quantised groups: between a DequantizeLinear and its product, a QuantizeLinear and its maker.

Compilers run DequantizeLinear -> Conv -> QuantizeLinear as one kernel of integers, and a Cast within takes it apart. A
group whose nodes differ is widened, which rounds less. A bias is left out: it is a constant to the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.families import PRODUCTS
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites, native_format

__all__ = ["keep_groups_whole"]


def keep_groups_whole(start: Adjustment, stated: Collection[str]) -> Adjustment:
    """Groups of one precision each; nodes that the user stated stay as they are."""
    decision, of = start.decision, start.decision.sites.of
    wide = {node for node in of if _is_wide(node, decision)}
    movable = {node for node, site in of.items() if site.free and site.name not in stated}
    groups = [group for group in _groups(decision.sites) if set(group) <= movable | wide]
    grown = set(wide)
    while more := {node for group in groups if not grown.isdisjoint(group) for node in group} - grown:
        grown |= more
    added = [node for node in of if node in grown - wide]
    planned = (
        PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, (Note.of(NoteKind.QUANTISED_GROUP),))
        for node in added
    )
    return start.to(decision.with_fp32(added), planned) if added else start


def _groups(sites: Sites) -> Iterator[tuple[ir.Node, ...]]:
    for node in sites.of:
        if node.domain:
            continue
        if node.op_type in PRODUCTS:
            makers = [value.producer() for value in node.inputs[:2] if value is not None]
            quantised = [maker for maker in makers if maker is not None and _is(maker, "DequantizeLinear")]
            if quantised:
                yield (node, *quantised)
        elif _is(node, "QuantizeLinear") and node.inputs[0] is not None:
            maker = node.inputs[0].producer()
            if maker is not None and sites.of[maker].free and native_format(node.inputs[0]) is Format.FP32:
                yield (node, maker)


def _is(node: ir.Node, op: str) -> bool:
    return node.op_type == op and not node.domain


def _is_wide(node: ir.Node, decision: Decision) -> bool:
    site = decision.sites.of[node]
    return site.has_fp32 and (not site.free or decision.formats.get(node) is Format.FP32)
