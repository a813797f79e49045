"""Keeps quantised products in FP32 whose bias ONNX Runtime would quantise beyond FP16.

Where a product reads DequantizeLinear and a QuantizeLinear reads it, ONNX Runtime makes whole steps of a float bias at
every optimisation level: bias / (scale of the input x scale of the weights), computed in the type of the product. In
FP16 a quotient above 65504 is infinite, and the bias becomes anything. In FP32 there is room.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format, round_to
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable, Formats
from halfwise.model.families import PRODUCTS
from halfwise.model.moving import Move, behind, movers
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_biases"]

Array = NDArray[np.float32]

_RESHAPED = movers(Move.SHAPE)
_PASSED = movers(Move.SHAPE | Move.ORDER) | {"Relu", "Clip"}  # between the product and what quantises it


def adjust_biases(may: Adjustable, start: Adjustment) -> Adjustment:
    """Each such product and what dequantises its factors in FP32, where the user lets it."""
    formats: Formats = start.decision.formats
    added: list[PlannedNode] = []
    for group in _overflowing(may.assignment(formats)):
        changed = may.widened(group, formats)
        if changed is not None:
            because = (Note.of(NoteKind.KEEPS_BIAS_STEPS, group[0].name),)
            added += [
                PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, because)
                for node in group
                if node in changed and node not in formats
            ]
            formats = changed
    return start.to(start.decision.with_formats(formats), added) if added else start


def _overflowing(assignment: Assignment) -> Iterator[tuple[ir.Node, ...]]:
    """Each product whose bias would have more steps than its format holds, with what dequantises its factors."""
    for node in assignment.sites.model.nodes:
        fmt = assignment.of(node)
        if node.op_type not in PRODUCTS or node.domain or not fmt.narrow:
            continue
        makers = [value.producer() if value is not None else None for value in node.inputs[:2]]
        factors = [each for each in makers if each is not None and _is(each, "DequantizeLinear")]
        if len(factors) != 2 or any(assignment.stored(each.outputs[0]) is not fmt for each in factors):
            continue
        scales = [_constant(each.inputs[1]) for each in factors]
        found = _bias(node)
        if found is None or scales[0] is None or scales[1] is None or not _is_quantised(found[1]):
            continue
        if _overflows(found[0], scales[0], scales[1], fmt):
            yield (node, *factors)


def _overflows(bias: Array, of_input: Array, of_weights: Array, fmt: Format) -> bool:
    """Whether some value has more steps than the format holds. ONNX Runtime takes scales by tensor or by channel."""
    if of_input.size != 1 or of_weights.size not in (1, bias.size):
        return False
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = round_to(round_to(of_input, fmt).reshape(-1) * round_to(of_weights, fmt).reshape(-1), fmt)
        steps = np.asarray(round_to(bias, fmt).reshape(-1) / scale)
    return bool(np.any(np.abs(steps) > fmt.max))


def _bias(node: ir.Node) -> tuple[Array, ir.Value] | None:
    """A constant vector that is added to the product, and the sum."""
    if node.op_type != "MatMul":
        values = node.inputs[2:3]
        return next(((bias, node.outputs[0]) for value in values if (bias := _vector(value)) is not None), None)
    readers = [use.node for use in node.outputs[0].uses()]
    if len(readers) != 1 or not _is(readers[0], "Add"):
        return None
    others = (value for value in readers[0].inputs if value is not node.outputs[0])
    return next(((bias, readers[0].outputs[0]) for value in others if (bias := _vector(value)) is not None), None)


def _vector(value: ir.Value | None) -> Array | None:
    array = _constant(value) if value is None or value.shape is None or len(value.shape) == 1 else None
    return array if array is not None and array.size else None


def _constant(value: ir.Value | None) -> Array | None:
    """The values of a weight, perhaps under another shape; None where they are not known."""
    value = behind(value, _RESHAPED)
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return np.asarray(value.const_value.numpy(), dtype=np.float32)


def _is_quantised(value: ir.Value) -> bool:
    """Whether all that read it are QuantizeLinear, perhaps behind a Relu, a Clip or another shape."""
    readers = [use.node for use in value.uses()]
    return bool(readers) and all(
        _is(each, "QuantizeLinear")
        or (not each.domain and each.op_type in _PASSED and each.inputs[0] is value and _is_quantised(each.outputs[0]))
        for each in readers
    )


def _is(node: ir.Node, op: str) -> bool:
    return node.op_type == op and not node.domain
