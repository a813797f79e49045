"""Steps that read a large weight without a copy of the whole: picked rows, its transpose, and a product with that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper

__all__ = ["LARGE_BYTES", "as_it_lies", "by_columns", "is_turned", "of_rows", "picks_rows", "places_in", "turns"]

Array = NDArray[Any]

LARGE_BYTES = 1 << 26  # in FP32: below it a copy is no matter


def picks_rows(node: ir.Node) -> bool:
    """Whether it takes entries of a large weight along its first axis."""
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and _is_large(node) and (axis is None or axis.as_int() == 0)


def turns(node: ir.Node) -> bool:
    """Whether it is the transpose of a large weight, or of one that is dequantised."""
    perm, maker = node.attributes.get("perm"), node.inputs[0].producer() if node.inputs and node.inputs[0] else None
    if node.op_type != "Transpose" or perm is None or list(perm.as_ints()) != [1, 0]:
        return False
    return _is_large(node if maker is None or maker.op_type != "DequantizeLinear" else maker)


def _is_large(node: ir.Node) -> bool:
    weight = node.inputs[0] if node.inputs and not node.domain else None
    tensor = weight.const_value if weight is not None and weight.is_initializer() else None
    return tensor is not None and 4 * tensor.size >= LARGE_BYTES


def places_in(indices: Any, length: int) -> bool:
    """Whether these are numbers of entries, from either end."""
    if not isinstance(indices, np.ndarray) or indices.dtype.kind != "i":
        return False
    return not indices.size or (-length <= int(indices.min()) and int(indices.max()) < length)


def is_turned(array: Any) -> bool:
    """Whether it is a large table that lies the other way."""
    turned = isinstance(array, np.ndarray) and array.ndim == 2 and array.nbytes >= LARGE_BYTES
    return turned and array.flags.f_contiguous and not array.flags.c_contiguous


def as_it_lies(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model of a product, for rows alone and the table as it lies; None where more is in it than what stores it.

    For several rows it gives the same bits.
    """
    product, *stores = proto.graph.node
    plain = product.op_type == "MatMul" and all(node.op_type == "Cast" for node in stores)
    if not plain or list(product.input) != [value.name for value in proto.graph.input]:
        return None
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    made.graph.node[0].CopyFrom(helper.make_node("Gemm", product.input, product.output, transB=1))
    return made


def of_rows(rows: Array, run: Callable[[Array], Mapping[str, Array]]) -> Array:
    """What it makes of the rows of an array of any number of dimensions."""
    (found,) = run(rows.reshape(-1, rows.shape[-1])).values()
    return found.reshape(*rows.shape[:-1], found.shape[1])


def by_columns(table: Array, run: Callable[[Array], Mapping[str, Array]]) -> Array:
    """A product with such a table: the runtime copies what lies the other way, so it is given a few columns a time."""
    count = max(LARGE_BYTES // (table.shape[0] * table.itemsize), 1)
    parts = []
    for start in range(0, table.shape[1], count):
        (part,) = run(np.ascontiguousarray(table[:, start : start + count])).values()
        parts.append(part)
    return np.concatenate(parts, axis=-1)
