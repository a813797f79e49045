"""Refuses a model that no runtime can run before it is read: thousands of calls of a function may be no operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx
import onnx.defs
import onnx_ir as ir
from onnx import helper

from halfwise.core.errors import InputError
from halfwise.core.put_off import Later
from halfwise.model.contrib.schemas import knows
from halfwise.model.held_graphs import held_graphs, nodes_within
from halfwise.model.protobuf_fixups import FOREIGN, in_foreign_domain

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")

__all__ = ["CUT", "check_operators", "not_run", "quantises"]

CUT = (
    "give the part of the model in front of it (onnx.utils.extract_model with check_model=False), or look at it with "
    "`halfwise scan`"
)
_QUANTISED = "give the model before it was quantised, or look at it with `halfwise scan`"
_PLUGINS = "_TRT"  # how names of TensorRT's plugins end; ONNX Runtime knows some, and hands them to TensorRT only

# Types that ONNX's operators read and ONNX Runtime's CPU provider may not, and the first opset that has them.
_RARE: dict[int, int] = {onnx.TensorProto.FLOAT4E2M1: 23, onnx.TensorProto.FLOAT8E8M0: 24}
_READERS = frozenset({"Cast", "DequantizeLinear"})


def not_run(nodes: Iterable[ir.Node]) -> Sequence[ir.Node]:
    """The nodes that ONNX Runtime does not run by itself, so that nothing but `scan` works."""
    return [
        node for node in nodes if _is_plugin(node) or not _is_operator(node.op_type, node.domain) or not _is_read(node)
    ]


def quantises(op: str) -> bool:
    """Whether it quantises or dequantises: such nodes are all along a model, and no part of it is of use."""
    return "quantize" in op.lower()


def _is_read(node: ir.Node) -> bool:
    kind = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    return kind is None or bool(node.domain) or _reads(node.op_type, kind.value)


@cache
def _reads(op: str, kind: int) -> bool:
    """Whether the CPU provider, as it is installed, has a kernel of the operator for values of the type."""
    if kind not in _RARE or op not in _READERS:
        return True
    stated: dict[str, Any] = {"to": onnx.TensorProto.FLOAT} if op == "Cast" else {}
    given = [helper.make_tensor_value_info("x", kind, [2])]
    given += [] if op == "Cast" else [helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [])]
    node = helper.make_node(op, [each.name for each in given], ["y"], **stated)
    graph = helper.make_graph([node], "one", given, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])])
    opsets = [helper.make_opsetid("", _RARE[kind])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # of a class of its own for each reason
        return False
    return True


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
                told = f"{label}: {_named(node)}: ONNX Runtime has no operator {operator}"
                foreign = node.domain == FOREIGN and quantises(node.op_type)  # FP4, MXFP8
                raise InputError(f"{told}; {_QUANTISED if foreign else CUT}")
    for graph in (proto.graph, *proto.functions):
        if (found := _first_unread(graph, {})) is not None:
            node, kind = found
            raise InputError(
                f"{label}: {_named(node)}: ONNX Runtime's CPU provider has no kernel of {node.op_type} for "
                f"{onnx.TensorProto.DataType.Name(kind)}; {_QUANTISED}"
            )


def _first_unread(
    graph: onnx.GraphProto | onnx.FunctionProto, outer: Mapping[str, int]
) -> tuple[onnx.NodeProto, int] | None:
    """The first node that reads a constant of a type without a kernel, with that type; also in a body, which sees the
    constants outside it."""
    types = dict(outer)
    if isinstance(graph, onnx.GraphProto):
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            types |= {name: each.t.data_type for name in node.output for each in node.attribute if each.HasField("t")}
        kind = types.get(node.input[0]) if node.input else None
        if kind is not None and (not node.domain or in_foreign_domain(node)) and not _reads(node.op_type, kind):
            return node, kind
        for held in held_graphs(node):
            if (found := _first_unread(held, types)) is not None:
                return found
    return None


def _named(node: onnx.NodeProto) -> str:
    return f"node {node.name!r}" if node.name else "a node"
