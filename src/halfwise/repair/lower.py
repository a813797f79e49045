"""Writes operators of ONNX Runtime's own in ONNX's operators, for what cannot read them or has no kernel of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from halfwise.model.contrib.decompose import decompose
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.contrib.writer import PlainSteps
from halfwise.model.model import Model
from halfwise.model.normal_form import normalise

__all__ = ["Lowered", "lowered", "steps_known", "write_steps"]


@dataclass(frozen=True, eq=False)
class Lowered:
    """The model, the operators of the nodes that were written out, and the names of those that could not be."""

    model: Model
    written: tuple[str, ...]
    left: tuple[str, ...]


def lowered(model: Model, wanted: Callable[[ir.Node], bool]) -> Lowered:
    """Tensors keep their names; new nodes are named after the node that they stand for."""
    if not any(wanted(node) for node in model.nodes):
        return Lowered(model, (), ())
    copy = model.ir.clone()
    taken = set(model.value_names)
    written, left = [], []
    for node in list(copy.graph.all_nodes()):
        if not wanted(node):
            continue
        if write_steps(node, model.opset(), taken):
            written.append(node.op_type)
        else:
            left.append(node.name or "")
    if not any(node.domain == DOMAIN for node in copy.graph.all_nodes()):
        copy.opset_imports.pop(DOMAIN, None)
    normalise(copy)
    return Lowered(replace(model, ir=copy), tuple(dict.fromkeys(written)), tuple(left))


def steps_known(node: ir.Node, opset: int) -> bool:
    """Whether the node can be written out as it is."""
    return decompose(PlainSteps(node, opset, str), _inputs(node)) is not None


def write_steps(node: ir.Node, opset: int, taken: set[str]) -> bool:
    """Put the steps in the node's place; False, with nothing changed, where they are not known."""

    def fresh(word: str) -> str:
        name, count = f"{node.name}/{word}", 1
        while name in taken:
            count += 1
            name = f"{node.name}/{word}_{count}"
        taken.add(name)
        return name

    steps = PlainSteps(node, opset, fresh)
    results = decompose(steps, _inputs(node))
    graph = node.graph
    if results is None or not isinstance(graph, ir.Graph):
        return False
    values = {value.name or "": value for value in node.inputs if value is not None}
    for proto in steps.nodes:
        _insert(proto, node, graph, values)
    given: set[ir.Value] = {values[name] for name in (v.name or "" for v in node.inputs if v is not None)}
    for slot, old in enumerate(node.outputs):
        if not old.name:
            continue
        new = values[results[slot]]
        if new in given or new.is_graph_output():  # it has a name of its own to keep
            name = fresh("same")
            same = onnx.NodeProto(op_type="Identity", input=[results[slot]], output=[name])
            _insert(same, node, graph, values)
            new = values[name]
        given.add(new)
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        old.name, new.name = new.name, old.name
        new.type, new.shape = old.type, old.shape
    graph.remove(node, safe=True)
    return True


def _inputs(node: ir.Node) -> list[str]:
    return [value.name or "" if value is not None else "" for value in node.inputs]


def _insert(proto: onnx.NodeProto, anchor: ir.Node, graph: ir.Graph, values: dict[str, ir.Value]) -> None:
    inputs = [values[name] if name else None for name in proto.input]
    attributes = [ir.serde.deserialize_attribute(each) for each in proto.attribute]
    made = ir.Node("", proto.op_type, inputs, attributes, outputs=[ir.Value(name=name) for name in proto.output])
    made.name = proto.output[0]
    values.update((value.name or "", value) for value in made.outputs)
    graph.insert_before(anchor, made)
