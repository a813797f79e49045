"""Writes the typed FP16/FP32 model: casts where the precision changes only, weights in the format that reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import onnx
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.whole_files import WholeFiles
from halfwise.model.map_outputs import put_maps_back
from halfwise.model.model import Model
from halfwise.model.ops import WIDENED_ATTRIBUTES
from halfwise.model.passing import Passing
from halfwise.model.weights import convert_fill, place_of, weight_content, whole_tensor
from halfwise.precision.assignment import Assignment
from halfwise.precision.proto_stream import Streamed, write_streamed
from halfwise.precision.rewrite import Names, Rewritten, SpelledWeight, Weight, rewrite
from halfwise.precision.sites import native_format

__all__ = ["TypedModel", "least_bytes", "typed_proto", "write_typed"]

INLINE_BYTES = 1024  # smaller weights always stand in the protobuf
EMBED_BYTES = 256 << 20  # a model with more weights than this keeps them in a file of their own
_ALIGNMENT = 4096
_FOLLOWING = ("EyeLike", "DequantizeLinear")  # without the attribute their outputs have the type of an input


@dataclass(frozen=True)
class TypedModel:
    """What was written: the model file, its weight file where there is one, casts added and weights clamped."""

    path: Path
    data: Path | None
    casts: int
    clamped: tuple[str, ...]


class TypedWriter:
    """Every tensor has the type of the format it is kept in. `clamped` gathers what did not fit its format."""

    def __init__(self) -> None:
        self.clamped: dict[str, None] = {}

    def tensor_type(self, native: int, fmt: Format) -> int:
        return fmt.onnx_type

    def is_alias(self, have: Format, want: Format) -> bool:
        return have is want

    def convert(self, source: str, target: str, have: Format, want: Format, names: Names) -> list[onnx.NodeProto]:
        node = onnx.NodeProto(op_type="Cast", input=[source], output=[target])
        node.name = names.node(f"{source}_to_{want.value}")
        node.attribute.add(name="to", type=onnx.AttributeProto.INT, i=want.onnx_type)
        return [node]

    def finish(
        self, proto: onnx.NodeProto, node: ir.Node, assignment: Assignment, names: Names
    ) -> list[onnx.NodeProto]:
        if not node.domain and node.outputs:
            made = node.outputs[0]
            fmt = assignment.stored(made)
            if fmt is not None and fmt is not native_format(made):
                self._retarget(proto, fmt)
        return [proto]

    def spell_weight(self, weight: Weight, names: Names, *, main: bool) -> SpelledWeight:
        inline = not main or weight.tensor.nbytes <= INLINE_BYTES
        if inline and (weight.fmt is None or weight.tensor.dtype.value == weight.fmt.onnx_type):
            return SpelledWeight(whole_tensor(weight.name, weight.tensor))
        element_type = weight.tensor.dtype.value if weight.fmt is None else weight.fmt.onnx_type
        proto = onnx.TensorProto(name=weight.name, data_type=element_type, dims=weight.tensor.shape.numpy())
        if inline:
            proto.raw_data = b"".join(self.content(weight))
            return SpelledWeight(proto)
        return SpelledWeight(proto, weight)

    def content(self, weight: Weight) -> Iterator[bytes | memoryview]:
        """A weight's bytes in its format, piece by piece."""
        for piece, clamped in weight_content(weight.tensor, weight.fmt):
            if clamped:
                self.clamped[weight.name] = None
            yield piece

    def _retarget(self, proto: onnx.NodeProto, fmt: Format) -> None:
        """Attributes that name the type of an output follow the output."""
        if proto.op_type == "ConstantOfShape":
            if convert_fill(proto, fmt, fmt):
                self.clamped[proto.output[0]] = None
            return
        name = WIDENED_ATTRIBUTES.get(proto.op_type)
        if name is None:
            return
        for attribute in proto.attribute:
            if attribute.name == name:
                if proto.op_type == "DequantizeLinear":  # its scale is as narrow; ONNX Runtime retypes the node without
                    proto.attribute.remove(attribute)  # changing what is stated here, and then refuses it
                else:
                    attribute.i = fmt.onnx_type
                return
        if proto.op_type not in _FOLLOWING:
            proto.attribute.add(name=name, type=onnx.AttributeProto.INT, i=fmt.onnx_type)


