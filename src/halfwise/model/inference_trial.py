"""Type inference is native code that a model can crash: what is unusual is tried in a child process first.

That is for callers of the Python functions; the command line runs in a process that may die.
"""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import NamedTemporaryFile

import onnx
import onnx.defs
import onnx_ir as ir

from halfwise.core.child.kept import ask
from halfwise.core.child.serve import Answer, Request
from halfwise.core.child.worker import ChildDied, ChildFailed
from halfwise.model.bodies import nodes_in
from halfwise.model.contrib.registered import lent_schemas
from halfwise.model.shape_inference import asked_of

__all__ = ["is_doubtful", "survives", "try_inference", "values_are_few"]

_LIMIT_S = 60.0
_USUAL = 1 << 20  # of integers in attributes, whatever they mean
_TO_THE_END = frozenset({(1 << 31) - 1, (1 << 63) - 1})  # as exporters write where a slice ends
_USUAL_OUTPUTS = 64
_USUAL_SIZE = 1 << 40
_MOST_VALUES = 1 << 22  # of a list: inference that follows values makes an object of each, 150 bytes


def is_doubtful(model: ir.Model) -> bool:
    """Whether something in a model is as no exporter writes it."""
    given = (*model.graph.inputs, *model.graph.initializers.values())
    return any(_unusual_value(value) for value in given) or any(_unusual(model, n) for n in nodes_in(model.graph))


def values_are_few(model: ir.Model) -> bool:
    """Whether inference can follow the values of lists, such as sizes and axes."""
    values = (*model.graph.inputs, *(value for node in nodes_in(model.graph) for value in node.outputs))
    lists = (value.shape[0] for value in values if value.shape is not None and len(value.shape) == 1)
    return all(not isinstance(size, int) or size <= _MOST_VALUES for size in lists)


def survives(model: ir.Model) -> bool:
    """Whether a process that infers the types of this model lives on."""
    with NamedTemporaryFile(prefix="halfwise-", suffix=".onnx") as file:
        file.write(asked_of(model).SerializeToString())
        file.flush()
        try:
            ask(f"{__name__}:try_inference", {"model": file.name}, time_limit_s=_LIMIT_S)
        except ChildDied:
            return False
        except ChildFailed:
            return True  # here, too, it will raise
    return True


def try_inference(request: Request) -> Answer:
    """In the child."""
    proto = onnx.load(request.data["model"])
    model = ir.from_proto(proto)
    with lent_schemas(model):
        follow = values_are_few(model)
        onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=follow)
    return Answer({})


def _unusual_value(value: ir.Value) -> bool:
    if value.const_value is None and value.type is None:
        return True
    sizes = value.shape.dims if value.shape is not None else ()
    return any(isinstance(size, int) and not 0 <= size < _USUAL_SIZE for size in sizes)


def _unusual(model: ir.Model, node: ir.Node) -> bool:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.INT and abs(attribute.as_int()) > _USUAL:
            return True
        if attribute.type is ir.AttributeType.INTS and _farthest(node, attribute) > _USUAL:
            return True
    stated = node.attributes.get("num_outputs")
    if len(node.outputs) > _USUAL_OUTPUTS or (stated is not None and stated.value != len(node.outputs)):
        return True
    try:
        schema = onnx.defs.get_schema(node.op_type, model.opset_imports.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return False  # nothing is inferred of it
    needed = (each for each in schema.attributes.values() if each.required)
    return (
        not schema.min_input <= len(node.inputs) <= schema.max_input
        or None in node.inputs[: schema.min_input]
        or not schema.min_output <= len(node.outputs) <= schema.max_output
        or any(each.name not in node.attributes for each in needed)
        or any(_of_another_type(schema, each) for each in node.attributes.values())
    )


def _farthest(node: ir.Node, attribute: ir.Attr) -> int:
    """The largest of its numbers, whatever its sign; where a slice ends may be told as the end of all. Trees have
    millions."""
    given: Sequence[int] = attribute.value
    if node.op_type == "Slice" and not node.domain and attribute.name == "ends":
        given = [each for each in given if each not in _TO_THE_END]
    return max(max(given), -min(given)) if given else 0


def _of_another_type(schema: onnx.defs.OpSchema, attribute: ir.Attr) -> bool:
    declared = schema.attributes.get(attribute.name)
    return declared is not None and str(declared.type).rpartition(".")[2] != attribute.type.name
