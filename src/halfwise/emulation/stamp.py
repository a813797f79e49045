"""The versions a model is stamped with for ONNX Runtime, which trails the onnx package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

import onnx
import onnx.defs
from onnx import helper

from halfwise.model.held_graphs import nodes_within

__all__ = ["RUNTIME_IR_VERSION", "newest_opset", "runtime_opset", "stamped"]

# Versions whose text or attributes changed, but not what a node written for the version before means; a node that uses
# a new attribute is refused by the runtime itself.
_SAME_BUT_FOR_NEW_ATTRIBUTES = frozenset({("Range", 27), ("Mod", 28), ("BitShift", 28), ("SpaceToDepth", 28)})

# The file format that every supported runtime reads; nothing that halfwise runs needs a newer one.
RUNTIME_IR_VERSION = 10


@contextmanager
def stamped(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model with the newest versions this runtime takes, where that changes no operator; restored afterwards."""
    ir_version = proto.ir_version
    entry = next((e for e in proto.opset_import if e.domain in ("", "ai.onnx")), None)
    opset = entry.version if entry is not None else 0
    proto.ir_version = min(ir_version, RUNTIME_IR_VERSION)
    if entry is not None:
        entry.version = runtime_opset(proto, opset)
    try:
        yield proto
    finally:
        proto.ir_version = ir_version
        if entry is not None:
            entry.version = opset


def runtime_opset(proto: onnx.ModelProto, opset: int) -> int:
    """The newest opset of the runtime if every operator means there what it means in `opset`, else `opset`."""
    if opset <= onnx.defs.onnx_opset_version() and opset > newest_opset():
        used = {node.op_type for node in nodes_within(proto.graph.node) if node.domain in ("", "ai.onnx")}
        if all(_same_meaning(op, opset, newest_opset()) for op in used):
            return newest_opset()
    return opset


@cache
def newest_opset() -> int:
    """The newest opset of the default domain that the installed runtime accepts."""
    import onnxruntime as ort

    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", [value], [result])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # where no more can be started, that says nothing of an opset
    for opset in range(onnx.defs.onnx_opset_version(), 13, -1):
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=RUNTIME_IR_VERSION)
        try:
            ort.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception:
            continue
        return opset
    return 13


@lru_cache(maxsize=4096)
def _same_meaning(op: str, new: int, old: int) -> bool:
    """Whether a version of an operator did nothing but take more types."""
    try:
        one, other = onnx.defs.get_schema(op, new, ""), onnx.defs.get_schema(op, old, "")
    except onnx.defs.SchemaError:
        return False
    if (op, one.since_version) in _SAME_BUT_FOR_NEW_ATTRIBUTES:
        return _same_meaning(op, one.since_version - 1, old)
    return one.since_version == other.since_version or _signature(one) == _signature(other)


def _signature(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    return (
        schema.doc,
        [(p.name, p.option, p.is_homogeneous) for p in (*schema.inputs, *schema.outputs)],
        {
            name: (attribute.type, str(attribute.default_value), attribute.required)
            for name, attribute in schema.attributes.items()
        },
    )
