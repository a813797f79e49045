"""Products and convolutions with what ONNX Runtime fuses to them, in ONNX's own operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.contrib.steps_norms import Inputs, Results
from halfwise.model.contrib.writer import StepWriter, dims_of, number, stored, whole

__all__ = ["PRODUCTS", "unpacked", "unpacked_weight"]

_NAMES = {  # the attributes that a fused activation takes, in the order of its parameters
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}


def _activation(write: StepWriter, x: str, name: str, numbers: Sequence[float]) -> str | None:
    if not name:
        return x
    if name not in _NAMES:
        return None
    x = write.store(x)
    if name == "Clip" and write.opset >= 11:
        return write.op("Clip", x, *(write.constant(each) for each in numbers))
    return write.op(name, x, **dict(zip(_NAMES[name], numbers, strict=False)))


def _text(node: ir.Node, name: str) -> str:
    return node.attributes[name].as_string() if name in node.attributes else ""


def _kept(node: ir.Node, names: str) -> dict[str, Any]:
    return {name: node.attributes[name].value for name in names.split() if name in node.attributes}


_CONV = "auto_pad dilations group kernel_shape pads strides"


def _conv(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    operands = [name for name in inputs[:3] if name]
    y = write.op("Conv", *operands, **_kept(node, _CONV))
    if len(inputs) > 3 and inputs[3]:
        y = write.op("Add", write.store(y), inputs[3])
    numbers = node.attributes["activation_params"].as_floats() if "activation_params" in node.attributes else ()
    bent = _activation(write, y, _text(node, "activation"), tuple(numbers))
    return None if bent is None else {0: bent}


def _channels_last(write: StepWriter, inputs: Inputs) -> Results | None:
    """The image has its channels last, and so has its kernel."""
    rank = len(dims_of(write.node, 0) or ())
    if rank != 4:
        return None
    forth, back = [0, 3, 1, 2], [0, 2, 3, 1]
    x, kernel = (write.op("Transpose", name, perm=forth) for name in inputs[:2])
    bias = [name for name in inputs[2:3] if name]
    y = write.op("Conv", x, kernel, *bias, **_kept(write.node, _CONV))
    return {0: write.op("Transpose", y, perm=back)}


def _gemm(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    y = write.op("Gemm", *(name for name in inputs if name), **_kept(node, "alpha beta transA transB"))
    name = _text(node, "activation")
    numbers = [number(node, f"activation_{word}", 0.0) for word in ("alpha", "beta")]
    bent = _activation(write, y, name, numbers[: len(_NAMES.get(name, ()))])
    return None if bent is None else {0: bent}


def _matmul(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    factors = []
    for slot, letter in enumerate("AB"):
        rank = len(dims_of(node, slot) or ())
        perm = list(range(rank))
        if whole(node, f"transBatch{letter}"):
            perm = [*perm[1:-1], 0, rank - 1]
        if whole(node, f"trans{letter}"):
            perm = [*perm[:-2], *reversed(perm[-2:])]
        if rank == 0 and (whole(node, f"transBatch{letter}") or whole(node, f"trans{letter}")):
            return None
        moved = perm != list(range(rank))
        factors.append(write.op("Transpose", inputs[slot], perm=perm) if moved else inputs[slot])
    y = write.op("MatMul", *factors)
    alpha = number(node, "alpha", 1.0)
    return {0: y if alpha == 1.0 else write.op("Mul", y, write.constant(alpha))}


def _packed(write: StepWriter, inputs: Inputs) -> Results | None:
    weight = unpacked_weight(write.node)
    if weight is None:
        return None
    y = write.op("MatMul", inputs[0], write.constant(weight))
    return {0: write.op("Add", y, inputs[5]) if len(inputs) > 5 and inputs[5] else y}


def unpacked_weight(node: ir.Node) -> NDArray[np.float32] | None:
    """The matrix (K, N) that a MatMulNBits multiplies with; None where it is no constant or in another order."""
    packed, scales = (stored(node, slot) for slot in (1, 2))
    if packed is None or scales is None or stored(node, 4) is not None or whole(node, "weight_prepacked"):
        return None
    bits, block = whole(node, "bits", 4), whole(node, "block_size")
    rows, columns = whole(node, "K"), whole(node, "N")
    if bits not in (2, 4, 8):
        return None
    blocks = -(-rows // block)
    values = unpacked(packed.reshape(columns * blocks, -1), bits, block).reshape(columns, blocks, block)
    weight = _scaled(node, values, scales.reshape(columns, blocks, 1), bits)
    return np.ascontiguousarray(weight[:, :rows].T, dtype=np.float32)


def _scaled(node: ir.Node, values: NDArray[Any], scales: NDArray[Any], bits: int) -> NDArray[np.float32]:
    columns, blocks, _ = values.shape
    given = stored(node, 3)
    zero: Any = 1 << (bits - 1)
    if given is not None and given.dtype == np.uint8:
        zero = unpacked(given.reshape(columns, -1), bits, blocks).reshape(columns, blocks, 1)
    elif given is not None:
        zero = given.reshape(columns, blocks, 1).astype(np.float32)
    weight = (values.astype(np.float32) - zero) * scales.astype(np.float32)
    return np.asarray(weight.reshape(columns, -1), dtype=np.float32)


def unpacked(packed: NDArray[Any], bits: int, count: int) -> NDArray[np.float32]:
    """The numbers of each row, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[:, :, None] >> shifts) & ((1 << bits) - 1)
    return np.asarray(numbers.reshape(len(packed), -1)[:, :count], dtype=np.float32)


PRODUCTS = {
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "MatMulNBits": _packed,
    "NhwcConv": _channels_last,
    "TransposeMatMul": _matmul,
}
