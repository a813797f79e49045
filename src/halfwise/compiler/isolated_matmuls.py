"""Finds what keeps an isolated FP32 product in FP32: TensorRT-RTX reverts one that stands alone to FP16.

Seen with 1.7: Cast to FP32, MatMul or Conv with a constant weight, Cast to FP16, and nothing else in FP32, is
compiled to an FP16 kernel, weights too. One more FP32 node of arithmetic beside the product keeps it in FP32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from halfwise.compiler.audit import Violation
from halfwise.core.formats import Format
from halfwise.model.families import PRODUCTS
from halfwise.precision.sites import Sites
from halfwise.search.cost import flops

__all__ = ["companions", "find_isolated_matmuls"]

_PRODUCTS = PRODUCTS | {"Einsum"}
_MOST_MOVES = 4  # nodes that only move data, between the product and the next node of arithmetic


def find_isolated_matmuls(
    violations: Iterable[Violation], sites: Sites, formats: Mapping[ir.Node, Format]
) -> list[ir.Node]:
    """The products that were to be FP32, ran in the narrow format, and have no FP32 node beside them."""
    by_name = sites.model.node_by_name
    found = []
    for violation in violations:
        node = by_name.get(violation.node)
        if node is None or node.op_type not in _PRODUCTS or violation.got != sites.fmt.value:
            continue
        if not any(all(_is_wide(other, sites, formats) for other in path) for path in _paths(node, sites)):
            found.append(node)
    return found


def companions(
    product: ir.Node, sites: Sites, formats: Mapping[ir.Node, Format], sizes: Mapping[ir.Value, int]
) -> tuple[ir.Node, ...]:
    """The cheapest nodes to join an isolated product: one of arithmetic, and what moves data on the way to it.

    Empty where nothing beside the product can join it. Of equal ones, the one that reads the product's result.
    """
    joining = [tuple(node for node in path if not _is_wide(node, sites, formats)) for path in _paths(product, sites)]
    able = [path for path in joining if path and not any(node in formats for node in path)]  # BF16 is a choice, too
    return min(able, key=lambda path: (sum(flops(sites.of[node], sizes) for node in path), len(path)), default=())


def _is_wide(node: ir.Node, sites: Sites, formats: Mapping[ir.Node, Format]) -> bool:
    return formats.get(node) is Format.FP32 or not sites.of[node].free


def _paths(product: ir.Node, sites: Sites) -> list[tuple[ir.Node, ...]]:
    """From the product to the next nodes of arithmetic: those behind it first, then those before it."""
    behind = [path for value in product.outputs for path in _onwards(value, sites, _MOST_MOVES)]
    before = [(maker,) for value in product.inputs if (maker := _maker(value)) is not None and sites.of[maker].compute]
    return behind + before


def _onwards(value: ir.Value, sites: Sites, moves: int) -> list[tuple[ir.Node, ...]]:
    found: list[tuple[ir.Node, ...]] = []
    for node in value.consumers():
        site = sites.of[node]
        if site.compute:
            found.append((node,))
        elif site.moves and moves and node.outputs:
            found += [(node, *path) for path in _onwards(node.outputs[0], sites, moves - 1)]
    return found


def _maker(value: ir.Value | None) -> ir.Node | None:
    return value.producer() if value is not None else None
