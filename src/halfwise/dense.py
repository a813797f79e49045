"""Turns sparse initializers and sparse constants into dense ones; nothing behind the loader knows sparse tensors."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from halfwise.errors import InputError
from halfwise.proto_file import every_graph

__all__ = ["has_sparse", "make_dense"]

_MOST_BYTES = 1 << 30


def has_sparse(proto: onnx.ModelProto) -> bool:
    return any(
        graph.sparse_initializer or any(a.HasField("sparse_tensor") for node in graph.node for a in node.attribute)
        for graph in every_graph(proto)
    )


def make_dense(proto: onnx.ModelProto) -> None:
    """Rewrite the model in place."""
    for graph in every_graph(proto):
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
