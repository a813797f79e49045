"""The rule for products with packed weights, which are made FP32 a few rows at a time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from halfwise.emulation.packed_weights import unpacked_weight
from halfwise.precision.rewrite import Weight
from halfwise.search.vjp.elementwise import unbroadcast
from halfwise.search.vjp.local import Array, Local, NoRule
from halfwise.search.vjp.runtime import run

__all__ = ["packed_product"]

_BIAS = 5  # its slot
_PART = 1 << 22  # numbers of the weight that are made at a time


def packed_product(local: Local, slot: int) -> Array:
    """NoRule where the weight is small or in another order. Scales count as exact, as what is made of them does."""
    held = {value.name or "": value.const_value for value in local.node.inputs if value is not None}
    weights = {name: Weight(name, tensor, None) for name, tensor in held.items() if tensor is not None}
    tensor = unpacked_weight(ir.serde.serialize_node(local.node), weights)
    if tensor is None:
        raise NoRule
    if slot == _BIAS:
        return unbroadcast(local.gradient(), local.input(slot).shape)
    if slot:
        return np.zeros((local.probes, *local.input(slot).shape), np.float32)
    gradient, (rows, columns), make = local.gradient(), tensor.shape.numpy(), tensor.begin()
    flat = gradient.reshape(-1, rows)
    found, step = np.zeros((len(flat), columns), np.float32), max(1, _PART // columns)
    for start in range(0, rows, step):
        part = np.empty((min(step, rows - start), columns), np.float32)
        make((slice(start, start + len(part)),), part)
        found += run("MatMul", np.ascontiguousarray(flat[:, start : start + len(part)]), part)
    return found.reshape(len(gradient), *local.input(0).shape)
