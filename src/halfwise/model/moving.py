"""Operators that hand values on without computing new ones: what they do to them, and the ways past them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Flag, auto

import onnx_ir as ir

__all__ = ["FROM_FIRST", "MOVES", "Move", "behind", "beyond", "changes_nothing", "movers", "only_moves"]


class Move(Flag):
    """What becomes of the values of the first input."""

    SHAPE = auto()  # the same values in the same order, under another shape
    ORDER = auto()  # all values in another order
    REPEAT = auto()  # values once or more
    CUT = auto()  # the values of stretches
    LOOKUP = auto()  # the values at places that another input, or the values themselves, choose
    ZEROS = auto()  # some values, and zeros beside them
    JOIN = auto()  # values of several inputs
    SCATTER = auto()  # values of several inputs; with a `reduction` they are computed
    CAST = auto()  # the values in another type
    OWN = auto()  # values that it may bring in by itself


_OPERATORS = {
    Move.SHAPE: "Identity Reshape Squeeze Unsqueeze Flatten",
    Move.ORDER: "Transpose DepthToSpace SpaceToDepth ReverseSequence",
    Move.REPEAT: "Expand Tile",
    Move.CUT: "Slice Split",
    Move.LOOKUP: "Gather GatherElements GatherND Compress Unique",
    Move.ZEROS: "Trilu CenterCropPad",
    Move.JOIN: "Concat Where OneHot TensorScatter",
    Move.SCATTER: "Scatter ScatterElements ScatterND",
    Move.CAST: "Cast CastLike",
    Move.OWN: "Pad Dropout Constant ConstantOfShape EyeLike",
}


def movers(kinds: Move) -> frozenset[str]:
    """The operators of these kinds."""
    return frozenset(op for kind, ops in _OPERATORS.items() if kind in kinds for op in ops.split())


MOVES = movers(~Move(0))

# Every value that they give is one of their first input.
FROM_FIRST = movers(Move.SHAPE | Move.ORDER | Move.REPEAT | Move.CUT | Move.LOOKUP)


def only_moves(node: ir.Node) -> bool:
    """Whether a node computes nothing."""
    if node.domain or node.op_type not in MOVES:
        return False
    reduction = node.attributes.get("reduction")  # a scatter that adds computes
    return reduction is None or reduction.type is not ir.AttributeType.STRING or reduction.as_string() == "none"


def changes_nothing(node: ir.Node) -> bool:
    """Identity, Dropout at inference, and a Cast to the type that the value has already."""
    if node.domain or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        return len(node.inputs) < 3 or node.inputs[2] is None
    return node.op_type == "Cast" and node.inputs[0].dtype is not None and node.inputs[0].dtype == node.outputs[0].dtype


def behind(value: ir.Value | None, passed: Collection[str] = (), steps: int | None = None) -> ir.Value | None:
    """The value from which this one comes through operators of `passed`, at most `steps`, by their first inputs.

    What changes nothing is passed without being counted. None where an operator has no first input.
    """
    while value is not None:
        node = value.producer()
        if node is None:
            break
        if value.index() and node.op_type != "Split":  # a mask, or indices
            break
        if not changes_nothing(node):
            if node.domain or node.op_type not in passed or not node.inputs or steps == 0:
                break
            steps = None if steps is None else steps - 1
        value = node.inputs[0]
    return value


def beyond(value: ir.Value, passed: Collection[str], steps: int) -> Iterator[tuple[ir.Node, int]]:
    """Who reads a value, and in which slot, past operators of `passed` that read it in their first slot."""
    for node, slot in value.uses():
        free = changes_nothing(node)
        if slot == 0 and node.outputs and (free or (steps and not node.domain and node.op_type in passed)):
            for output in node.outputs if node.op_type == "Split" else node.outputs[:1]:
                yield from beyond(output, passed, steps if free else steps - 1)
        else:
            yield node, slot
