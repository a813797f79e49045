"""Norms in small operators of which ONNX Runtime makes one kernel, also where FP32 and FP16 mix in them.

It takes Casts in a norm for what mixed training leaves there and drops them: the fused kernel computes in FP32 whatever
its nodes were to be. From where in the norm a Cast may stand follows that three parts each have to be of one format.
What is left is the type of the tensor that enters and that of the scale: LayerNormalization wants them to be the same,
and from opset 17 on ONNX Runtime fuses before it looks, so that it refuses to load a model in which they are not. And
the epsilon has to be more than 0: one of 1e-12, which FP16 does not hold, leaves a LayerNorm in pieces. An RMSNorm's
epsilon is not read where it is in FP16; the kernel takes 1e-5 instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format, round_to
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment

__all__ = ["UNREAD_EPSILON", "Norm", "Outcome", "drops_cast", "norms_of", "outcome", "reads_epsilon"]

UNREAD_EPSILON = 1e-5  # what an RMSNorm has instead of an epsilon in FP16

_CHECKED_TOO_LATE = 17  # the opset from which on a LayerNorm is fused before its types are looked at


class Outcome(Enum):
    """What ONNX Runtime makes of a norm under an assignment."""

    FUSED = "one kernel"
    PIECES = "its nodes, one by one"
    REFUSED = "an error: the model does not load"


@dataclass(frozen=True, eq=False)
class Norm:
    """A LayerNorm or RMSNorm over the last axis. Each part has to be in one format for it to become one kernel."""

    kind: str
    data: ir.Value
    head: tuple[ir.Node, ...]  # mean and difference; empty for an RMSNorm
    body: tuple[ir.Node, ...]  # from the square to the quotient
    tail: tuple[ir.Node, ...]  # scale and bias
    guarded: ir.Node  # of the body: adds the epsilon
    epsilon: float

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        return (*self.head, *self.body, *self.tail)

    @property
    def parts(self) -> tuple[tuple[ir.Node, ...], ...]:
        return tuple(part for part in (self.head, self.body, self.tail) if part)

    @property
    def last(self) -> ir.Node:
        return self.tail[-1]

    @property
    def core(self) -> Norm | None:
        """The RMSNorm within a LayerNorm, of which one kernel is made where the whole stays in pieces."""
        difference = self.head[-1].outputs[0] if self.head else None
        if difference is None:
            return None
        return Norm("rms-norm", difference, (), self.body, self.tail[:1], self.guarded, self.epsilon)


def outcome(norm: Norm, assignment: Assignment) -> Outcome:
    formats = [{assignment.of(node) for node in part} for part in norm.parts]
    if any(len(found) > 1 for found in formats):
        return Outcome.PIECES
    if (
        reads_epsilon(norm, assignment)
        and not round_to(np.array(norm.epsilon, np.float32), assignment.of(norm.guarded)) > 0
    ):
        return Outcome.PIECES
    late = norm.kind == "layer-norm" and assignment.sites.model.opset() >= _CHECKED_TOO_LATE
    if late and _entering(norm, assignment) is not assignment.of(norm.last):
        return Outcome.REFUSED
    return Outcome.FUSED


def reads_epsilon(norm: Norm, assignment: Assignment) -> bool:
    return norm.kind == "layer-norm" or assignment.of(norm.guarded) is Format.FP32


def drops_cast(norm: Norm, assignment: Assignment) -> bool:
    """Whether a Cast in front of the norm, of which it alone reads, goes into the kernel."""
    data, graph = norm.data, assignment.sites.model.graph
    read = _read(norm, assignment)
    if read is assignment.stored(data) or data.is_initializer():
        return False
    readers = [user for user, slot in data.uses() if assignment.read(user, slot) is read]
    return len(readers) == 2 and not (data in graph.outputs and assignment.outward(data, graph) is read)


def _entering(norm: Norm, assignment: Assignment) -> Format | None:
    """The format of what enters the kernel."""
    return assignment.stored(norm.data) if drops_cast(norm, assignment) else _read(norm, assignment)


def _read(norm: Norm, assignment: Assignment) -> Format | None:
    reader = norm.parts[0][0]
    return assignment.read(reader, list(reader.inputs).index(norm.data))


_KNOWN: WeakKeyDictionary[ir.Graph, tuple[Norm, ...]] = WeakKeyDictionary()


def norms_of(model: Model) -> tuple[Norm, ...]:
    """The norms that become one kernel where all of them is in one format."""
    if model.graph not in _KNOWN:
        outputs = set(model.graph.outputs)
        _KNOWN[model.graph] = tuple(norm for norm in _found(model.nodes) if _is_closed(norm, outputs))
    return _KNOWN[model.graph]


def _found(nodes: tuple[ir.Node, ...]) -> Iterator[Norm]:
    for root in nodes:
        if root.op_type != "Sqrt" or root.domain:
            continue
        guarded = _maker(root.inputs[0], "Add")
        means = [] if guarded is None else [_maker(value, "ReduceMean") for value in guarded.inputs]
        mean = next((each for each in means if each is not None), None)
        square = None if mean is None else _maker(mean.inputs[0], "Pow")
        if guarded is None or mean is None or square is None or not _last_axis(mean):
            continue
        epsilon = next((number for value in guarded.inputs if (number := _number(value)) is not None), None)
        if epsilon is None or _number(square.inputs[1]) != 2.0:
            continue
        base = square.inputs[0]
        quotient = None if base is None else _quotient(root, base)
        if base is None or quotient is None:
            continue
        body = (square, mean, guarded, root, *quotient)
        centre = _maker(base, "Sub")
        middle = None if centre is None else _maker(centre.inputs[1], "ReduceMean")
        scaled = _only_user(quotient[-1], "Mul")
        if scaled is None or _row(scaled, quotient[-1]) is None:
            continue
        shifted = _only_user(scaled, "Add")
        if centre is None or middle is None or middle.inputs[0] is not centre.inputs[0] or not _last_axis(middle):
            yield Norm("rms-norm", base, (), body, (scaled,), guarded, epsilon)
        elif shifted is not None and _row(shifted, scaled) == _row(scaled, quotient[-1]):
            data = centre.inputs[0]
            assert data is not None
            yield Norm("layer-norm", data, (middle, centre), body, (scaled, shifted), guarded, epsilon)


def _quotient(root: ir.Node, base: ir.Value) -> tuple[ir.Node, ...] | None:
    """What is divided by the root: in one node, or by its inverse in two."""
    divided = _only_user(root, "Div")
    if divided is None or divided.inputs[1] is not root.outputs[0]:
        return None
    if divided.inputs[0] is base:
        return (divided,)
    product = _only_user(divided, "Mul") if _number(divided.inputs[0]) == 1.0 else None
    return (divided, product) if product is not None and base in product.inputs else None


def _is_closed(norm: Norm, outputs: set[ir.Value]) -> bool:
    """Whether nothing outside reads what happens inside."""
    members = set(norm.nodes)
    inside = [value for node in norm.nodes if node is not norm.last for value in node.outputs]
    return not any(value in outputs or any(user not in members for user, _ in value.uses()) for value in inside)


def _maker(value: ir.Value | None, op: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op and not node.domain else None


def _only_user(node: ir.Node, op: str) -> ir.Node | None:
    users = {user for user, _ in node.outputs[0].uses()}
    user = next(iter(users)) if len(users) == 1 else None
    return user if user is not None and user.op_type == op and not user.domain else None


def _row(node: ir.Node, beside: ir.Node) -> object:
    """The size of the vector that is the other operand of a node; None where that is no vector."""
    other = next((value for value in node.inputs if value is not beside.outputs[0]), None)
    return None if other is None or other.shape is None or len(other.shape) != 1 else other.shape[0]


def _number(value: ir.Value | None) -> float | None:
    """The one number that a value holds; None where it is no constant or more than one."""
    if value is None:
        return None
    maker = _maker(value, "Constant")
    given = maker.attributes.get("value") if maker is not None else None
    tensor = value.const_value if given is None else given.as_tensor()
    return float(np.asarray(tensor.numpy()).reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None


def _last_axis(node: ir.Node) -> bool:
    value, axes = node.inputs[0], node.attributes.get("axes")
    found = list(axes.as_ints()) if axes is not None else None
    if found is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        tensor = node.inputs[1].const_value
        found = None if tensor is None else [int(axis) for axis in np.asarray(tensor.numpy()).reshape(-1)]
    rank = None if value is None or value.shape is None else len(value.shape)
    return found is not None and (found == [-1] or (rank is not None and found == [rank - 1]))
