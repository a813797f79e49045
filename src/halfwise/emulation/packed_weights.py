"""Packed weights of ONNX Runtime's products as FP32 ones, made whenever they are read.

The runtime's own kernel, given a weight that it may not order for itself, makes all of it anew for every input.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary, WeakValueDictionary

import onnx
import onnx_ir as ir
from onnx import helper

from halfwise.core.formats import Format
from halfwise.emulation.given_weights import INLINE_ELEMENTS, declared_weight
from halfwise.emulation.quantised_tensor import quantised_weight
from halfwise.emulation.segments import reads_of
from halfwise.emulation.unpacked_tensor import FP8, LARGE_BYTES, Layout, UnpackedTensor
from halfwise.model.contrib.packed import Packed
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.weights import stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["dequantised_weight", "has_packed", "packed_in_full", "plain_product", "unpacked_weight", "with_unpacked"]

_FLOAT = onnx.TensorProto.FLOAT
_QUANTISED = (ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT8, ir.DataType.UINT8, *FP8)
_PACKED = (ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.UINT8)
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear")
_SIGNED = (ir.DataType.INT4, ir.DataType.INT8)


_Identity = ir.TensorProtocol | bytes | None
_Key = tuple[_Identity, Format | None, _Identity, Layout]
_MADE: WeakKeyDictionary[ir.TensorProtocol, WeakValueDictionary[_Key, UnpackedTensor]] = WeakKeyDictionary()


def has_packed(proto: onnx.ModelProto) -> bool:
    """Whether a kernel is far slower where it may not order its weights."""
    return any(node.op_type == "MatMulNBits" and node.domain == DOMAIN for node in proto.graph.node)


def with_unpacked(proto: onnx.ModelProto, weights: Sequence[Weight]) -> tuple[onnx.ModelProto, tuple[Weight, ...]]:
    """The model with plain products in their place, and the weights that it takes."""
    known = {weight.name: weight for weight in weights} | _within(proto)
    made_of = {
        node.output[0]: Weight(node.output[0], numbers, None)
        for node in proto.graph.node
        if (numbers := quantised_weight(node, known)) is not None
    }
    known |= made_of
    found = {
        node.output[0]: tensor
        for node in proto.graph.node
        if (tensor := unpacked_weight(node, known) or dequantised_weight(node, known)) is not None
    }
    if not found:
        return proto, tuple(weights)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    kept = {value.name for value in proto.graph.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in reads_of(node):
            readers.setdefault(name, []).append(node)
    tables = {node.output[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
    given = [
        _as_read(result, tensor, readers, kept)
        if result in tables
        else (Weight(_name(result), tensor, Format.FP32), [])
        for result, tensor in found.items()
    ]
    new, gone = [weight for weight, _ in given], {name for _, names in given for name in names}
    for name in made_of.keys() - kept:
        if all(reader.output[0] in found for reader in readers.get(name, ())):
            gone.add(name)
    plain = [each for node in made.graph.node for each in _plain(node, node.output[0] in found)]
    nodes = [node for node in plain if gone.isdisjoint(node.output)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    read = kept.union(*map(reads_of, nodes))
    held = [tensor for tensor in made.graph.initializer if tensor.name in read or tensor.name not in known]
    del made.graph.initializer[:]
    made.graph.initializer.extend(held)
    for weight in new:
        declared = declared_weight(weight.name, onnx.TensorProto.FLOAT, weight.tensor.shape.numpy())
        made.graph.initializer.append(declared)
    left = {tensor.name for tensor in held}
    return made, (*(weight for weight in weights if weight.name in left), *new)


def unpacked_weight(node: onnx.NodeProto, weights: Mapping[str, Weight]) -> UnpackedTensor | None:
    """The weight that a product multiplies with; None where it is small, no constant, or in another order."""
    if node.op_type != "MatMulNBits" or node.domain != DOMAIN:
        return None
    words, scales, zeros, order = (node.input[slot] if slot < len(node.input) else "" for slot in range(1, 5))
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    bits = stated.get("bits", 4)
    at = Layout(stated.get("N", 0), stated.get("K", 0), stated.get("block_size", 0), bits, 2.0 ** (bits - 1))
    if order or stated.get("weight_prepacked") or any(each not in weights for each in (words, scales, zeros) if each):
        return None
    middles = weights[zeros].tensor if zeros else None
    tensor, shape = weights[words].tensor, (at.rows, at.columns)
    return _unpacked(tensor, weights[scales], middles, at, (ir.DataType.UINT8,), shape)


def packed_in_full(packed: Packed) -> UnpackedTensor | None:
    """A large packed weight, (rows, columns)."""
    kind, shape = packed.words.dtype, (packed.rows, packed.columns)
    middle = 2.0 ** (packed.bits - 1) if kind is ir.DataType.UINT8 else 0.0
    at = Layout(*shape, packed.block, packed.bits, middle, signed=kind is ir.DataType.INT4)
    return _unpacked(packed.words, Weight("", packed.scales, None), packed.zeros, at, _PACKED, shape)


def dequantised_weight(node: onnx.NodeProto, weights: Mapping[str, Weight]) -> UnpackedTensor | None:
    """What a DequantizeLinear makes of a large weight; None of others."""
    if node.op_type != "DequantizeLinear" or node.domain not in ("", DOMAIN):
        return None
    words, scales, zeros = (node.input[slot] if slot < len(node.input) else "" for slot in range(3))
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    if any(each not in weights for each in (words, scales, zeros) if each) or stated.get("output_dtype", _FLOAT) > 1:
        return None
    packed = stored_tensor(weights[words].tensor)
    shape, block = packed.shape.numpy(), stated.get("block_size", 0)
    if len(shape) < 2 or packed.dtype not in _QUANTISED or not packed.size or (block and len(shape) > 2):
        return None
    one, axis = weights[scales].tensor.size == 1, stated.get("axis", 1) % len(shape)
    down = bool(one or axis == 0) if block else bool(one or axis == len(shape) - 1)
    if not down and axis and not block:
        return None
    rows = math.prod(shape[:-1]) if down else shape[0]
    columns = packed.size // rows
    floats = packed.dtype if packed.dtype in FP8 else None
    signed, bits = packed.dtype in _SIGNED, packed.dtype.bitwidth
    block = block or (rows if down else columns)
    at = Layout(rows, columns, block, bits, signed=signed, floats=floats, down=down)
    middles = weights[zeros].tensor if zeros else None
    if middles is not None and middles.size != weights[scales].tensor.size:
        return None
    if stated.get("block_size") and weights[scales].tensor.size != math.prod(at.scales):
        return None
    return _unpacked(packed, weights[scales], middles, at, _QUANTISED, shape)


def _within(proto: onnx.ModelProto) -> dict[str, Weight]:
    """The small scales and zero points, which the model itself holds."""
    read = {name for node in proto.graph.node if node.op_type in _QUANTISERS for name in node.input[1:]}
    here = (each for each in proto.graph.initializer if each.name in read and not each.external_data)
    return {each.name: Weight(each.name, ir.serde.deserialize_tensor(each), None) for each in here}


def _unpacked(
    words: ir.TensorProtocol,
    scales: Weight,
    zeros: ir.TensorProtocol | None,
    at: Layout,
    types: Collection[ir.DataType],
    shape: Sequence[int],
) -> UnpackedTensor | None:
    """The same object for the same weight: what is kept is kept by it."""
    packed = stored_tensor(words)
    if 4 * at.rows * at.columns < LARGE_BYTES or not at.fits or packed.dtype not in types:
        return None
    if packed.nbytes * 8 != at.rows * at.columns * at.bits or scales.tensor.size not in (1, math.prod(at.scales)):
        return None
    key = (_identity(scales.tensor), scales.fmt, _identity(zeros), at)
    made = _MADE.setdefault(packed, WeakValueDictionary())
    found = made.get(key)
    if found is None:
        found = made[key] = UnpackedTensor(packed, scales, zeros, at, shape)
    return found


def _identity(tensor: ir.TensorProtocol | None) -> _Identity:
    """A small one is read anew from each model that holds it."""
    if tensor is None:
        return None
    stored = stored_tensor(tensor)
    return stored if stored.size > INLINE_ELEMENTS else f"{stored.dtype} {stored.shape}".encode() + stored.tobytes()


def _as_read(
    result: str, tensor: UnpackedTensor, readers: Mapping[str, Sequence[onnx.NodeProto]], kept: Collection[str]
) -> tuple[Weight, list[str]]:
    """What is dequantised, and the names of what is made on the way to it: it is rounded to FP16 where that is all that
    is done with it."""
    ends = [result]
    for kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT):
        (reader, *others) = readers.get(ends[-1], ()) or (None,)
        if reader is None or others or reader.op_type != "Cast" or ends[-1] in kept or _target(reader) != kind:
            return Weight(result, tensor, Format.FP32), [result]
        ends.append(reader.output[0])
    if tensor.most > Format.FP16.max:
        return Weight(result, tensor, Format.FP32), [result]
    return Weight(ends[-1], tensor, Format.FP16), ends


def _target(node: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)


def plain_product(proto: onnx.ModelProto, weights: Mapping[str, Weight]) -> tuple[onnx.ModelProto, Weight] | None:
    """The model of one such node as a product of rows and a weight that lies the other way, and that weight."""
    (node, *stores), found = proto.graph.node, unpacked_weight(proto.graph.node[0], weights)
    if found is None or len(node.input) > 5:
        return None
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    table = _name(node.output[0])
    del made.graph.node[:], made.graph.input[1:]
    made.graph.node.append(helper.make_node("Gemm", [node.input[0], table], node.output, transB=1))
    made.graph.node.extend(stores)
    made.graph.input.append(helper.make_tensor_value_info(table, onnx.TensorProto.FLOAT, None))
    return made, Weight(table, found, Format.FP32)


def _plain(node: onnx.NodeProto, known: bool) -> Iterator[onnx.NodeProto]:
    if not known or node.op_type == "DequantizeLinear":
        yield node
        return
    (rows, *_), (result, *_) = node.input, node.output
    bias = node.input[5] if len(node.input) > 5 else ""
    table, turned = _name(result), f"{_name(result)}__turned"
    product = f"{result}__product" if bias else result
    yield helper.make_node("Transpose", [table], [turned], perm=[1, 0])
    yield helper.make_node("MatMul", [rows, turned], [product], node.name)
    if bias:
        yield helper.make_node("Add", [product, bias], [result])


def _name(result: str) -> str:
    return f"{result}__unpacked"
