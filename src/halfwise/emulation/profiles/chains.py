"""Chains of nodes that some compiler makes one kernel of: a product and the sum behind it, attention as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.emulation.profiles.fusion import Fusion
from halfwise.model.families import PRODUCTS
from halfwise.precision.sites import Sites

__all__ = ["SCORES", "WHOLE", "chains"]

SCORES, WHOLE = "attention-scores", "attention-whole"
_BETWEEN = frozenset({"Add", "Div", "Mul", "Softmax", "Sub", "Where"})  # from the scores to their shares


def chains(sites: Sites) -> Iterator[Fusion]:
    """Larger ones first."""
    free = {site.node: None for site in sites.all if site.free and not site.nested}
    outputs = frozenset(sites.model.graph.outputs)
    for find in (_attention, _residuals):
        for fusion in find(free):
            if fusion.closed(outputs):
                yield fusion


def _attention(free: dict[ir.Node, None]) -> Iterator[Fusion]:
    for last in free:
        if last.op_type != "MatMul" or last.domain:
            continue
        shares = last.inputs[0].producer() if last.inputs[0] is not None else None
        chain = _upwards(shares, free)
        if chain and any(node.op_type == "Softmax" for node in chain):
            yield Fusion(WHOLE, (*chain, last), last)
            yield Fusion(SCORES, chain, chain[-1])


def _upwards(node: ir.Node | None, free: dict[ir.Node, None]) -> tuple[ir.Node, ...]:
    """From the product of queries and keys down to a node; empty where something else stands between."""
    chain: list[ir.Node] = []
    while node is not None and node in free and not node.domain:
        chain.append(node)
        if node.op_type == "MatMul":
            return tuple(reversed(chain))
        if node.op_type not in _BETWEEN:
            return ()
        made = [maker for value in node.inputs if value is not None and (maker := value.producer()) is not None]
        above = [maker for maker in made if maker.op_type in _BETWEEN or maker.op_type == "MatMul"]
        node = above[0] if above else None
    return ()


def _residuals(free: dict[ir.Node, None]) -> Iterator[Fusion]:
    """A product, and the tensor that is added to it."""
    for product in free:
        if product.op_type not in PRODUCTS or product.domain:
            continue
        users = {user for user, _ in product.outputs[0].uses()}
        added = next(iter(users)) if len(users) == 1 else None
        if added is None or added not in free or added.op_type != "Add" or added.domain:
            continue
        other = next((value for value in added.inputs if value is not product.outputs[0]), None)
        if other is not None and other.const_value is None:
            yield Fusion("residual", (product, added), added)
