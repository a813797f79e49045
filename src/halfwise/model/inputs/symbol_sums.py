"""Dimensions that are sums of others: written so, as "past_length + length", or called so, as "total_length"."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache

__all__ = ["size_of_sum", "symbols_in"]

_STEPS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}
_TOTAL = re.compile(r"total_(\w+)")


def symbols_in(dim: str, known: Collection[str]) -> frozenset[str]:
    """Those that a dimension is made of; none where it is no sum of dimensions that are `known`."""
    tree = _parsed(dim)
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)} if tree is not None else set[str]()
    return frozenset(names) if names <= set(known) - {dim} else frozenset()


def size_of_sum(dim: str, sizes: Mapping[str, int]) -> int | None:
    """Its size; None where that is no size."""
    tree = _parsed(dim)
    try:
        found = None if tree is None else _value(tree.body, sizes)
    except (KeyError, ZeroDivisionError):
        return None
    return found if found is not None and found > 0 else None


@cache
def _parsed(dim: str) -> ast.Expression | None:
    """Nothing but names, whole numbers and the four steps; None for all else, and for a name alone."""
    if total := _TOTAL.fullmatch(dim):
        dim = f"past_{total[1]} + {total[1]}"
    try:
        tree = ast.parse(dim, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if isinstance(tree.body, ast.BinOp) and _is_sum(tree.body) else None


def _is_sum(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _STEPS and _is_sum(tree.left) and _is_sum(tree.right)
    return isinstance(tree, ast.Name) or (isinstance(tree, ast.Constant) and type(tree.value) is int)


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp):
        return _STEPS[type(tree.op)](_value(tree.left, sizes), _value(tree.right, sizes))
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    assert isinstance(tree, ast.Constant) and isinstance(tree.value, int)
    return tree.value
