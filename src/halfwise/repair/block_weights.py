"""Packed weights for what reads DequantizeLinear with a scale for each block: they stay as small as they are.

`x W` with weights `q s + c`, where c is one number for each block, is `x (q s)` and the sums of x over each block times
c. Zero points in the middle leave no c. Rows of a table are picked with their c.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from halfwise.emulation.packed_weights import packed_in_full
from halfwise.model.bodies import nodes_in
from halfwise.model.contrib.decompose import is_own
from halfwise.model.contrib.packed import Packed, packed_product, packed_table
from halfwise.model.contrib.writer import PlainSteps, dims_of, shaped, spread
from halfwise.model.model import Model
from halfwise.model.opset import can_raise, raise_opset
from halfwise.repair.lower import Lowered, Steps, finished, inputs_of

__all__ = ["PACKED", "with_block_weights", "with_full_weights"]

_BLOCKED_SCALES = 21  # the first opset that has them, and INT4

_LAYOUTS: Mapping[str, Callable[[ir.Node], Packed | None]] = {
    "GatherBlockQuantized": packed_table,
    "MatMulNBits": packed_product,
}

PACKED = frozenset(_LAYOUTS)  # operators that read packed weights


def with_block_weights(model: Model, types: Collection[str], negative: Collection[str]) -> Lowered:
    """With such weights behind DequantizeLinear, as far as the target reads their `types`, in ONNX's names, with scales
    of blocks. `negative`: of these the ones whose scales may be below 0."""

    def packed(node: ir.Node) -> Packed | None:
        layout = _LAYOUTS.get(node.op_type) if is_own(node) else None
        # Without the number of dimensions no steps could be written.
        found = layout(node) if layout is not None and all(dims_of(node, slot) for slot in (0, 1)) else None
        return found if found is not None and found.type.name in types else None

    if not any(map(packed, model.nodes)) or not can_raise(model.ir, _BLOCKED_SCALES):
        return Lowered(model, (), ())
    copy = model.ir.clone()
    raise_opset(copy, _BLOCKED_SCALES)
    blocks, written = _Blocks(copy, negative), []
    for node in list(nodes_in(copy.graph)):
        found = packed(node)
        if found is not None:
            blocks.put(node, found)
            written.append(node.op_type)
    return Lowered(finished(model, copy), tuple(dict.fromkeys(written)), ())


def with_full_weights(model: Model, unread: Callable[[ir.Node], bool]) -> Lowered:
    """With such weights of the nodes that the target does not read in FP32, made whenever they are read; small ones are
    written out beside the other operators."""

    def full(node: ir.Node) -> ir.TensorProtocol | None:
        layout = _LAYOUTS.get(node.op_type) if is_own(node) and unread(node) else None
        found = layout(node) if layout is not None and all(dims_of(node, slot) for slot in (0, 1)) else None
        return None if found is None else packed_in_full(found)

    if not any(full(node) is not None for node in model.nodes):
        return Lowered(model, (), ())
    copy = model.ir.clone()
    steps, written = Steps(copy), []
    held: dict[ir.TensorProtocol, ir.Value] = {}
    for node in list(nodes_in(copy.graph)):
        tensor = full(node)
        if tensor is None:
            continue
        if tensor not in held:
            held[tensor] = steps.hold(node, "weight", tensor)
        write, inputs, name = steps.writer(node), inputs_of(node), held[tensor].name or ""
        picks = node.op_type == "GatherBlockQuantized"
        result = write.op("Gather", name, inputs[1], axis=0) if picks else _product(write, inputs, name, "")
        steps.put(write, {0: result}, [held[tensor]])
        written.append(node.op_type)
    return Lowered(finished(model, copy), tuple(dict.fromkeys(written)), ())


class _Blocks:
    """Puts the steps in the place of nodes. A weight that several read is stored once."""

    def __init__(self, model: ir.Model, negative: Collection[str]) -> None:
        self._steps, self._negative = Steps(model), negative
        self._held: dict[tuple[object, ...], ir.Value] = {}

    def put(self, node: ir.Node, packed: Packed) -> None:
        signed, steps = packed.type.name in self._negative, (packed.scales, packed.block, packed.bits)
        by_zeros = (*steps, packed.zeros, packed.words.dtype)
        numbers = self._weight(node, "numbers", (*by_zeros, packed.words), partial(packed.numbers, signed=signed))
        scales = self._weight(node, "scales", steps, partial(packed.factors, signed=signed))
        shift = packed.shifts(signed=signed)
        shifts = None if shift is None else self._weight(node, "shifts", by_zeros, lambda: shift)
        write, inputs = self._steps.writer(node), inputs_of(node)
        weight = write.op("DequantizeLinear", numbers.name or "", scales.name or "", axis=1, block_size=packed.block)
        name = "" if shifts is None else shifts.name or ""
        made = _picked if node.op_type == "GatherBlockQuantized" else _product
        result = made(write, inputs, weight, name, packed)
        self._steps.put(write, {0: result}, [value for value in (numbers, scales, shifts) if value is not None])

    def _weight(
        self, node: ir.Node, word: str, made_of: tuple[object, ...], make: Callable[[], ir.TensorProtocol]
    ) -> ir.Value:
        key = (word, *made_of)
        if key not in self._held:
            self._held[key] = self._steps.hold(node, word, make())
        return self._held[key]


def _product(write: PlainSteps, inputs: list[str], weight: str, shifts: str, packed: Packed | None = None) -> str:
    x, lead = inputs[0], [0] * (len(dims_of(write.node, 0) or ()) - 1)
    y = write.op("MatMul", x, write.op("Transpose", weight, perm=[1, 0]))
    if shifts and packed is not None:
        parts = shaped(write, x, *lead, packed.blocks, packed.block)
        sums = write.op("ReduceSum", parts, write.constant([-1], np.int64), keepdims=0)
        y = write.op("Add", y, write.op("MatMul", sums, write.op("Transpose", shifts, perm=[1, 0])))
    return write.op("Add", y, inputs[5]) if len(inputs) > 5 and inputs[5] else y


def _picked(write: PlainSteps, inputs: list[str], weight: str, shifts: str, packed: Packed) -> str:
    rank = len(dims_of(write.node, 1) or ())
    y = write.op("Gather", weight, inputs[1], axis=0)
    if not shifts:
        return y
    parts = shaped(write, y, *[0] * rank, packed.blocks, packed.block)
    shift = spread(write, write.op("Gather", shifts, inputs[1], axis=0), [rank + 1])
    return shaped(write, write.op("Add", parts, shift), *[0] * rank, packed.columns)
