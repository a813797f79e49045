"""Attention: a product of queries and keys, scale and mask, softmax, and the product with the values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.moving import Move, movers
from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.view import View, attribute

__all__ = ["find_attentions"]

_PRODUCTS = ("MatMul", "Einsum")
_ON_THE_WAY = movers(Move.SHAPE | Move.ORDER | Move.CAST)
_STEPS_BACK = 8  # scale, mask, cap, reshape, ...: exporters write at most so many nodes before the softmax
_STEPS_ON = 5


@dataclass(frozen=True)
class _Scores:
    product: ir.Node
    nodes: tuple[ir.Node, ...]
    scale: float
    masks: tuple[ir.Value, ...]


def find_attentions(view: View) -> Iterator[Pattern]:
    """softmax(scale * query @ key + mask) @ value.

    Details: `query`, `key`, `value`, `scores` and `output` (names of tensors), `scale` (a number multiplied with the
    scores; 1 where it is not a constant), `scale_before` (one multiplied with query or key), `masks` (names).
    """
    for softmax in view.of("Softmax"):
        scores = _scores(view, softmax.inputs[0], _STEPS_BACK)
        if scores is None:
            continue
        weighted = _weighted(view, softmax.outputs[0], _STEPS_ON)
        if weighted is None:
            continue
        last, slot, between = weighted
        query, before_query, nodes_query = _scaled(view, scores.product.inputs[0])
        key, before_key, nodes_key = _scaled(view, scores.product.inputs[1])
        value = last.inputs[1 - slot]
        if query is None or key is None or value is None:
            continue
        details = {
            "query": query.name,
            "key": key.name,
            "value": value.name,
            "scores": scores.product.outputs[0].name,
            "output": last.outputs[0].name,
            "scale": scores.scale,
            "scale_before": before_query * before_key,
            "masks": tuple(mask.name or "" for mask in scores.masks),
            "axis": attribute(softmax, "axis", None),
        }
        nodes = (*nodes_query, *nodes_key, scores.product, *scores.nodes, softmax, *between, last)
        yield view.pattern("attention", softmax, nodes, details)


def _scores(view: View, value: ir.Value | None, steps: int) -> _Scores | None:
    """Back from the softmax to the product of two computed tensors; what is added on the way is a mask."""
    node = view.maker(value, *_PRODUCTS, *_ON_THE_WAY, "Mul", "Div", "Add", "Sub", "Where", "Max", "Clip", "Tanh")
    if node is None or steps == 0:
        return None
    if node.op_type in _PRODUCTS:
        computed = len(node.inputs) == 2 and all(view.weight(v) is None for v in node.inputs)
        return _Scores(node, (), 1.0, ()) if computed else None
    if node.op_type in _ON_THE_WAY | {"Clip", "Tanh"}:
        inner = _scores(view, node.inputs[0], steps - 1)
        return _Scores(inner.product, (*inner.nodes, node), inner.scale, inner.masks) if inner is not None else None
    if node.op_type in ("Mul", "Div"):
        found = view.with_number(node)
        inner = _scores(view, found[0] if found is not None else node.inputs[0], steps - 1)
        if inner is None:
            return None
        number = 1.0 if found is None else found[1] if node.op_type == "Mul" else 1.0 / found[1] if found[1] else 0.0
        return _Scores(inner.product, (*inner.nodes, node), inner.scale * number, inner.masks)
    operands = node.inputs[1:] if node.op_type == "Where" else node.inputs
    for operand in operands:
        inner = _scores(view, operand, steps - 1)
        if inner is not None:
            others = node.inputs[:1] if node.op_type == "Where" else [v for v in node.inputs if v is not operand]
            masks = tuple(v for v in others if v is not None and (node.op_type == "Where" or view.scalar(v) is None))
            return _Scores(inner.product, (*inner.nodes, node), inner.scale, (*inner.masks, *masks))
    return None


def _weighted(view: View, value: ir.Value, steps: int) -> tuple[ir.Node, int, tuple[ir.Node, ...]] | None:
    """On from the softmax to the product with the values."""
    for node, slot in view.uses(value):
        if node.domain:
            continue
        if node.op_type in _PRODUCTS and len(node.inputs) == 2 and view.weight(node.inputs[1 - slot]) is None:
            return node, slot, ()
        # Reshapes, casts, and zeroing what was masked throughout (Where, or a product with the mask).
        passes = node.op_type in _ON_THE_WAY | {"Dropout"} and slot == 0
        if steps > 0 and (passes or node.op_type == "Mul" or (node.op_type == "Where" and slot > 0)):
            found = _weighted(view, node.outputs[0], steps - 1)
            if found is not None:
                return found[0], found[1], (node, *found[2])
    return None


def _scaled(view: View, value: ir.Value | None) -> tuple[ir.Value | None, float, tuple[ir.Node, ...]]:
    """A query or key before the number it is multiplied with, where that comes right before the product."""
    node = view.maker(value, "Mul", "Div")
    found = view.with_number(node) if node is not None else None
    if node is None or found is None or found[1] == 0.0:
        return value, 1.0, ()
    if node.op_type == "Div":
        return (found[0], 1.0 / found[1], (node,)) if view.scalar(node.inputs[1]) is not None else (value, 1.0, ())
    return found[0], found[1], (node,)
