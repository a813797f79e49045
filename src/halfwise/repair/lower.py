"""Writes operators of ONNX Runtime's own in ONNX's operators, for what cannot read them or has no kernel of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import onnx
import onnx_ir as ir

from halfwise.model.bodies import graphs_in, nodes_in
from halfwise.model.contrib.decompose import decompose
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.contrib.writer import PlainSteps
from halfwise.model.model import Model
from halfwise.model.normal_form import normalise

__all__ = ["Lowered", "Steps", "finished", "inputs_of", "lowered", "steps_known"]


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
    steps = Steps(copy)
    written, left = [], []
    for node in list(nodes_in(copy.graph)):
        if not wanted(node):
            continue
        if steps.write(node):
            written.append(node.op_type)
        else:
            left.append(node.name or "")
    return Lowered(finished(model, copy), tuple(dict.fromkeys(written)), tuple(left))


def finished(model: Model, copy: ir.Model) -> Model:
    """The model with a graph in which nodes were written out."""
    if not any(node.domain == DOMAIN for node in nodes_in(copy.graph)):
        copy.opset_imports.pop(DOMAIN, None)
    normalise(copy)
    return replace(model, ir=copy)


def steps_known(node: ir.Node, opset: int) -> bool:
    """Whether the node can be written out as it is."""
    return decompose(PlainSteps(node, opset, str), inputs_of(node)) is not None


class Steps:
    """Puts steps in the place of nodes of one model. Equal constants are stored once: layers transform equally."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        graphs = (model.graph, *graphs_in(model.graph))
        made = (value.name or "" for node in nodes_in(model.graph) for value in node.outputs)
        given = (value.name or "" for graph in graphs for value in (*graph.inputs, *graph.initializers.values()))
        self._taken = {*made, *given}
        self._constants: dict[bytes, ir.Value] = {}

    def write(self, node: ir.Node) -> bool:
        """False, with nothing changed, where the steps are not known."""
        writer = self.writer(node)
        results = decompose(writer, inputs_of(node))
        return results is not None and self.put(writer, results)

    def writer(self, node: ir.Node) -> PlainSteps:
        return PlainSteps(node, self._model.opset_imports.get("", 1), lambda word: self._fresh(node, word))

    def hold(self, node: ir.Node, word: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A weight for the steps of a node."""
        name = self._fresh(node, word)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
        value.shape = ir.Shape(tensor.shape.numpy())
        self._model.graph.register_initializer(value)
        return value

    def put(self, writer: PlainSteps, results: Mapping[int, str], held: Sequence[ir.Value] = ()) -> bool:
        """What was written in the place of its node. `held`: weights that it reads."""
        node, graph = writer.node, writer.node.graph
        if not isinstance(graph, ir.Graph):
            return False
        values = {value.name or "": value for value in (*held, *node.inputs) if value is not None}
        for proto in writer.nodes:
            self._insert(proto, node, graph, values)
        given: set[ir.Value] = {values[name] for name in inputs_of(node) if name}
        for slot, old in enumerate(node.outputs):
            if not old.name:
                continue
            new = values[results[slot]]
            if new in given or new.is_graph_output() or new.is_initializer():  # it has a name of its own to keep
                name = self._fresh(node, "same")
                same = onnx.NodeProto(op_type="Identity", input=[results[slot]], output=[name])
                self._insert(same, node, graph, values)
                new = values[name]
            given.add(new)
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
            old.name, new.name = new.name, old.name
            new.type, new.shape = old.type, old.shape
        read = [value for value in node.inputs if value is not None]
        graph.remove(node, safe=True)
        for value in read:
            _forget(value)
        return True

    def _fresh(self, node: ir.Node, word: str) -> str:
        name, count = f"{node.name}/{word}", 1
        while name in self._taken:
            count += 1
            name = f"{node.name}/{word}_{count}"
        self._taken.add(name)
        return name

    def _insert(self, proto: onnx.NodeProto, anchor: ir.Node, graph: ir.Graph, values: dict[str, ir.Value]) -> None:
        if proto.op_type == "Constant":
            values[proto.output[0]] = self._constant(proto.attribute[0].t, proto.output[0])
            return
        inputs = [values[name] if name else None for name in proto.input]
        attributes = [ir.serde.deserialize_attribute(each) for each in proto.attribute]
        made = ir.Node("", proto.op_type, inputs, attributes, outputs=[ir.Value(name=name) for name in proto.output])
        made.name = proto.output[0]
        values.update((value.name or "", value) for value in made.outputs)
        graph.insert_before(anchor, made)

    def _constant(self, tensor: onnx.TensorProto, name: str) -> ir.Value:
        key = sha256(tensor.SerializeToString(deterministic=True)).digest()
        if key not in self._constants:
            held = ir.tensor(tensor, name=name)
            value = ir.Value(
                name=name, const_value=held, type=ir.TensorType(held.dtype), shape=ir.Shape(held.shape.numpy())
            )
            self._model.graph.register_initializer(value)
            self._constants[key] = value
        return self._constants[key]


def _forget(value: ir.Value) -> None:
    """A weight that nothing reads any more, and what led to it: neither is held for nothing."""
    maker, graph = value.producer(), value.graph
    if value.uses() or value.is_graph_output() or not isinstance(graph, ir.Graph):
        return
    if value.is_initializer() and not value.is_graph_input():
        del graph.initializers[value.name or ""]
    elif (
        maker is not None
        and maker.op_type == "Reshape"
        and all(each and each.is_initializer() for each in maker.inputs)
    ):
        read = [each for each in maker.inputs if each is not None]
        graph.remove(maker, safe=True)
        for each in read:
            _forget(each)


def inputs_of(node: ir.Node) -> list[str]:
    return [value.name or "" if value is not None else "" for value in node.inputs]
