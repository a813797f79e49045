"""Puts the bodies of a model's functions where they are called; what calls of calls make of a file is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common as passes

from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.wording import listed
from halfwise.model.bodies import nodes_in

__all__ = ["inline_functions"]

_Named = ir.Node | ir.Value


@dataclass(frozen=True)
class _Extent:
    """What a body is once all that it calls stands in it."""

    nodes: int = 0
    characters: int = 0
    levels: int = 0
    bodies: int = 0  # of branches and loops, in one another

    def __add__(self, other: _Extent) -> _Extent:
        levels, bodies = max(self.levels, other.levels), max(self.bodies, other.bodies)
        return _Extent(self.nodes + other.nodes, self.characters + other.characters, levels, bodies)


def inline_functions(model: ir.Model) -> None:
    """Do so in place, and leave no function. What nothing calls goes first: its calls would be put in place, too."""
    drop_unused = passes.RemoveUnusedFunctionsPass()  # type: ignore[no-untyped-call]
    drop_unused(model)
    _check_extent(model)
    _InlinePass()(model)
    drop_unused(model)


def _check_extent(model: ir.Model) -> None:
    """Each level of calls may double the one below."""
    functions = model.functions
    called = {
        name: sorted({node.op_identifier() for node in nodes_in(functions[name])} & functions.keys())
        for name in functions
    }
    try:
        order = list(TopologicalSorter(called).static_order())
    except CycleError as error:
        circle = [f"{domain}:{name}" for domain, name, _ in error.args[1][1:]]
        raise InputError(f"functions call one another in a circle ({listed(circle)}); export the model again") from None
    known: dict[Any, _Extent] = {}
    for name in order:
        known[name] = _extent(functions[name], known)
    whole = _extent(model.graph, known)
    for count, most, what in (
        (whole.nodes, limits.MOST_NODES, "nodes"),
        (whole.characters, limits.MOST_CHARACTERS, "characters of names"),
        (whole.levels, limits.DEEPEST_FUNCTIONS, "levels of calls"),
        (whole.bodies, limits.DEEPEST_BODIES, "bodies in one another"),
    ):
        if count > most:
            raise InputError(f"with its functions in place it has {count} {what}; models are read up to {most}")


def _extent(holder: ir.Function | ir.Graph, known: dict[Any, _Extent]) -> _Extent:
    total = _Extent()
    for node in holder:
        total += _Extent(1, len(node.name or "") + sum(len(value.name or "") for value in node.outputs))
        if (inside := known.get(node.op_identifier())) is not None:
            total += replace(inside, nodes=inside.nodes - 1, levels=inside.levels + 1)
        for body in (graph for attribute in node.attributes.values() for graph in _graphs(attribute)):
            held = _extent(body, known)
            total += replace(held, bodies=held.bodies + 1)
    return total


class _InlinePass(passes.InlinePass):
    """The library's, which asks for each name of a call whether any call before has it: here they are counted."""

    _numbers: dict[tuple[type, str], int]

    def _reset(self, model: ir.Model) -> None:
        super()._reset(model)
        self._numbers = {}

    def _instantiate_call(self, node: ir.Node, call_site_id: str) -> Any:
        called = self._functions[node.op_identifier()]
        for kind, given, taken in (("inputs", node.inputs, called.inputs), ("outputs", node.outputs, called.outputs)):
            if len(given) > len(taken):
                whose = f"the function {called.domain}:{called.name} has {len(taken)} {kind}"
                raise InputError(f"{whose}, and node {node.name!r} {len(given)}; export the model again")
        names = [(named, named.name) for named in _named(called)]
        for named, name in names:
            named.name = self._free(named, name or ("node" if isinstance(named, ir.Node) else "val"))
        try:
            return super()._instantiate_call(node, call_site_id)
        finally:
            for named, name in names:
                named.name = name

    def _free(self, named: _Named, name: str) -> str:
        """The name that the library would find."""
        used = self._used_node_names if isinstance(named, ir.Node) else self._used_value_names
        number = self._numbers.get((type(named), name), 1)
        while (free := name if number == 1 else f"{name}_{number}") in used:
            number += 1
        self._numbers[type(named), name] = number + 1
        return free


def _named(nodes: ir.Function | ir.Graph) -> Iterator[_Named]:
    """In the order in which the library names them."""
    for node in nodes:
        for attribute in node.attributes.values():
            for graph in _graphs(attribute):
                yield from _named(graph)
        yield node
        yield from node.outputs


def _graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    if attribute.is_ref():
        return ()
    if attribute.type == ir.AttributeType.GRAPH:
        return (attribute.as_graph(),)
    return attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()
