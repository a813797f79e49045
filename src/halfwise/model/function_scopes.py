"""Refuses a function that reads or hands out what is not in it: nothing around a function is in its sight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from halfwise.core.errors import InputError
from halfwise.model.held_graphs import held_graphs

__all__ = ["check_function_scopes"]


def check_function_scopes(proto: onnx.ModelProto) -> None:
    for function in proto.functions:
        whose = f"the function {function.domain}:{function.name}"
        known = {*function.input, *(name for node in function.node for name in node.output)}
        for name in function.output:
            if name not in known:
                raise InputError(f"{whose} hands out {name!r}, which nothing in it produces")
        for node, name in _strange(function.node, known):
            raise InputError(f"{whose}: node {node.name!r} reads {name!r}, which is not in the function")


def _strange(nodes: Iterable[onnx.NodeProto], known: set[str]) -> Iterator[tuple[onnx.NodeProto, str]]:
    """What nodes read that is in no scope, those of bodies included."""
    for node in nodes:
        yield from ((node, name) for name in node.input if name and name not in known)
        for body in held_graphs(node):
            own = {value.name for value in (*body.input, *body.initializer)}
            own.update(sparse.values.name for sparse in body.sparse_initializer)
            yield from _strange(body.node, known | own | {name for each in body.node for name in each.output})
