"""Gates that read what they multiply, as in x * sigmoid(x) and x * (1 + tanh(f(x))): they may read it as it was."""

from __future__ import annotations

import onnx_ir as ir

from halfwise.repair.graph_edit import is_constant

__all__ = ["gate_arguments", "is_gate"]

_SATURATED = frozenset({"Sigmoid", "HardSigmoid", "Tanh", "Erf"})  # of what is infinite as of what is large
_BOUNDED = _SATURATED | {"Softmax", "Softsign"}  # no scale of their own
_STEPS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Neg", "Softplus", "Identity"})  # to what a gate reads


def is_gate(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and not node.domain and node.op_type in _BOUNDED


def gate_arguments(value: ir.Value) -> list[ir.Node]:
    """The gates that read a value, also through other steps, and these steps, where others read the value, too; none
    where the first step is a constant factor, which takes powers of two."""
    found = dict.fromkeys(_reached(value))
    while left := [node for node in found if not _is_argument(node, value, found)]:
        for node in left:
            del found[node]
    readers = {reader for reader, _ in value.uses()}
    entries = [node for node in found if node in readers]
    if not readers - found.keys() or (len(entries) == 1 and _is_factor(entries[0])):
        return []
    return [*found]


def _reached(value: ir.Value) -> list[ir.Node]:
    """Gates and steps that read nothing but the value, constants and one another."""
    found, waiting = list[ir.Node](), [value]
    for made in waiting:
        for node in dict.fromkeys(reader for reader, _ in made.uses()):
            if node.domain or node in found or node.op_type not in _STEPS | _SATURATED:
                continue
            if all(each is None or is_constant(each) or each in waiting for each in node.inputs):
                found.append(node)
                waiting += node.outputs if node.op_type in _STEPS else ()
    return found


def _is_argument(node: ir.Node, value: ir.Value, found: dict[ir.Node, None]) -> bool:
    """Whether all that it computes of the value is for gates."""
    read = [each for each in node.inputs if each is not None and each is not value and not is_constant(each)]
    if any(each.producer() not in found for each in read):
        return False
    readers = [reader for output in node.outputs for reader, _ in output.uses()]
    return node.op_type in _SATURATED or (bool(readers) and all(reader in found for reader in readers))


def _is_factor(node: ir.Node) -> bool:
    return node.op_type in ("Mul", "Div") and any(is_constant(each) for each in node.inputs)
