"""What rules share when they rewrite a graph: new nodes, constants and names, and one value in place of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike, NDArray

from halfwise.model.bodies import graphs_in, nodes_in
from halfwise.model.data_hash import DataHash
from halfwise.model.model import Model
from halfwise.model.patterns.view import View

__all__ = ["GraphEdit", "is_constant", "node_named", "view_of", "whole"]


class GraphEdit:
    """Edits around one node. What is new is named after that node, and put where that node is."""

    def __init__(self, model: ir.Model, anchor: ir.Node, word: str) -> None:
        self._model = model
        self._anchor = anchor
        self._word = word
        self.made: list[ir.Node] = []  # by `op`
        names = _names_of(model)
        self._nodes, self._values = names.nodes, names.values

    def constant(self, array: ArrayLike, dtype: Any = np.float32) -> ir.Value:
        """A new initializer; those that are there may be shared and are never changed."""
        return self.weight(ir.tensor(np.asarray(array, dtype)))

    def weight(self, tensor: ir.TensorProtocol) -> ir.Value:
        """The same of a tensor, which other models may hold, too."""
        name = self._name(self._values)
        tensor.name = tensor.name or name
        value = ir.Value(name=name, const_value=tensor)
        value.dtype, value.shape = tensor.dtype, ir.Shape(tensor.shape.numpy())
        self._model.graph.register_initializer(value)
        return value

    def axes(self, axes: Sequence[int]) -> ir.Value:
        return self.constant(list(axes), np.int64)

    def op(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        after: bool = False,
        first: bool = False,
    ) -> ir.Value:
        """A new node in front of the anchor (or of all nodes; or behind it, which makes it the new anchor); its only
        output."""
        name = self._name(self._nodes)
        node = ir.node(op, inputs, attributes or {}, name=name)
        self._nodes[name] = node
        self.made.append(node)
        value: ir.Value = node.outputs[0]
        self._values[name] = None
        value.name = self._name(self._values)
        given = next((one for one in inputs if one is not None), None)
        value.type = given.type if given is not None else None
        graph = self._anchor.graph
        assert isinstance(graph, ir.Graph)
        if after:
            graph.insert_after(self._anchor, node)
            self._anchor = node
        elif first:
            graph.insert_before(graph[0], node)
        else:
            graph.insert_before(self._anchor, node)
        return value

    def replace(self, old: ir.Value, new: ir.Value, *, but: Sequence[ir.Node] = ()) -> None:
        """Let all that read `old` read `new`, except the nodes in `but`; the new value takes over the name."""
        kept = [(node, slot) for node in but for slot, value in enumerate(node.inputs) if value is old]
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        for node, slot in kept:
            node.replace_input_with(slot, old)
        old.name, new.name = new.name, old.name
        new.type, new.shape = old.type, old.shape

    def _name(self, taken: dict[str, Any]) -> str:
        wanted = stem = f"{self._anchor_name}/{self._word}"
        count = 0
        while wanted in taken:
            count += 1
            wanted = f"{stem}_{count}"
        taken[wanted] = None
        return wanted

    @property
    def _anchor_name(self) -> str:
        name = self._anchor.name or self._anchor.op_type
        return name.split(f"/{self._word}")[0]


def node_named(model: ir.Model, name: str) -> ir.Node | None:
    """The node of this name, in whatever graph."""
    node = _names_of(model).nodes.get(name)
    return node if node is not None and node.graph is not None and node.name == name else None


def is_constant(value: ir.Value | None) -> bool:
    """Whether it is an initializer; its elements are not read."""
    return value is not None and value.is_initializer() and value.const_value is not None


def whole(value: ir.Value | None) -> NDArray[Any] | None:
    """An initializer's elements."""
    if value is None or not value.is_initializer() or value.const_value is None:
        return None
    return np.asarray(value.const_value.numpy())


@dataclass(frozen=True)
class _Names:
    """The names taken in a model; those that edits give away stay taken."""

    nodes: dict[str, ir.Node | None]
    values: dict[str, None]


_known: WeakKeyDictionary[ir.Model, _Names] = WeakKeyDictionary()  # so that many repairs walk a large graph once


def _names_of(model: ir.Model) -> _Names:
    if model not in _known:
        nodes: dict[str, ir.Node | None] = {}
        for node in nodes_in(model.graph):
            nodes.setdefault(node.name or "", node)
        values: dict[str, None] = {}
        for graph in (model.graph, *graphs_in(model.graph)):
            values.update(dict.fromkeys(graph.initializers))
            values.update((value.name or "", None) for value in graph.inputs)
            values.update((value.name or "", None) for node in graph for value in node.outputs)
        _known[model] = _Names(nodes, values)
    return _known[model]


def view_of(model: ir.Model) -> View:
    """The patterns' view of a model that is being rewritten: good until the next edit."""
    return View(Model(None, model, "", 0, 0, (), DataHash(())))
