"""Whether nodes that a kernel's steps are written in exist in a model's opset, with the inputs and attributes given."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import onnx
import onnx.defs

from halfwise.model.held_graphs import nodes_within

__all__ = ["exist_in"]


def exist_in(nodes: Iterable[onnx.NodeProto], opset: int) -> bool:
    """Bodies included; operators of other domains are left to the runtime."""
    return all(
        (node.domain or _exists(node.op_type, opset, len(node.input), tuple(sorted(a.name for a in node.attribute))))
        for node in nodes_within(nodes)
    )


@lru_cache(maxsize=4096)
def _exists(op: str, opset: int, inputs: int, attributes: tuple[str, ...]) -> bool:
    try:
        schema = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return False
    return (
        not schema.deprecated
        and schema.min_input <= inputs <= schema.max_input
        and set(attributes) <= set(schema.attributes)
        and all(name in attributes for name, each in schema.attributes.items() if each.required)
    )
