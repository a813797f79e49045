"""Rules for matrix products."""

from __future__ import annotations

import numpy as np

from halfwise.search.vjp.elementwise import unbroadcast
from halfwise.search.vjp.local import Array, Local, NoRule, Rule
from halfwise.search.vjp.runtime import run

__all__ = ["LINEAR"]


def _matmul(local: Local, slot: int) -> Array:
    a, b, gradient = local.input(0), local.input(1), local.gradient()
    if a.ndim == 1:
        gradient = np.expand_dims(gradient, -1 if b.ndim == 1 else -2)
    if b.ndim == 1:
        gradient = np.expand_dims(gradient, -1)
    rows = a if a.ndim > 1 else a[None, :]
    columns = b if b.ndim > 1 else b[:, None]
    return _product(gradient, rows, columns, slot).reshape(len(gradient), *local.input(slot).shape)


def _product(gradient: Array, rows: Array, columns: Array, slot: int) -> Array:
    """gradient: (probes, ..., m, n); rows: (..., m, k); columns: (..., k, n)."""
    if columns.ndim == 2:  # a weight for all rows: one product rather than many
        n = gradient.shape[-1]
        if slot == 0:
            flat = _times_transposed(gradient.reshape(-1, n), columns)
            return unbroadcast(flat.reshape(*gradient.shape[:-1], columns.shape[0]), rows.shape)
        if rows.ndim == gradient.ndim - 1:
            return run("MatMul", rows.reshape(-1, rows.shape[-1]).T, gradient.reshape(len(gradient), -1, n))
    if slot == 0:
        return unbroadcast(run("MatMul", gradient, np.swapaxes(columns, -1, -2)), rows.shape)
    return unbroadcast(run("MatMul", np.swapaxes(rows, -1, -2), gradient), columns.shape)


def _times_transposed(rows: Array, weight: Array) -> Array:
    """rows times the weight's transpose: neither is copied."""
    if weight.T.flags.c_contiguous:
        return run("MatMul", rows, weight.T)
    return run("Gemm", rows, weight, transB=1)


def _gemm(local: Local, slot: int) -> Array:
    gradient = local.gradient()
    if slot == 2:
        return unbroadcast(gradient * np.float32(local.number("beta", 1.0)), local.input(2).shape)
    swap_a, swap_b = local.integer("transA", 0), local.integer("transB", 0)
    rows = local.input(0).T if swap_a else local.input(0)
    columns = local.input(1).T if swap_b else local.input(1)
    found = _product(gradient * np.float32(local.number("alpha", 1.0)), rows, columns, slot)
    return np.swapaxes(found, -1, -2) if (swap_a, swap_b)[slot] else found


def _einsum(local: Local, slot: int) -> Array:
    """Each other operand against the gradient; an index that only this operand has was summed, so it is spread."""
    equation = local.text("equation", "").replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or any(len(set(t)) < len(t) for t in (*terms, out)) or "Z" in equation:
        raise NoRule
    mine = terms[slot]
    others = [(t, local.input(i)) for i, t in enumerate(terms) if i != slot]
    seen = set(out).union(*(t for t, _ in others))
    kept = "".join(c for c in mine if c in seen)
    operands = ",".join(["Z" + out, *(t for t, _ in others)])
    found = np.einsum(f"{operands}->Z{kept}", local.gradient(), *(x for _, x in others), optimize=True)
    shape = local.input(slot).shape
    spread = found.reshape(len(found), *(n if c in seen else 1 for c, n in zip(mine, shape, strict=True)))
    return np.broadcast_to(spread, (len(found), *shape))


LINEAR: dict[str, Rule] = {"MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum}
