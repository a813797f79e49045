"""The rule for ONNX Runtime's own operators: backwards through the steps that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from halfwise.emulation.ort import RUNTIME_IR_VERSION, Session
from halfwise.model.contrib.decompose import decompose, has_steps
from halfwise.model.contrib.writer import PlainSteps
from halfwise.search.vjp.local import Array, Local, NoRule

__all__ = ["has_steps", "through_steps"]

_OPSET = 17
_LARGE = 1 << 20  # bytes of the steps of a node, with the weights that stand in them

PullBack = Callable[[Local, int], "Array | None"]


def through_steps(local: Local, pull_back: PullBack) -> None:
    """Fill in the gradients of all inputs and of what is stored inside; NoRule where the steps are not known."""
    names = [f"i{slot}" if array is not None else "" for slot, array in enumerate(local.inputs)]
    fresh = count()
    steps = PlainSteps(_as_run(local), _OPSET, lambda word: f"{word}_{next(fresh)}")
    results = decompose(steps, names)
    if results is None:
        raise NoRule
    feeds = {name: array for name, array in zip(names, local.inputs, strict=True) if array is not None}
    proto = _model(steps.nodes, feeds)
    values = {**feeds, **_session(proto.SerializeToString(deterministic=True)).run(feeds)}
    gradients: dict[str, Array] = {}
    for slot, name in results.items():
        gradient = local.gradients[slot] if slot < len(local.gradients) else None
        if gradient is not None:
            _add(gradients, name, gradient)
    moving = _moving(steps.nodes, [name for name, array in feeds.items() if array.dtype.kind == "f"])
    lost: set[str] = set()  # what some step hands on by a rule that is not known
    for node in reversed(list(ir.from_proto(proto).graph)):
        _back(node, values, gradients, moving, lost, pull_back)
    for slot, name in enumerate(names):
        if name and name not in lost:
            local.shared[slot] = gradients.get(name, np.zeros((local.probes, *feeds[name].shape), np.float32))
    local.inside.extend((values[name], gradients[name]) for name in dict.fromkeys(steps.stored) if name in gradients)


def _as_run(local: Local) -> ir.Node:
    """The node with the shapes that it was run with."""
    inputs: list[ir.Value | None] = []
    for value, array in zip(local.node.inputs, local.inputs, strict=True):
        given = None if value is None or array is None else ir.Value(name=value.name, shape=ir.Shape(array.shape))
        if given is not None and value is not None:
            given.const_value = value.const_value
        inputs.append(given)
    outputs = [ir.Value(name=value.name) for value in local.node.outputs]
    return ir.Node(local.node.domain, local.node.op_type, inputs, local.node.attributes.values(), outputs=outputs)


def _model(nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, Array]) -> onnx.ModelProto:
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    made = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output]
    graph = helper.make_graph(list(nodes), "steps", given, made)
    opset = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=RUNTIME_IR_VERSION)


def _moving(nodes: Sequence[onnx.NodeProto], sources: Sequence[str]) -> frozenset[str]:
    """The names of what depends on the inputs' numbers, so that a gradient has somewhere to go."""
    found = set(sources)
    for node in nodes:
        if not found.isdisjoint(node.input) and node.op_type != "Shape":
            found.update(node.output)
    return frozenset(found)


def _back(
    node: ir.Node,
    values: Mapping[str, Array],
    gradients: dict[str, Array],
    moving: frozenset[str],
    lost: set[str],
    pull_back: PullBack,
) -> None:
    sources = {value.name or "" for value in node.inputs if value is not None and value.name in moving}
    if not lost.isdisjoint(value.name or "" for value in node.outputs):
        lost.update(sources)
        return
    made = tuple(gradients.get(value.name or "") for value in node.outputs)
    if all(gradient is None for gradient in made):
        return
    taken = tuple(values.get(value.name or "") if value is not None else None for value in node.inputs)
    given = tuple(values.get(value.name or "") for value in node.outputs)
    local = Local(node, _OPSET, taken, given, made, lambda changed: _run(node, taken, changed))
    for slot, (value, array) in enumerate(zip(node.inputs, taken, strict=True)):
        if value is None or array is None or array.dtype.kind != "f" or value.name not in moving:
            continue
        try:
            gradient = pull_back(local, slot)
        except NoRule:
            lost.add(value.name or "")
            continue
        if gradient is not None:
            _add(gradients, value.name or "", gradient)


def _run(node: ir.Node, taken: Sequence[Array | None], changed: Mapping[int, Any]) -> tuple[Array, ...]:
    """One step with other inputs."""
    feeds = {
        value.name or "": np.asarray(changed.get(slot, array))
        for slot, (value, array) in enumerate(zip(node.inputs, taken, strict=True))
        if value is not None and array is not None
    }
    proto = _model([ir.serde.serialize_node(node)], feeds)
    return tuple(_session(proto.SerializeToString(deterministic=True)).run(feeds).values())


def _session(content: bytes) -> Session:
    """One with a large weight in it is not kept."""
    return _begun(content) if len(content) > _LARGE else _kept(content)


@lru_cache(maxsize=256)
def _kept(content: bytes) -> Session:
    return _begun(content)


def _begun(content: bytes) -> Session:
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    return Session(proto, threads=1)


def _add(gradients: dict[str, Array], name: str, gradient: Array) -> None:
    known = gradients.get(name)
    gradients[name] = np.asarray(gradient if known is None else known + gradient, dtype=np.float32)
