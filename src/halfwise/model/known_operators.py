"""Refuses a model that no runtime can run before it is read: thousands of calls of a function may be no operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx
import onnx.defs
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.model.contrib.schemas import knows
from halfwise.model.held_graphs import nodes_within
from halfwise.model.protobuf_fixups import FOREIGN, in_foreign_domain

__all__ = ["CUT", "check_operators", "not_run"]

CUT = (
    "give the part of the model in front of it (onnx.utils.extract_model with check_model=False), or look at it with "
    "`halfwise scan`"
)
_QUANTISED = "give the model before it was quantised, or look at it with `halfwise scan`"
_PLUGINS = "_TRT"  # how names of TensorRT's plugins end; ONNX Runtime knows some, and hands them to TensorRT only


def not_run(nodes: Iterable[ir.Node]) -> Sequence[ir.Node]:
    """The nodes that ONNX Runtime does not run by itself, so that nothing but `scan` works."""
    return [node for node in nodes if _is_plugin(node) or not _is_operator(node.op_type, node.domain)]


def _is_plugin(node: ir.Node) -> bool:
    return node.op_type.endswith(_PLUGINS) and not onnx.defs.has(node.op_type, node.domain)


def _is_operator(op: str, domain: str) -> bool:
    return onnx.defs.has(op, domain) or knows(op, domain)


def check_operators(proto: onnx.ModelProto, label: str) -> None:
    """Each operator is looked at once, those in functions where they are called."""
    functions = {(function.domain, function.name): function for function in proto.functions}
    seen: set[tuple[str, str]] = set()
    waiting: list[Iterable[onnx.NodeProto]] = [proto.graph.node]
    while waiting:
        for node in nodes_within(waiting.pop()):
            home = node.domain == "ai.onnx" or in_foreign_domain(node)
            key = ("" if home else node.domain, node.op_type)
            if key in seen:
                continue
            seen.add(key)
            if (function := functions.get((node.domain, node.op_type))) is not None:
                waiting.append(function.node)
            elif not _is_operator(node.op_type, key[0]):
                operator = node.op_type + (f" of {key[0]}" if key[0] else "")
                named = f"node {node.name!r}" if node.name else "a node"
                told = f"{label}: {named}: ONNX Runtime has no operator {operator}"
                quantises = node.domain == FOREIGN and "Quantize" in node.op_type  # FP4, MXFP8: all along the model
                raise InputError(f"{told}; {_QUANTISED if quantises else CUT}")
