"""Products with a weight on a GPU, summed in the order of the processor's kernels: the same bits."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.errors import HalfwiseError
from halfwise.core.thread_room import room_for
from halfwise.emulation.cuda_compiler import compiled
from halfwise.emulation.cuda_driver import open_cuda
from halfwise.emulation.ort import MANY, RUNTIME_IR_VERSION, Session
from halfwise.emulation.row_products import shape_of
from halfwise.emulation.sum_order import pieces

__all__ = ["KERNELS", "Gpu", "GpuProducts", "gpu_products", "product_model"]

Array = NDArray[Any]

KERNELS = ("rows_by_table", "row_by_table", "row_by_turned")
_SOURCE = Path(__file__).with_name("ordered_products.cu")
_TILE, _ROW_COLUMNS, _TURNED_COLUMNS = 64, 64, 32  # of a block
_PROBES = ((5, 1100, 300), (1, 1100, 300), (1, 1031, 203), (70, 65, 1000))  # rows, and the table


class Gpu(Protocol):
    """What is asked of a GPU's driver."""

    def enter(self) -> None: ...
    def launch(
        self, function: int, blocks: tuple[int, int], threads: int, arguments: Sequence[ctypes._SimpleCData[int]]
    ) -> None: ...


class GpuProducts:
    """`functions` are the kernels, by name."""

    def __init__(self, gpu: Gpu, functions: Mapping[str, int], device: str = "cuda") -> None:
        self._gpu, self._functions, self._device = gpu, functions, device
        self._cuts: dict[tuple[int, ...], ort.OrtValue] = {}

    def of(self, rows: Array, table: ort.OrtValue, bias: Any = None, *, turned: bool, threads: int) -> Array | None:
        """Of rows and a table that lies there, `turned` where its rows are the columns of the product, and what is
        added to each row; None where the processor's order is not known."""
        shape = table.shape()
        (count, depth), columns = rows.shape, shape[1 - turned]
        cuts = pieces(count, columns, depth, threads) if count > 1 else ()
        if cuts is None or columns == 1 or shape[turned] != depth:
            return None
        added = self._bias(bias, columns)
        if bias is not None and added is None:
            return None
        given = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(rows), self._device, 0)
        made = ort.OrtValue.ortvalue_from_shape_and_type((count, columns), np.float32, self._device, 0)
        held = (given, table, added, made)
        places = [ctypes.c_uint64(0 if each is None else each.data_ptr()) for each in held]
        sizes = [ctypes.c_int(columns), ctypes.c_int(depth)]
        self._gpu.enter()
        if count == 1:
            name, wide = (KERNELS[2], _TURNED_COLUMNS) if turned else (KERNELS[1], _ROW_COLUMNS)
            threads_each = 256 if turned else _ROW_COLUMNS
            self._gpu.launch(self._functions[name], (-(-columns // wide), 1), threads_each, [*places, *sizes])
        else:
            blocks = -(-columns // _TILE), -(-count // _TILE)
            order = ctypes.c_uint64(self._there(cuts).data_ptr())
            arguments = [*places, *sizes, ctypes.c_int(count), ctypes.c_int(turned), order]
            self._gpu.launch(self._functions[KERNELS[0]], blocks, 256, arguments)
        return np.asarray(made.numpy())  # waits for it

    def _bias(self, bias: Any, columns: int) -> ort.OrtValue | None:
        """There, one number a column; None where it is of another shape."""
        shape = shape_of(bias)
        if shape not in ((columns,), (1, columns)):
            return None
        if isinstance(bias, ort.OrtValue):
            return bias if bias.data_type() == "tensor(float)" else None
        there = bias.dtype == np.float32
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(bias), self._device, 0) if there else None

    def _there(self, cuts: tuple[int, ...]) -> ort.OrtValue:
        if cuts not in self._cuts:
            self._cuts[cuts] = ort.OrtValue.ortvalue_from_numpy(np.array(cuts, np.int32), self._device, 0)
        return self._cuts[cuts]

    def agrees(self) -> bool:
        """Whether some products have the bits that the processor gives them here."""
        rng, threads = np.random.default_rng(1), MANY if room_for(MANY) else 1
        for turned, biased in product((False, True), repeat=2):
            here = Session(product_model(turned=turned, biased=biased), threads=MANY)
            for count, depth, columns in _PROBES:
                table_shape = (columns, depth) if turned else (depth, columns)
                shapes = {"rows": (count, depth), "table": table_shape, **({"bias": (columns,)} if biased else {})}
                feed = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
                there = ort.OrtValue.ortvalue_from_numpy(feed["table"], self._device, 0)
                made = self.of(feed["rows"], there, feed.get("bias"), turned=turned, threads=threads)
                if made is None or made.tobytes() != here.run(feed)["made"].tobytes():
                    return False
        return True


def product_model(*, turned: bool, biased: bool = False) -> onnx.ModelProto:
    """Of rows and a table, and what is added to each row."""
    given = ["rows", "table", *(["bias"] if biased else [])]
    node = helper.make_node("MatMul", given, ["made"])
    if turned or biased:
        node = helper.make_node("Gemm", given, ["made"], transB=int(turned))
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in (*given, "made")]
    graph = helper.make_graph([node], "product", ends[:-1], ends[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=RUNTIME_IR_VERSION)


@cache
def gpu_products() -> GpuProducts | None:
    """None where the processor here sums in another order, or nothing compiles the kernels."""
    try:
        gpu = open_cuda()
        functions = gpu.functions(compiled(_SOURCE.read_text(encoding="utf-8")), KERNELS)
        made = GpuProducts(gpu, functions)
        return made if made.agrees() else None
    except (HalfwiseError, OSError, RuntimeError, AttributeError):
        return None
