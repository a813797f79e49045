"""A session for one product with a weight that lies on a GPU; what stores the product runs on the processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from halfwise.core.thread_room import room_for
from halfwise.emulation.gpu_products import GpuProducts, gpu_products
from halfwise.emulation.ort import Answer, AnySession, Session, upload
from halfwise.emulation.row_products import rows_of
from halfwise.emulation.segments import takes_rows, turns_table

__all__ = ["ProductSession", "product_session"]

Array = NDArray[Any]


def product_session(proto: onnx.ModelProto, threads: int) -> AnySession | None:
    """None where it is another model, or the GPU would give other bits."""
    products = gpu_products() if _is_product(proto) else None
    return None if products is None else ProductSession(proto, products, threads)


class ProductSession:
    """What its kernels do not do is left to ONNX Runtime's, on the GPU."""

    def __init__(self, proto: onnx.ModelProto, products: GpuProducts, threads: int) -> None:
        self._proto, self._products = proto, products
        self._threads = threads if room_for(threads) else 1
        self._asked = threads
        product = proto.graph.node[0]
        self._rows, self._table, self._bias = (*product.input, "")[:3]
        self._made, self._turned = product.output[0], turns_table(product)
        self._constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
        self.input_names = tuple(value.name for value in proto.graph.input)
        self.output_names = tuple(value.name for value in proto.graph.output)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Outputs by name."""
        bias = {**self._constants, **feeds}[self._bias] if self._bias else None
        made = self._product(feeds[self._rows], feeds[self._table], bias)
        if made is None:
            return self._other.run(feeds, outputs)
        if self._stored is None:
            return {self._made: made}
        return self._stored.run({self._made: made}, outputs)

    def answers(self, feeds: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
        """The outputs of each input, or why it has none."""
        return self._other.answers(feeds)

    def _product(self, rows: Any, table: Any, bias: Any) -> Array | None:
        there = upload(table) if isinstance(table, np.ndarray) else table
        if not isinstance(there, ort.OrtValue) or there.data_type() != "tensor(float)" or len(there.shape()) != 2:
            return None
        flat = rows_of([rows], there.shape()[self._turned])
        if flat is None:
            return None
        made = self._products.of(flat[0], there, bias, turned=self._turned, threads=self._threads)
        return None if made is None else made.reshape(*rows.shape[:-1], made.shape[1])

    @cached_property
    def _stored(self) -> Session | None:
        """Of what follows the product."""
        _, *stores = self._proto.graph.node
        if not stores:
            return None
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        del proto.graph.node[0], proto.graph.input[:], proto.graph.initializer[:]
        proto.graph.input.append(helper.make_tensor_value_info(self._made, onnx.TensorProto.FLOAT, None))
        return Session(proto, threads=self._asked)

    @cached_property
    def _other(self) -> Session:
        return Session(self._proto, threads=self._asked, device="cuda")


def _is_product(proto: onnx.ModelProto) -> bool:
    """Of rows, a table and perhaps a bias, and then only what stores it."""
    product, *stores = proto.graph.node
    casts = all(node.op_type == "Cast" and not node.domain for node in stores)
    made = {name for node in stores or [product] for name in node.output}
    handed = [value.name for value in proto.graph.input]
    held = {each.name for each in proto.graph.initializer}
    alone = list(product.input[:2]) == handed[:2] and {*handed, *held} == set(product.input) and len(held) < 2
    return takes_rows(product) and casts and alone and all(each.name in made for each in proto.graph.output)
