"""A session for one product with a weight that lies on a GPU; what stores the product runs on the processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.thread_room import room_for
from halfwise.emulation.gpu_products import GpuProducts, gpu_products
from halfwise.emulation.ort import Answer, AnySession, Session, upload
from halfwise.emulation.row_products import rows_of

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
        self._rows, self._table = product.input
        self._made, self._turned = product.output[0], product.op_type == "Gemm"
        self.input_names = tuple(value.name for value in proto.graph.input)
        self.output_names = tuple(value.name for value in proto.graph.output)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Outputs by name."""
        made = self._product(feeds[self._rows], feeds[self._table])
        if made is None:
            return self._other.run(feeds, outputs)
        if self._stored is None:
            return {self._made: made}
        return self._stored.run({self._made: made}, outputs)

    def answers(self, feeds: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
        """The outputs of each input, or why it has none."""
        return self._other.answers(feeds)

    def _product(self, rows: Any, table: Any) -> Array | None:
        there = upload(table) if isinstance(table, np.ndarray) else table
        if not isinstance(there, ort.OrtValue) or there.data_type() != "tensor(float)" or len(there.shape()) != 2:
            return None
        flat = rows_of([rows], there.shape()[self._turned])
        if flat is None:
            return None
        made = self._products.of(flat[0], there, turned=self._turned, threads=self._threads)
        return None if made is None else made.reshape(*rows.shape[:-1], made.shape[1])

    @cached_property
    def _stored(self) -> Session | None:
        """Of what follows the product."""
        _, *stores = self._proto.graph.node
        if not stores:
            return None
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        del proto.graph.node[0], proto.graph.input[:]
        proto.graph.input.append(helper.make_tensor_value_info(self._made, onnx.TensorProto.FLOAT, None))
        return Session(proto, threads=self._asked)

    @cached_property
    def _other(self) -> Session:
        return Session(self._proto, threads=self._asked, device="cuda")


def _is_product(proto: onnx.ModelProto) -> bool:
    """Of two inputs, of which the second is a table, and then only what stores it."""
    product, *stores = proto.graph.node
    is_plain = (product.op_type == "MatMul" and not product.attribute) or (
        product.op_type == "Gemm" and [(each.name, each.i) for each in product.attribute] == [("transB", 1)]
    )
    casts = all(node.op_type == "Cast" and not node.domain for node in stores)
    made = {name for node in stores or [product] for name in node.output}
    alone = list(product.input) == [value.name for value in proto.graph.input] and not proto.graph.initializer
    return is_plain and not product.domain and casts and alone and all(each.name in made for each in proto.graph.output)
