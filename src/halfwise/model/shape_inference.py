"""ONNX's own shape inference on a model in memory: weights stay where they are, and only what it found out is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx
import onnx_ir as ir

from halfwise.model.held_graphs import held_graphs

__all__ = ["asked_of", "infer_shapes"]

_CARRIED_BYTES = 1000  # of a weight, whose values inference may look at


def infer_shapes(model: ir.Model, *, follow_values: bool) -> None:
    """Types and shapes of tensors, in place. Raises what ONNX raises; the model is as it was then."""
    asked = asked_of(model)
    told = onnx.shape_inference.infer_shapes(asked, check_type=False, strict_mode=False, data_prop=follow_values)
    _read(model.graph, asked.graph, told.graph)


def asked_of(model: ir.Model) -> onnx.ModelProto:
    """What inference is given of a model."""
    with _weights_apart(model.graph):
        asked = ir.to_proto(model)
    _hand_in(asked.graph, {each.name: each for each in asked.graph.initializer})
    return asked


def _hand_in(graph: onnx.GraphProto, known: Mapping[str, onnx.TensorProto]) -> None:
    """Inference does not look at values of the graph around a body, such as axes: they are given to the body, too."""
    for node in graph.node:
        for body in held_graphs(node):
            own = {each.name for each in body.initializer} | {each.name for each in body.input}
            read = {name for inner in body.node for name in inner.input}
            body.initializer.extend(known[name] for name in sorted(read & known.keys() - own))
            _hand_in(body, {**known, **{each.name: each for each in body.initializer}})


@contextmanager
def _weights_apart(graph: ir.Graph) -> Iterator[None]:
    """All weights are declared as inputs, and of the large ones no more than that."""
    inputs = dict.fromkeys(graph.inputs)
    large = [(v, v.const_value) for v in graph.initializers.values() if _is_large(v.const_value)]
    graph.inputs.extend(value for value in graph.initializers.values() if value not in inputs)
    try:
        for value, _ in large:
            del graph.initializers[value.name or ""]
            value.const_value = None
        yield
    finally:
        graph.inputs.clear()
        graph.inputs.extend(inputs)
        for value, tensor in large:
            value.const_value = tensor
            graph.initializers.add(value)


def _is_large(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is None or tensor.nbytes > _CARRIED_BYTES


def _read(graph: ir.Graph, asked: onnx.GraphProto, told: onnx.GraphProto) -> None:
    """What is told of a graph's tensors and was not asked; of its bodies, too."""
    known = {info.name: info.type for info in _infos(asked)}
    news = {info.name: info.type for info in _infos(told) if info.type != known.get(info.name)}
    if news:
        for value in _values(graph):
            if (found := news.get(value.name or "")) is not None:
                _take(value, found)
    for node, one, other in zip(graph, asked.node, told.node, strict=True):
        for attribute, each, same in zip(node.attributes.values(), one.attribute, other.attribute, strict=True):
            if attribute.type is ir.AttributeType.GRAPH:
                _read(attribute.as_graph(), each.g, same.g)
            elif attribute.type is ir.AttributeType.GRAPHS:
                for body, was, now in zip(attribute.as_graphs(), each.graphs, same.graphs, strict=True):
                    _read(body, was, now)


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.input
    yield from graph.value_info
    yield from graph.output


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _take(value: ir.Value, found: onnx.TypeProto) -> None:
    shape, kind = ir.serde.deserialize_type_proto_for_shape(found), ir.serde.deserialize_type_proto_for_type(found)
    if shape is not None and shape != value.shape:
        value.shape = shape
    if kind is not None and kind.dtype != value.dtype:
        value.dtype = kind.dtype
