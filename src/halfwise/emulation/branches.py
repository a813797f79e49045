"""Which branch of an If is taken, and what the If makes of what was made there node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format

__all__ = ["branch_taken", "handed_out", "is_walked"]

Array = NDArray[Any]


class Live(Protocol):
    """The tensors of a run."""

    def read(self, value: ir.Value, fmt: Format | None) -> Array: ...

    def __contains__(self, value: ir.Value) -> bool: ...


def branch_taken(node: ir.Node, store: Live) -> ir.Graph | None:
    """Where its condition is known; None of what is no If."""
    condition = node.inputs[0] if node.op_type == "If" and not node.domain else None
    if condition is None or not _is_there(condition, store):
        return None
    chosen = bool(np.asarray(store.read(condition, None)).reshape(-1)[0])
    return node.attributes["then_branch" if chosen else "else_branch"].as_graph()


def is_walked(branch: ir.Graph | None, store: Live) -> bool:
    """Whether all that it hands out is there."""
    return branch is not None and all(_is_there(value, store) for value in branch.outputs)


def handed_out(
    node: ir.Node, branch: ir.Graph, store: Live, changed: Mapping[ir.Value, Array]
) -> dict[ir.Value, Array]:
    """What the If makes in FP32."""
    pairs = zip(node.outputs, branch.outputs, strict=True)
    return {made: changed[value] if value in changed else store.read(value, None) for made, value in pairs if made.name}


def _is_there(value: ir.Value, store: Live) -> bool:
    return value.is_initializer() or value in store
