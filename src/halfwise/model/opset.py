"""Raises a model's opset where every operator in it means the same before and after, or can be respelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import onnx.defs
import onnx_ir as ir

from halfwise.model.bodies import nodes_in
from halfwise.model.contrib.schemas import DOMAIN, IN_DEFAULT_DOMAIN
from halfwise.model.families import QUANTISERS, REDUCTIONS
from halfwise.model.ops import NARROW_SCALES

__all__ = ["OLDEST_OPSET", "allow_narrow_scales", "can_raise", "raise_function", "raise_opset"]

OLDEST_OPSET = 7  # that is understood; models before it are raised to it

# From which IR version on an opset is known; checkers refuse an older one.
_IR_VERSIONS = ((23, 11), (21, 10), (19, 9), (15, 8), (0, 7))

_ALL_STEPS = 21  # the first opset whose quantisers have 4 and 16 bits

_FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})

# The same signature, another meaning.
_CHANGED = {("RoiAlign", 16)}


def can_raise(model: ir.Model, version: int) -> bool:
    """Whether the whole model can be said in opset `version`."""
    now = model.opset_imports.get("", 1)
    return now >= version or all(_step(node, now, version) is not None for node in _standard(model))


def raise_opset(model: ir.Model, version: int) -> bool:
    """Do so in place; False, with nothing changed, where it cannot be done."""
    now = model.opset_imports.get("", 1)
    if now >= version:
        return True
    if not _respelled(_standard(model), now, version):
        return False
    model.opset_imports[""] = version
    model.ir_version = max(model.ir_version, next(ir_version for opset, ir_version in _IR_VERSIONS if version >= opset))
    return True


def raise_function(function: ir.Function, version: int) -> bool:
    """The same of a function of the model."""
    now = function.opset_imports.get("", 1)
    if now > version or not _respelled((node for node in nodes_in(function) if not node.domain), now, version):
        return False
    function.opset_imports[""] = version
    for value in list(function.graph.initializers.values()):  # a function has no place for them
        constant = ir.node("Constant", [], {"value": value.const_value})
        function.graph.insert_before(function.graph[0], constant)
        ir.convenience.replace_all_uses_with(value, constant.outputs[0])
        del function.graph.initializers[value.name or ""]
    return True


def allow_narrow_scales(model: ir.Model) -> None:
    """Say a quantised model in the opset in which its scales may be narrow, where that can be done.

    ONNX Runtime's own quantisers, of 4 and 16 bits in older opsets, have ONNX's attributes and meaning.
    """
    own = [node for node in nodes_in(model.graph) if node.op_type in QUANTISERS and node.domain == DOMAIN]
    if own and all(_has_schema_of_onnx(node) for node in own) and raise_opset(model, _ALL_STEPS):
        for node in own:
            node.domain, node.version = "", None
    elif any(node.op_type in QUANTISERS for node in _standard(model)):
        raise_opset(model, NARROW_SCALES)


def _has_schema_of_onnx(node: ir.Node) -> bool:
    schema = onnx.defs.get_schema(node.op_type, _ALL_STEPS)
    return set(node.attributes) <= set(schema.attributes) and len(node.inputs) <= len(schema.inputs)


def _respelled(nodes: Iterable[ir.Node], now: int, version: int) -> bool:
    """Respell them all, or none where one cannot be."""
    steps = [_step(node, now, version) for node in nodes]
    if None in steps:
        return False
    for step in steps:
        if step is not None:
            step()
    return True


def _standard(model: ir.Model) -> Iterator[ir.Node]:
    return (node for node in nodes_in(model.graph) if not node.domain)


def _step(node: ir.Node, now: int, version: int) -> Callable[[], None] | None:
    """What respells a node; None where nothing does."""
    if node.op_type in REDUCTIONS:
        return _axes_to_input(node, now, version, first=13 if node.op_type == "ReduceSum" else 18)
    if node.op_type in ("Squeeze", "Unsqueeze"):
        return _axes_to_input(node, now, version, first=13)
    if node.op_type == "Split":
        return _split(node, now, version)
    if node.op_type in _FLATTENING and now < 13 <= version:
        return _last_axis(node)
    if node.op_type in IN_DEFAULT_DOMAIN:
        return _nothing
    if node.op_type == "Dropout" and now < 12 <= version:
        return lambda: _drop(node, "ratio")  # nothing is dropped at inference
    return _nothing if _same_meaning(node, now, version) else None


def _nothing() -> None:
    return None


def _same_meaning(node: ir.Node, now: int, version: int) -> bool:
    try:
        schemas = _schemas(node.op_type, now, version)
    except onnx.defs.SchemaError:
        return False
    return all(
        not later.deprecated
        and (node.op_type, later.since_version) not in _CHANGED
        and _only_extends(node, earlier, later)
        for earlier, later in pairwise(schemas)
    )


def _schemas(op: str, now: int, version: int) -> Sequence[onnx.defs.OpSchema]:
    """The definitions of an operator from one opset to another, each once."""
    found = {schema.since_version: schema for schema in (onnx.defs.get_schema(op, v) for v in range(now, version + 1))}
    return [found[since] for since in sorted(found)]


def _only_extends(node: ir.Node, earlier: onnx.defs.OpSchema, later: onnx.defs.OpSchema) -> bool:
    """The later definition takes all that this node says, in the same order and with the same defaults."""
    before, after = [i.option for i in earlier.inputs], [i.option for i in later.inputs]
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    if len(after) < len(before) or any(new not in (old, optional) for old, new in zip(before, after, strict=False)):
        return False
    if any(option is not optional for option in after[len(before) :]):
        return False
    present = sum(1 for value in node.outputs if value.name)
    if present > 1 and [o.name for o in earlier.outputs] != [o.name for o in later.outputs]:
        return False
    for name, attribute in earlier.attributes.items():
        given = name in node.attributes
        same = later.attributes.get(name)
        if same is None and given:
            return False
        if same is not None and not given and str(same.default_value) != str(attribute.default_value):
            return False
        if same is not None and same.type != attribute.type:
            return False
    return not any(a.required for name, a in later.attributes.items() if name not in node.attributes)


def _axes_to_input(node: ir.Node, now: int, version: int, first: int) -> Callable[[], None] | None:
    axes = node.attributes.get("axes")
    if axes is None or not now < first <= version:
        return _nothing
    return lambda: _attribute_to_input(node, "axes", 1)


def _split(node: ir.Node, now: int, version: int) -> Callable[[], None] | None:
    split = node.attributes.get("split")
    if split is not None and now < 13 <= version:
        return lambda: _attribute_to_input(node, "split", 1)
    if now < 18 <= version and split is None and (len(node.inputs) < 2 or node.inputs[1] is None):
        return lambda: node.attributes.add(ir.AttrInt64("num_outputs", len(node.outputs)))
    return _nothing


def _last_axis(node: ir.Node) -> Callable[[], None]:
    """Before opset 13 a softmax flattened its input from `axis` on; along the last axis that is no difference."""
    value = node.inputs[0] if node.inputs else None
    rank = len(value.shape) if value is not None and value.shape is not None else None
    axis = node.attributes.get_int("axis", 1)
    if axis == -1 or (rank and axis is not None and axis % rank == rank - 1):
        return lambda: node.attributes.add(ir.AttrInt64("axis", -1))
    return lambda: _flatten(node, 1 if axis is None else axis)


def _flatten(node: ir.Node, axis: int) -> None:
    """The same along the last axis of what is flattened from `axis` on, in its own shape again."""
    given, made, graph = node.inputs[0], node.outputs[0], node.graph
    assert given is not None and isinstance(graph, ir.Graph)
    flat = ir.node("Flatten", [given], {"axis": axis}, name=f"{node.name}/flat")
    sizes = ir.node("Shape", [given], name=f"{node.name}/shape")
    back = ir.node("Reshape", [made, sizes.outputs[0]], name=f"{node.name}/back")
    ir.convenience.replace_all_uses_with(made, back.outputs[0], replace_graph_outputs=True)
    back.replace_input_with(0, made)
    kinds = (given.type, ir.TensorType(ir.DataType.INT64), made.type)
    names = (f"{node.name}/flat", f"{node.name}/shape", made.name)
    back.outputs[0].shape, made.shape = made.shape, None
    made.name = f"{node.name}/of_flat"
    for each, kind, name in zip((flat, sizes, back), kinds, names, strict=True):
        each.outputs[0].type, each.outputs[0].name = kind, name
    node.replace_input_with(0, flat.outputs[0])
    node.attributes.add(ir.AttrInt64("axis", -1))
    graph.insert_before(node, [flat, sizes])
    graph.insert_after(node, back)


def _attribute_to_input(node: ir.Node, attribute: str, slot: int) -> None:
    numbers = np.asarray(node.attributes[attribute].as_ints(), dtype=np.int64)
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    name = f"{node.name}/{attribute}"
    value = ir.Value(name=name, shape=ir.Shape(numbers.shape), type=ir.TensorType(ir.DataType.INT64))
    value.const_value = ir.tensor(numbers, name=name)
    graph.register_initializer(value)
    node.resize_inputs(max(slot + 1, len(node.inputs)))
    node.replace_input_with(slot, value)
    _drop(node, attribute)


def _drop(node: ir.Node, attribute: str) -> None:
    node.attributes.pop(attribute, None)
