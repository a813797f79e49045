"""Probes of a model's own convolutions, products and means at its own sizes, by which libraries choose kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from halfwise.emulation.probes.form import Draw, Form, exact
from halfwise.emulation.profiles.shape_class import CHOSEN_BY_SIZE
from halfwise.emulation.timing.operation import Attribute, Operand, Operation

__all__ = ["own_forms"]


def own_forms(operations: Iterable[Operation]) -> Iterator[Form]:
    """Each size once."""
    known: set[str] = set()
    for each in operations:
        if each.op in CHOSEN_BY_SIZE and not each.domain and each.key not in known and _plain(each):
            known.add(each.key)
            yield _form(each)


def _plain(operation: Operation) -> bool:
    return all(operand is not None and operand.kind == "float" and operand.size for operand in operation.inputs)


def _form(operation: Operation) -> Form:
    terms = _terms(operation)
    inputs = tuple(_draw(operand, terms, slot) for slot, operand in enumerate(operation.inputs) if operand is not None)
    attributes = {name: _value(value) for name, value in operation.attributes.items()}
    return Form(f"own {operation.key}", operation.op, inputs, attributes, terms, opset=operation.opset)


def _draw(operand: Operand, terms: int, slot: int) -> Draw:
    return exact(*operand.shape, terms=terms, constant=operand.fixed and slot > 0)


def _terms(operation: Operation) -> int:
    shapes = [operand.shape for operand in operation.inputs if operand is not None]
    if operation.op == "GlobalAveragePool":
        return math.prod(shapes[0][2:])
    if operation.op == "AveragePool":
        kernel = operation.attributes["kernel_shape"]
        return math.prod(int(each) for each in kernel) if isinstance(kernel, tuple) else 1
    if operation.op == "Conv":
        return math.prod(shapes[1][1:])
    if operation.op == "ConvTranspose":
        group = operation.attributes.get("group", 1)
        return shapes[1][0] * math.prod(shapes[1][2:]) // (group if isinstance(group, int) else 1)
    return shapes[0][-2 if operation.attributes.get("transA", 0) else -1]


def _value(value: Attribute) -> Any:
    return [int(each) for each in value] if isinstance(value, tuple) else value
