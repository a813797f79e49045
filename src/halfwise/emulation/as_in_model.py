"""What the runtime says of a node that runs by itself, in the words of the model that it is from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx_ir as ir

from halfwise.core.errors import InputError

__all__ = ["as_in_model"]


@contextmanager
def as_in_model(node: ir.Node, names: Mapping[str, ir.Value]) -> Iterator[None]:
    """What the runtime refuses is told with the node, and with the tensors' own names."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, names[name].name or "")
        for own in (f"node {node.name!r} ({node.op_type}): ", f"a node without a name ({node.op_type}): "):
            text = text.replace(own, "")  # the node stands in front
        raise InputError(f"node {node.name!r} by itself: {text}") from error
