"""Rewrites what no later room knows: sparse tensors, initializers of one name, sizes that say nothing, bodies that
hand out an outer tensor, ONNX's quantisers in a domain of TensorRT's or along an axis that a vector has not, domains of
no version."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from halfwise.core.errors import InputError
from halfwise.model.families import QUANTISERS
from halfwise.model.held_graphs import held_graphs
from halfwise.model.proto_file import check_rank, every_graph

__all__ = ["FOREIGN", "fix_up", "in_foreign_domain", "needs_fixups"]

_MOST_BYTES = 1 << 30
FOREIGN = "trt"


def needs_fixups(proto: onnx.ModelProto) -> bool:
    sparse = any(
        graph.sparse_initializer or any(a.HasField("sparse_tensor") for node in graph.node for a in node.attribute)
        for graph in every_graph(proto)
    )
    quantises = any(in_foreign_domain(node) for graph in every_graph(proto) for node in graph.node)
    return (
        sparse
        or quantises
        or any(_repeated(graph) or any(_off_axis(graph)) for graph in every_graph(proto))
        or bool(_unversioned(proto))
        or any(_unknown_sizes(proto))
        or any(_handed_through(proto.graph, frozenset()))
    )


def fix_up(proto: onnx.ModelProto) -> None:
    """Rewrite the model in place."""
    for graph in every_graph(proto):
        for index in _repeated(graph):
            del graph.initializer[index]
        _make_dense(graph)
        _bring_home(graph)
        for node in list(_off_axis(graph)):
            for index in [index for index, each in enumerate(node.attribute) if each.name == "axis"]:
                del node.attribute[index]
            node.attribute.append(onnx.helper.make_attribute("axis", 0))
    for domain in _unversioned(proto):
        proto.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    for dimension in list(_unknown_sizes(proto)):
        dimension.Clear()
    for graph, output in list(_handed_through(proto.graph, frozenset())):
        inner = f"{output.name}_inner"
        while any(inner in node.output for node in graph.node):
            inner += "_"
        graph.node.add(op_type="Identity", input=[output.name], output=[inner])
        output.name = inner


def _repeated(graph: onnx.GraphProto) -> list[int]:
    """Where initializers stand, the last first, of whose name there is a later one: ONNX Runtime takes that. Intel's
    Neural Compressor quantises a bias once for each node that reads it."""
    known: set[str] = set()
    repeated = []
    for index in range(len(graph.initializer) - 1, -1, -1):
        name = graph.initializer[index].name
        if name in known:
            repeated.append(index)
        known.add(name)
    return repeated


def _off_axis(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those that quantise a stored vector by place along axis 1, as Neural Compressor writes of biases: ONNX Runtime
    refuses them where it does not fuse them away."""
    held = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in QUANTISERS and not node.domain and len(node.input) > 1:
            vector, scale = held.get(node.input[0], []), held.get(node.input[1], [])
            axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
            if len(vector) == 1 and vector == scale != [1] and axis == 1:
                yield node


def _unversioned(proto: onnx.ModelProto) -> list[str]:
    """Domains that no opset is imported of: ONNX Runtime takes its own, and ONNX's inference stops there."""
    known = {entry.domain for entry in proto.opset_import} | {"", "ai.onnx", "ai.onnx.ml"}
    used = (node.domain for graph in every_graph(proto) for node in graph.node)
    return [domain for domain in dict.fromkeys(used) if domain not in known]


def _unknown_sizes(proto: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Sizes below zero, and what exporters write in place of a name: two of these may differ."""
    for graph in every_graph(proto):
        for info in (*graph.input, *graph.output, *graph.value_info):
            dims = info.type.tensor_type.shape.dim
            yield from (dim for dim in dims if dim.dim_value < 0 or _no_name(dim.dim_param))


def _no_name(symbol: str) -> bool:
    """Such as "?", "-1" or "None"."""
    return bool(symbol) and (symbol == "None" or not any(char.isalpha() for char in symbol))


def _handed_through(
    graph: onnx.GraphProto, outer: frozenset[str]
) -> Iterator[tuple[onnx.GraphProto, onnx.ValueInfoProto]]:
    """The outputs of bodies that are tensors of a graph around them; runtimes want a node in between."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own.update(sparse.values.name for sparse in graph.sparse_initializer)
    own.update(name for node in graph.node for name in node.output)
    for output in graph.output:
        if output.name not in own and output.name in outer:
            yield graph, output
    known = outer | own
    for node in graph.node:
        for body in held_graphs(node):
            yield from _handed_through(body, known)


def in_foreign_domain(node: onnx.NodeProto) -> bool:
    """Whether it is an operator of ONNX's, of which NVIDIA's ModelOpt kept the domain of the one that it replaced."""
    return node.domain == FOREIGN and node.op_type in QUANTISERS


def _bring_home(graph: onnx.GraphProto) -> None:
    """Its zero points are lists of one, its scales single numbers, and FP8 is said to be UINT8 beside it."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    made: set[str] = set()
    for node in graph.node:
        if not in_foreign_domain(node):
            continue
        node.domain = ""
        made.update(node.output)
        scale, zero = (held.get(name) for name in (*node.input[1:], "", "")[:2])
        if scale is not None and zero is not None and not scale.dims and list(zero.dims) == [1]:
            del zero.dims[:]
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name in made:
            del graph.value_info[index]


def _make_dense(graph: onnx.GraphProto) -> None:
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, sparse.values.name))
    graph.ClearField("sparse_initializer")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                dense = _dense(attribute.sparse_tensor, "")
                attribute.Clear()
                attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
                attribute.t.CopyFrom(dense)


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    where = f"the sparse tensor {sparse.values.name!r}"
    if onnx.TensorProto.EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
        raise InputError(f"{where} stands in external data, which is not supported; make it dense")
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    check_rank(len(shape), where)
    size = int(np.prod(shape, dtype=object)) if shape else 1
    if any(dim < 0 for dim in shape) or size * values.itemsize > _MOST_BYTES:
        raise InputError(f"{where} is too large to be made dense")
    if indices.ndim == 2:
        bad = indices.shape != (values.size, len(shape)) or not ((indices >= 0) & (indices < shape)).all()
    else:
        bad = indices.shape != (values.size,) or not ((indices >= 0) & (indices < size)).all()
    if bad:
        raise InputError(f"{where} has indices outside its shape")
    dense = np.zeros(size, dtype=values.dtype)
    flat = np.ravel_multi_index(tuple(indices.T), shape) if indices.ndim == 2 else indices
    dense[flat] = values
    return numpy_helper.from_array(dense.reshape(shape), name)
