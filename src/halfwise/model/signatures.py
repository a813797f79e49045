"""Refuses nodes that no runtime takes, so that every later reader finds the operands and attributes of the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx.defs
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.model.bodies import nodes_in

__all__ = ["check_references", "check_signatures"]

_KINDS = {
    "INT": "a whole number", "INTS": "a list of whole numbers", "FLOAT": "a number", "FLOATS": "a list of numbers",
    "STRING": "a text", "STRINGS": "a list of texts", "TENSOR": "a tensor", "TENSORS": "a list of tensors",
    "GRAPH": "a graph", "GRAPHS": "a list of graphs", "TYPE_PROTO": "a type", "SPARSE_TENSOR": "a sparse tensor",
}  # fmt: skip
_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single
_TERM = r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_EQUATION = re.compile(f"{_TERM}(?:,{_TERM})*(?:->{_TERM})?")  # native shape inference never ends on some others


@dataclass(frozen=True)
class _Signature:
    """What an operator takes and gives in one opset."""

    inputs: tuple[int, int]  # at least, at most
    outputs: tuple[int, int]
    needed: frozenset[int]  # slots that cannot be left out
    attributes: Mapping[str, str]  # types by name


def check_references(model: ir.Model) -> None:
    """Only a node of a function may take an attribute from the function's caller."""
    for node in nodes_in(model.graph):
        for name, attribute in node.attributes.items():
            if attribute.is_ref():
                raise InputError(
                    f"node {node.name!r} takes its attribute {name!r} from the caller of a function, and is in none; "
                    "export the model again"
                )


def check_signatures(model: ir.Model) -> None:
    """Of every standard operator. Functions are inlined before: only then is it known what their nodes have."""
    for node in nodes_in(model.graph):
        if node.domain:
            continue
        known = _signature(node.op_type, node.version or model.opset_imports.get("", 1))
        if known is not None and (wrong := _wrong(node, known)):
            raise InputError(f"node {node.name!r} ({node.op_type}) {wrong}; export the model again")


def _wrong(node: ir.Node, known: _Signature) -> str:
    for kind, held, (least, most) in (
        ("inputs", node.inputs, known.inputs), ("outputs", node.outputs, known.outputs),
    ):  # fmt: skip
        if not least <= len(held) <= most:
            return f"has {len(held)} {kind}, and the operator {_between(least, most)}"
    if lost := _lost(node.inputs, known.needed):
        return f"lacks its input {lost}"
    for name, attribute in node.attributes.items():
        if name.startswith("__"):  # which runtimes keep for themselves
            continue
        if name not in known.attributes:
            return f"has an attribute {name!r}, which the operator does not have in this opset"
        if known.attributes[name] != attribute.type.name:
            is_, wanted = (_KINDS.get(kind, kind) for kind in (attribute.type.name, known.attributes[name]))
            return f"has {is_} as its attribute {name!r}, which has to be {wanted}"
    if node.op_type == "Einsum" and not _EQUATION.fullmatch(told := node.attributes.get_string("equation", "")):
        return f"has the equation {told[:100]!r}, which has to be such as 'ij,jk->ik'"
    return ""


def _between(least: int, most: int) -> str:
    return (
        f"has {least}" if least == most else f"takes {least} to {most}" if most < 1 << 30 else f"takes {least} or more"
    )


def _lost(inputs: Sequence[ir.Value | None], needed: frozenset[int]) -> int | None:
    """The number of the first input that has to be there and is not."""
    return next((slot + 1 for slot, value in enumerate(inputs) if value is None and slot in needed), None)


@lru_cache(maxsize=4096)
def _signature(op: str, opset: int) -> _Signature | None:
    """None where no schema tells."""
    if not onnx.defs.has(op):
        return None
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:  # newer than the model's opset
        schema = onnx.defs.get_schema(op)
    return _Signature(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        frozenset(slot for slot, formal in enumerate(schema.inputs) if formal.option == _SINGLE),
        {name: attribute.type.name for name, attribute in schema.attributes.items()},  # type: ignore[attr-defined]
    )
