"""Writes the typed FP16/FP32 model: casts at precision borders only, weights in the format that reads them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from halfwise.errors import InputError
from halfwise.formats import Format
from halfwise.ops import DTYPE_ATTRIBUTES
from halfwise.precision import Assignment
from halfwise.rewrite import Names, Rewritten, SpelledWeight, Weight, rewrite
from halfwise.weights import ONNX_TYPE, convert_weight, to_tensor_proto

__all__ = ["TypedModel", "typed_proto", "write_typed"]

INLINE_BYTES = 1024  # smaller weights always stand in the protobuf
EMBED_BYTES = 256 << 20  # a model with more weights than this keeps them in a file of their own
_ALIGNMENT = 4096


@dataclass(frozen=True)
class TypedModel:
    """What was written: the model file, its weight file where there is one, casts added and weights clamped."""

    path: Path
    data: Path | None
    casts: int
    clamped: tuple[str, ...]


class TypedDialect:
    """Every tensor has the type of the format it is kept in."""

    def tensor_type(self, native: int, fmt: Format) -> int:
        return ONNX_TYPE[fmt]

    def is_alias(self, have: Format, want: Format) -> bool:
        return have is want

    def convert(self, source: str, target: str, have: Format, want: Format, names: Names) -> list[onnx.NodeProto]:
        node = onnx.NodeProto(op_type="Cast", input=[source], output=[target])
        node.name = names.node(f"{source}_to_{want.value}")
        node.attribute.add(name="to", type=onnx.AttributeProto.INT, i=ONNX_TYPE[want])
        return [node]

    def finish(
        self, proto: onnx.NodeProto, node: ir.Node, assignment: Assignment, names: Names
    ) -> list[onnx.NodeProto]:
        fmt = assignment.of(node)
        site = assignment.sites.of[node]
        if fmt is not Format.FP32 and site.outputs and site.outputs[0]:
            _retarget(proto, fmt)
        return [proto]

    def spell_weight(self, weight: Weight, names: Names, *, main: bool) -> SpelledWeight:
        if weight.fmt is None or _unchanged(weight):
            if not main or weight.tensor.nbytes <= INLINE_BYTES:
                proto = ir.serde.serialize_tensor(_loaded(weight.tensor))
                proto.name = weight.name
                return SpelledWeight(proto)
        elif not main or weight.tensor.nbytes <= INLINE_BYTES:
            return SpelledWeight(to_tensor_proto(weight.name, convert_weight(weight.tensor, weight.fmt), weight.fmt))
        element_type = weight.tensor.dtype.value if weight.fmt is None else ONNX_TYPE[weight.fmt]
        proto = onnx.TensorProto(name=weight.name, data_type=element_type, dims=weight.tensor.shape.numpy())
        return SpelledWeight(proto, weight)


def typed_proto(assignment: Assignment) -> onnx.ModelProto:
    """The typed model in memory, weights and all; meant for models of moderate size."""
    written = rewrite(assignment, TypedDialect())
    _embed(written)
    return written.proto


def write_typed(assignment: Assignment, path: Path) -> TypedModel:
    """Write the typed model; large weights go one by one into `<name>.data` beside it. Nothing is left half-written."""
    written = rewrite(assignment, TypedDialect())
    pending = {weight.name: weight for weight in written.weights}
    clamped = tuple(w.name for w in written.weights if w.fmt is not None and _overflows(w))
    total = sum(_bytes(weight) for weight in written.weights)
    try:
        if total <= EMBED_BYTES:
            _embed(written)
            data = None
        else:
            data = path.with_name(path.name + ".data")
            with _whole_file(data) as file:
                offset = 0
                for tensor in written.proto.graph.initializer:
                    if tensor.name in pending:
                        offset = _append(file, offset, tensor, pending[tensor.name], data.name)
        with _whole_file(path) as file:
            file.write(written.proto.SerializeToString())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    return TypedModel(path, data, written.casts, clamped)


def _embed(written: Rewritten) -> None:
    pending = {weight.name: weight for weight in written.weights}
    for tensor in written.proto.graph.initializer:
        if tensor.name in pending:
            tensor.raw_data = _content(pending[tensor.name])


def _append(file: object, offset: int, tensor: onnx.TensorProto, weight: Weight, location: str) -> int:
    content = _content(weight)
    padding = -offset % _ALIGNMENT if len(content) >= _ALIGNMENT else 0
    file.write(b"\0" * padding)  # type: ignore[attr-defined]
    file.write(content)  # type: ignore[attr-defined]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset + padding)), ("length", str(len(content)))):
        tensor.external_data.add(key=key, value=value)
    return offset + padding + len(content)


def _content(weight: Weight) -> bytes:
    if weight.fmt is None:
        return bytes(weight.tensor.tobytes())
    return np.ascontiguousarray(convert_weight(weight.tensor, weight.fmt)).tobytes()


def _bytes(weight: Weight) -> int:
    if weight.fmt is None:
        return weight.tensor.nbytes
    return weight.tensor.size * weight.fmt.dtype.itemsize


def _overflows(weight: Weight) -> bool:
    if weight.fmt in (None, Format.FP32) or weight.tensor.dtype is not ir.DataType.FLOAT:
        return False
    array = np.asarray(weight.tensor.numpy())
    assert weight.fmt is not None
    return bool(np.any((np.abs(array) > weight.fmt.max) & np.isfinite(array)))


def _unchanged(weight: Weight) -> bool:
    return weight.fmt is not None and weight.tensor.dtype.value == ONNX_TYPE[weight.fmt]


def _loaded(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor that stands in a file of its own, as one in memory."""
    if isinstance(tensor, ir.ExternalTensor):
        return ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=tensor.name)
    return tensor


def _retarget(proto: onnx.NodeProto, fmt: Format) -> None:
    """Attributes that name the type of an output follow the output."""
    if proto.op_type == "ConstantOfShape":
        value = next((a for a in proto.attribute if a.name == "value"), None)
        if value is None:
            value = proto.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
            fill = np.zeros(1, dtype=np.float32)
        else:
            fill = np.asarray(ir.serde.deserialize_tensor(value.t).numpy(), dtype=np.float32)
        narrow = convert_weight(ir.Tensor(fill), fmt)
        value.t.CopyFrom(to_tensor_proto("", narrow, fmt))
        return
    name = DTYPE_ATTRIBUTES.get(proto.op_type)
    if name is None:
        return
    for attribute in proto.attribute:
        if attribute.name == name:
            attribute.i = ONNX_TYPE[fmt]
            return
    if proto.op_type != "EyeLike":  # without the attribute it follows its input
        proto.attribute.add(name=name, type=onnx.AttributeProto.INT, i=ONNX_TYPE[fmt])


@contextmanager
def _whole_file(path: Path) -> Iterator[object]:
    """A file that appears under its name only when it is complete."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