def typed_proto(assignment: Assignment) -> onnx.ModelProto:
    """The typed model in memory, weights and all; meant for models of moderate size."""
    writer = TypedWriter()
    written = _rewritten(assignment, writer)
    _embed(written, writer)
    return written.proto


def write_typed(
    assignment: Assignment,
    path: Path,
    files: WholeFiles | None = None,
    written_of: Callable[[int, int], None] = lambda *_: None,
) -> TypedModel:
    """Write the typed model, as part of a batch if one is given; large weights go one by one into `<name>.data`.

    `written_of` is told how many of its weights are.
    """
    if files is None:
        with WholeFiles() as own:
            return write_typed(assignment, path, own, written_of)
    writer = TypedWriter()
    written = _rewritten(assignment, writer)
    total = sum(_bytes(weight) for weight in written.weights)
    data = path.with_name(path.name + ".data") if total > EMBED_BYTES else None
    place = files.place(path)
    files.need(data or path, total)
    if data is None:
        with place.open("wb") as file:
            write_streamed(file, written.proto, _taken_out(written, writer))
    else:
        with files.place(data).open("wb") as file:
            _append_all(file, written, writer, data.name, written_of)
        place.write_bytes(written.proto.SerializeToString())
    return TypedModel(path, data, written.casts, tuple(writer.clamped))


def _rewritten(assignment: Assignment, writer: TypedWriter) -> Rewritten:
    written = rewrite(assignment, writer)
    put_maps_back(written.proto, assignment.sites.model.maps)
    return written


def least_bytes(model: Model) -> int:
    """What the weights of a typed model take at least: with every node narrow, and each place of the file once."""
    read = (v.const_value for v in model.graph.initializers.values() if v.const_value is not None and v.uses())
    once = {place_of(tensor) or tensor: tensor for tensor in read}.values()
    return sum(2 * tensor.size if tensor.dtype is ir.DataType.FLOAT else tensor.nbytes for tensor in once)


def _taken_out(written: Rewritten, writer: TypedWriter) -> list[Streamed]:
    """The initializers that are filled, as they are to be written; the model keeps the others."""
    pending = {weight.name: weight for weight in written.weights}
    graph = written.proto.graph
    every = list(graph.initializer)
    del graph.initializer[:]
    graph.initializer.extend(tensor for tensor in every if tensor.name not in pending)
    filled = [tensor for tensor in every if tensor.name in pending]
    return [Streamed(t, _bytes(pending[t.name]), writer.content(pending[t.name])) for t in filled]


def _embed(written: Rewritten, writer: TypedWriter) -> None:
    pending = {weight.name: weight for weight in written.weights}
    for tensor in written.proto.graph.initializer:
        if tensor.name in pending:
            tensor.raw_data = b"".join(writer.content(pending[tensor.name]))


def _append_all(
    file: IO[bytes], written: Rewritten, writer: TypedWriter, location: str, written_of: Callable[[int, int], None]
) -> None:
    pending = {weight.name: weight for weight in written.weights}
    outside = [tensor for tensor in written.proto.graph.initializer if tensor.name in pending]
    passing = Passing([pending[tensor.name].tensor] for tensor in outside)
    for number, tensor in enumerate(outside):
        written_of(number, len(outside))
        passing.at(number)
        weight = pending[tensor.name]
        length = _bytes(weight)
        if length >= _ALIGNMENT:
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
        offset = file.tell()
        for piece in writer.content(weight):
            file.write(piece)
        assert file.tell() == offset + length
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
    passing.end()


def _bytes(weight: Weight) -> int:
    if weight.fmt is None:
        return weight.tensor.nbytes
    return weight.tensor.size * weight.fmt.dtype.itemsize
