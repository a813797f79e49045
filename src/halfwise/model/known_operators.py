"""Refuses a model that no runtime can run before it is read: thousands of calls of a function may be no operator."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx.defs

from halfwise.core.errors import InputError
from halfwise.model.contrib.schemas import knows
from halfwise.model.held_graphs import nodes_within

__all__ = ["check_operators"]


def check_operators(proto: onnx.ModelProto, label: str) -> None:
    """Each operator is looked at once, those in functions where they are called."""
    functions = {(function.domain, function.name): function for function in proto.functions}
    seen: set[tuple[str, str]] = set()
    waiting: list[Iterable[onnx.NodeProto]] = [proto.graph.node]
    while waiting:
        for node in nodes_within(waiting.pop()):
            key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
            if key in seen:
                continue
            seen.add(key)
            if (function := functions.get((node.domain, node.op_type))) is not None:
                waiting.append(function.node)
            elif not onnx.defs.has(node.op_type, key[0]) and not knows(node.op_type, key[0]):
                operator = node.op_type + (f" of {key[0]}" if key[0] else "")
                named = f"node {node.name!r}" if node.name else "a node"
                told = f"{label}: {named}: ONNX Runtime has no operator {operator}"
                raise InputError(f"{told}; `halfwise scan` looks at models without running them")
