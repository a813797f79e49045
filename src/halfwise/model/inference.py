"""Gives every tensor a type: by ONNX's own inference, and by schema where that stops short."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import onnx
import onnx.defs
import onnx_ir as ir

from halfwise.core.child.black_box import Fatal, attached, guarded, native_call
from halfwise.core.formats import format_of_type
from halfwise.model.bodies import bodies_of, nodes_in
from halfwise.model.contrib.registered import lent_schemas
from halfwise.model.inference_trial import is_doubtful, survives, values_are_few
from halfwise.model.ops import DTYPE_ATTRIBUTES
from halfwise.model.shape_inference import infer_shapes

__all__ = ["has_schema", "infer_types"]

# What onnx_ir finds odd about a file it reports; what matters of that is said by halfwise itself.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())

_LIMIT_S, _LIMIT_S_PER_NODE = 5.0, 0.001  # of the CPU: a hundred times what is usual

_ONE_TYPE = {
    "tensor(int64)": ir.DataType.INT64,
    "tensor(int32)": ir.DataType.INT32,
    "tensor(bool)": ir.DataType.BOOL,
    "tensor(float)": ir.DataType.FLOAT,
    "tensor(string)": ir.DataType.STRING,
}


def infer_types(model: ir.Model) -> None:
    """Infer types and shapes in place.

    ONNX's inference stops at an operator without a schema, and what is behind it stays unknown: there the output of
    such an operator is taken to have the type of its first float input, and standard operators follow their schemas.
    """
    ends = (*model.graph.inputs, *model.graph.outputs)
    declared = [value.shape.copy() if value.shape is not None else None for value in ends]
    _forget_bodies(model)
    _infer(model)
    if _fill_gaps(model):
        _infer(model)
    for value, shape in zip(ends, declared, strict=True):
        if shape is not None:  # inference gives unknown dimensions names of its own
            value.shape = shape


def _forget_bodies(model: ir.Model) -> None:
    """An exporter may state a wrong rank of what a branch hands out, which ONNX Runtime runs and inference believes."""
    for node in nodes_in(model.graph):
        if node.op_type != "If" or node.domain:
            continue
        for branch in (attribute.as_graph() for attribute in node.attributes.values()):
            for value in branch.outputs:
                maker = value.producer()
                if maker is not None and maker.graph is branch and has_schema(maker):
                    value.shape = None


def has_schema(node: ir.Node) -> bool:
    return bool(onnx.defs.has(node.op_type, node.domain))


def _infer(model: ir.Model) -> None:
    if not attached() and is_doubtful(model) and not survives(model):
        return
    call = native_call("inferring types and shapes", _structure(model) if attached() else b"")
    limit = _LIMIT_S + _LIMIT_S_PER_NODE * sum(1 for _ in nodes_in(model.graph))
    for values in (True, False) if values_are_few(model) else (False,):
        with lent_schemas(model), suppress(Fatal), guarded(call, partial(str, values), cpu_seconds=limit):
            with suppress(Exception):  # where ONNX cannot go on, types stay as they are
                infer_shapes(model, follow_values=values)
            break
    for node in nodes_in(model.graph):
        for index, value in enumerate(node.outputs):
            if isinstance(value.type, ir.TensorType) and _is_sequence(node, index):
                value.type = ir.SequenceType(value.type)  # the pass tells the type of the elements only
            elif value.type is not None and _is_optional(node) and not isinstance(value.type, ir.OptionalType):
                given = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
                value.type = ir.OptionalType(given or value.type)  # as above


def _structure(model: ir.Model) -> bytes:
    return "\n".join(f"{node.op_type} {node.name}" for node in nodes_in(model.graph)).encode(errors="replace")


def _is_sequence(node: ir.Node, index: int) -> bool:
    """Whether an output can only be a sequence: by its schema, by what it is made of, or by what a body hands out."""
    if node.op_type in ("If", "Loop") and not node.domain:
        bodies = list(bodies_of(node))
        place = index + (node.op_type == "Loop")  # a loop's body hands its condition out first
        return any(isinstance(b.outputs[place].type, ir.SequenceType) for b in bodies if place < len(b.outputs))
    if not has_schema(node):
        return False
    schema = onnx.defs.get_schema(node.op_type, node.domain)
    if not schema.outputs:
        return False
    formal = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal), [formal])
    if all(text.startswith("seq(") for text in allowed):
        return True
    return any(
        value is not None
        and isinstance(value.type, ir.SequenceType)
        and schema.inputs[min(slot, len(schema.inputs) - 1)].type_str == formal
        for slot, value in enumerate(node.inputs)
    )


def _is_optional(node: ir.Node) -> bool:
    return node.op_type == "Optional" and not node.domain


def _fill_gaps(model: ir.Model) -> bool:
    filled = False
    for node in nodes_in(model.graph):
        for index, value in enumerate(node.outputs):
            if value.type is None and value.name:
                value.type = _by_schema(model, node, index) if has_schema(node) else _first_float(node)
                filled |= value.type is not None
    return filled


def _first_float(node: ir.Node) -> ir.TypeProtocol | None:
    return next((v.type for v in node.inputs if v is not None and format_of_type(v.dtype) is not None), None)


def _by_schema(model: ir.Model, node: ir.Node, index: int) -> ir.TypeProtocol | None:
    try:
        schema = onnx.defs.get_schema(
            node.op_type, node.version or model.opset_imports.get(node.domain, 1), node.domain
        )
    except onnx.defs.SchemaError:
        return None
    attribute = node.attributes.get(DTYPE_ATTRIBUTES.get(node.op_type, ""))
    if attribute is not None and attribute.type is ir.AttributeType.INT:
        return ir.TensorType(ir.DataType(attribute.as_int()))
    formal = schema.outputs[min(index, len(schema.outputs) - 1)].type_str if schema.outputs else ""
    for slot, value in enumerate(node.inputs):
        same = schema.inputs[min(slot, len(schema.inputs) - 1)].type_str == formal
        if same and value is not None and value.type is not None:
            return value.type
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal), [formal])
    only = _ONE_TYPE.get(allowed[0]) if len(allowed) == 1 else None
    return ir.TensorType(only) if only is not None else None
