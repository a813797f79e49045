"""Division by a guarded square root, in every spelling: what LayerNorm, RMSNorm and L2 normalisation end with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.patterns.view import View, attribute

__all__ = ["Guarded", "Quotient", "Root", "guarded", "quotients", "root_of", "roots"]


@dataclass(frozen=True)
class Guarded:
    """value + epsilon, or max(value, epsilon); epsilon 0 where nothing guards it."""

    value: ir.Value
    epsilon: float
    nodes: tuple[ir.Node, ...]
    by: str = "none"  # "add" or "max"


@dataclass(frozen=True)
class Root:
    """sqrt(guarded), or 1 / sqrt(guarded) where `inverse`, itself perhaps guarded again behind the root."""

    inside: Guarded
    output: ir.Value
    nodes: tuple[ir.Node, ...]
    inverse: bool
    outside: float = 0.0

    @property
    def epsilon(self) -> float:
        return self.inside.epsilon or self.outside


@dataclass(frozen=True)
class Quotient:
    """numerator / root, perhaps times a constant `scale` that was multiplied in before."""

    numerator: ir.Value
    output: ir.Value
    nodes: tuple[ir.Node, ...]
    factor: ir.Value  # what the numerator is multiplied with or divided by
    scale: ir.Value | None = None


def guarded(view: View, value: ir.Value) -> Guarded:
    """Take the guard off a value: Add, Max or Clip with a small positive number; Relu guards with 0."""
    value = view.origin(value) or value
    node = view.maker(value, "Add", "Max", "Clip", "Relu")
    if node is None or node.inputs[0] is None:
        return Guarded(value, 0.0, ())
    if node.op_type == "Relu":
        inner = guarded(view, node.inputs[0])
        return Guarded(inner.value, inner.epsilon, (*inner.nodes, node), inner.by)
    if node.op_type == "Clip":
        low = clip_bounds(view, node)[0]
        found = None if low is None else (node.inputs[0], low)
    else:
        found = view.with_number(node)
    if found is None or not 0.0 <= found[1] < 1.0:
        return Guarded(value, 0.0, ())
    by = "add" if node.op_type == "Add" else "max"
    if found[1] == 0.0:  # max(v, 0) only keeps a root real
        inner = guarded(view, found[0])
        return Guarded(inner.value, inner.epsilon, (*inner.nodes, node), inner.by)
    # A variance kept from being negative before the epsilon is added.
    inner = guarded(view, found[0])
    if inner.epsilon == 0.0:
        return Guarded(inner.value, found[1], (*inner.nodes, node), by)
    return Guarded(found[0], found[1], (node,), by)


def clip_bounds(view: View, node: ir.Node) -> tuple[float | None, float | None]:
    """What a Clip clips to, from attributes or inputs; None where a side is open, infinite or not constant."""
    bounds: list[float | None] = []
    for slot, name in ((1, "min"), (2, "max")):
        named = attribute(node, name, None)
        given = node.inputs[slot] if slot < len(node.inputs) else None
        bound = float(named) if named is not None else view.scalar(given)
        bounds.append(bound if bound is not None and math.isfinite(bound) else None)
    return bounds[0], bounds[1]


def roots(view: View) -> Iterator[Root]:
    """Every square root, and every power of -1/2."""
    for node in view.of("Sqrt", "Pow"):
        root = root_of(view, node)
        if root is not None:
            yield root


def root_of(view: View, node: ir.Node) -> Root | None:
    inside = node.inputs[0]
    if inside is None:
        return None
    if node.op_type == "Sqrt":
        flipped = view.maker(inside, "Reciprocal", "Div")
        denominator = _inverted(view, flipped) if flipped is not None else None
        if flipped is not None and denominator is not None:
            under = guarded(view, denominator)
            return Root(under, node.outputs[0], (*under.nodes, flipped, node), True)
    elif not view.is_scalar(node.inputs[1], 0.5):
        if not view.is_scalar(node.inputs[1], -0.5):
            return None
        under = guarded(view, inside)
        return Root(under, node.outputs[0], (*under.nodes, node), True)
    under = guarded(view, inside)
    return Root(under, node.outputs[0], (*under.nodes, node), False)


def quotients(view: View, root: Root) -> Iterator[tuple[Root, Quotient]]:
    """Whatever is divided by the root, with the root as guarded there."""
    if root.inverse:
        yield from ((root, quotient) for quotient in _products(view, root.output, ()))
        return
    for node, slot in view.uses(root.output):
        if node.domain:
            continue
        if node.op_type in ("Add", "Max", "Clip") and not root.outside:
            guard = guarded(view, node.outputs[0])
            if guard.epsilon and guard.nodes == (node,) and view.origin(guard.value) is view.origin(root.output):
                behind = Root(root.inside, node.outputs[0], (*root.nodes, node), False, guard.epsilon)
                yield from quotients(view, behind)
        elif node.op_type == "Expand" and slot == 0:
            yield from quotients(view, Root(root.inside, node.outputs[0], (*root.nodes, node), False, root.outside))
        elif node.op_type == "Div" and slot == 1 and not view.is_scalar(node.inputs[0], 1.0):
            if node.inputs[0] is not None:
                yield root, Quotient(node.inputs[0], node.outputs[0], (node,), root.output)
        elif _inverted(view, node) is not None:
            yield from ((root, quotient) for quotient in _products(view, node.outputs[0], (node,)))


def _inverted(view: View, node: ir.Node) -> ir.Value | None:
    """For Reciprocal(v), 1 / v or v^-1: the v."""
    if node.op_type == "Reciprocal":
        return node.inputs[0]
    if node.op_type == "Div" and view.is_scalar(node.inputs[0], 1.0):
        return node.inputs[1]
    if node.op_type == "Pow" and view.is_scalar(node.inputs[1], -1.0):
        return node.inputs[0]
    return None


def _products(
    view: View, inverse: ir.Value, nodes: tuple[ir.Node, ...], scale: ir.Value | None = None
) -> Iterator[Quotient]:
    """What is multiplied with 1 / root, also where a constant scale was multiplied in first."""
    for node, slot in view.uses(inverse):
        if node.domain or node.op_type != "Mul":
            continue
        other = node.inputs[1 - slot]
        weight = view.weight(other)
        if weight is None:
            if other is not None:
                yield Quotient(other, node.outputs[0], (*nodes, node), inverse, scale)
        elif scale is None:
            yield from _products(view, node.outputs[0], (*nodes, node), weight)
