"""Reads a model file into a protobuf and refuses, with one clear line, what is no sound ONNX model."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx_ir import DataType

from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.exhausted import out_of_memory
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import not_wanted
from halfwise.model.held_graphs import held_graphs
from halfwise.model.weights_in_place import without_weights

__all__ = ["byte_size", "check_proto", "check_rank", "every_graph", "every_tensor", "own_name", "read_proto"]

_LARGE = 1 << 25  # bytes of a file whose weights stay in it
_MAPPED = frozenset(
    kind
    for kind in DataType
    if kind not in (DataType.UNDEFINED, DataType.STRING) and kind.bitwidth in (4, 8, 16, 32, 64)
)


def read_proto(path: Path) -> tuple[onnx.ModelProto, str]:
    """The model in a file, without its external data, and the file's SHA-256: empty where weights stay in the file."""
    if not path.exists():
        raise absent(path)
    if path.is_dir():
        raise InputError(_not_onnx(path, f"{path} is a folder; name the .onnx file in it"))
    if not path.is_file():
        raise InputError(f"{path} is no regular file")
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise InputError(f"{path} is empty; export or copy the model again")
            if size > limits.LARGEST_MODEL_FILE:
                large = f"{path} is larger than an ONNX file can be (2 GB); save it with external data"
                raise InputError(_not_onnx(path, large))
            # Mapped, so that the bytes of a large file are not held beside what is parsed from them.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                with memoryview(content) as view:
                    light = _light(view, path) if size >= _LARGE else None
                    proto = light or _parse(view, path)
                digest = "" if light is not None else hashlib.sha256(content).hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise InputError(_not_onnx(path, f"{path} is not an ONNX model (no graph in it)"))
    return proto, digest


def _not_onnx(path: Path, otherwise: str) -> str:
    return not_wanted(path, "an ONNX model", otherwise)


def _light(content: memoryview, path: Path) -> onnx.ModelProto | None:
    """Without its large weights; None where the whole file has to be parsed."""
    name = own_name(path)
    found = without_weights(content, name)
    if found is None:
        return None
    try:
        proto = onnx.ModelProto.FromString(found)
    except Exception:  # whatever it is, the whole file tells
        return None
    outside = [tensor for tensor in every_tensor(proto) if tensor.external_data]
    return proto if all(_may_stay(tensor, name) for tensor in outside) else None


def _may_stay(tensor: onnx.TensorProto, name: str) -> bool:
    """Whether what stayed in the file is what shape and type require."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    if told.get("location") != name:
        return True
    is_known = tensor.data_type in _MAPPED and min(tensor.dims, default=0) >= 0
    return is_known and told.get("length") == str(byte_size(tensor))


def own_name(path: Path) -> str:
    """How external data names the model's file itself; a link's is the file's that it leads to."""
    return path.resolve().name if path.is_symlink() else path.name


def _parse(content: memoryview, path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception as error:
        if out_of_memory(error):
            raise
        told = f"{path} is not an ONNX model, nor a file of another known kind: export or copy the model again"
        raise InputError(_not_onnx(path, told)) from None
    return proto


def check_proto(proto: onnx.ModelProto, label: str) -> None:
    """Refuse versions that are not understood and tensors whose content does not fit their declaration."""
    _check_nodes(proto, label)
    _check_opset(proto, label)
    if not proto.graph.output:
        raise InputError(f"{label} has no outputs: there is nothing to compare")
    for tensor in every_tensor(proto):
        _check_tensor(tensor, label)
    for value in proto.graph.input:
        _check_input(value.type, f"{label}: the input {value.name!r}")


def _check_input(kind: onnx.TypeProto, where: str) -> None:
    """Of a sequence or an optional, what it holds."""
    while (held := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, held).elem_type
    if held == "map_type":
        raise InputError(f"{where} is a map; tensors, sequences and optionals can be fed")
    check_rank(len(kind.tensor_type.shape.dim), where)


def check_rank(rank: int, where: str) -> None:
    """Refuse a tensor that NumPy cannot hold."""
    if rank > limits.MOST_DIMENSIONS:
        raise InputError(f"{where} has {rank} dimensions; tensors are read up to {limits.MOST_DIMENSIONS}")


def _check_nodes(proto: onnx.ModelProto, label: str) -> None:
    """Names that are no text come out of the protobuf as bytes; a damaged file has them."""
    known = set(onnx.AttributeProto.AttributeType.values()) - {onnx.AttributeProto.UNDEFINED}
    _count_nodes(proto, label)
    nodes = (node for holder in (*every_graph(proto), *proto.functions) for node in holder.node)
    for node in nodes:
        for name in (node.op_type, node.domain, node.name, *node.input, *node.output):
            _check_name(name, label)
        _check_text(node.doc_string, label)
        for entry in node.metadata_props:
            _check_text(entry.key, label)
            _check_text(entry.value, label)
        given: set[str] = set()
        for attribute in node.attribute:
            _check_name(attribute.name, label)
            if attribute.name in given:
                raise InputError(f"{label}: node {node.name!r} has its attribute {attribute.name!r} twice")
            given.add(attribute.name)
            if attribute.type not in known:
                raise InputError(f"{label}: the attribute {attribute.name!r} of node {node.name!r} has no known type")
            if attribute.type == onnx.AttributeProto.TENSOR and not (
                attribute.HasField("t") or attribute.ref_attr_name
            ):
                raise InputError(f"{label}: the attribute {attribute.name!r} of node {node.name!r} holds no tensor")
    for entry in (*proto.metadata_props, *(e for graph in every_graph(proto) for e in graph.metadata_props)):
        _check_text(entry.key, label)
        _check_text(entry.value, label)
    imports = (*proto.opset_import, *(entry for function in proto.functions for entry in function.opset_import))
    domains = (entry.domain for entry in imports)
    for text in (proto.producer_name, proto.producer_version, proto.domain, proto.doc_string, *domains):
        _check_text(text, label)
    for graph in every_graph(proto):
        _check_text(graph.name, label)
        _check_text(graph.doc_string, label)
        for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            _check_name(named.name, label)
        if not all(named.name for named in (*graph.input, *graph.initializer)):
            raise InputError(f"{label}: the graph {graph.name!r} has an input or an initializer without a name")
        _check_once(graph, label)
        made = {named.name for named in (*graph.input, *graph.initializer)}
        for name in (name for node in graph.node for name in node.output if name):
            if name in made:
                raise InputError(f"{label}: the tensor {name!r} is produced twice")
            made.add(name)


def _check_once(graph: onnx.GraphProto, label: str) -> None:
    """Of a sparse initializer and another of its name, one reader takes the first and another one the last."""
    known = {tensor.name for tensor in graph.initializer}
    for name in (sparse.values.name for sparse in graph.sparse_initializer):
        if name in known:
            raise InputError(f"{label}: the initializer {name!r} is there twice; export the model again")
        known.add(name)


def _count_nodes(proto: onnx.ModelProto, label: str) -> None:
    """Each graph is counted before its nodes are looked at."""
    count = sum(len(function.node) for function in proto.functions)
    for graph in every_graph(proto):
        count += len(graph.node)
        if count > limits.MOST_NODES:
            raise InputError(f"{label} has {count} nodes or more; models are read up to {limits.MOST_NODES}")


def _check_name(name: object, label: str) -> None:
    _check_text(name, label)
    if len(str(name)) > limits.LONGEST_NAME:
        raise InputError(
            f"{label} has a name of {len(str(name))} characters; names are read up to {limits.LONGEST_NAME}"
        )


def _check_text(text: object, label: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"{label} is damaged (a name in it is no text); copy or export it again")


def _check_opset(proto: onnx.ModelProto, label: str) -> None:
    newest = onnx.defs.onnx_opset_version()
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions and any(node.domain in ("", "ai.onnx") for graph in every_graph(proto) for node in graph.node):
        raise InputError(f"{label} does not say which opset it uses; export it again")
    for version in versions:
        if version > newest:
            raise InputError(
                f"{label} uses opset {version}; the installed onnx package knows up to {newest}: upgrade onnx"
            )


# Where the content of a tensor may stand, in one of them.
_FIELDS = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")


def _check_tensor(tensor: onnx.TensorProto, label: str) -> None:
    where = f"{label}: the tensor {tensor.name!r}"
    try:
        data_type = DataType(tensor.data_type)
    except ValueError:
        raise InputError(f"{where} has an unknown element type ({tensor.data_type})") from None
    if data_type is DataType.UNDEFINED:
        raise InputError(f"{where} has no element type")
    check_rank(len(tensor.dims), where)
    if any(dim < 0 for dim in tensor.dims):
        raise InputError(f"{where} has a negative dimension")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if data_type is DataType.STRING:
            raise InputError(f"{where} holds strings in external data, which the format does not allow")
        return
    if not _has_content(tensor, data_type):
        shape = "x".join(map(str, tensor.dims)) or "scalar"
        raise InputError(f"{where} does not hold the content that its shape ({shape}) and type require")


def _has_content(tensor: onnx.TensorProto, data_type: DataType) -> bool:
    elements = _elements(tensor)
    if sum(bool(getattr(tensor, field)) for field in _FIELDS) > 1:
        return False
    if data_type is DataType.STRING:
        return len(tensor.string_data) == elements
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) == byte_size(tensor)
    if data_type in (DataType.FLOAT, DataType.COMPLEX64):
        return len(tensor.float_data) == elements * (2 if data_type is DataType.COMPLEX64 else 1)
    if data_type in (DataType.DOUBLE, DataType.COMPLEX128):
        return len(tensor.double_data) == elements * (2 if data_type is DataType.COMPLEX128 else 1)
    if data_type is DataType.INT64:
        return len(tensor.int64_data) == elements
    if data_type in (DataType.UINT32, DataType.UINT64):
        return len(tensor.uint64_data) == elements
    packed = max(1, 8 // data_type.bitwidth)
    return len(tensor.int32_data) == -(-elements // packed)


def _elements(tensor: onnx.TensorProto) -> int:
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    return elements


def byte_size(tensor: onnx.TensorProto) -> int:
    """How many bytes the content of a tensor takes."""
    return (_elements(tensor) * DataType(tensor.data_type).bitwidth + 7) // 8


def every_graph(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and all that nodes hold, those in functions included."""
    yield proto.graph
    stack: list[Iterable[onnx.NodeProto]] = [proto.graph.node, *(function.node for function in proto.functions)]
    while stack:
        for graph in (each for node in stack.pop() for each in held_graphs(node)):
            yield graph
            stack.append(graph.node)


def every_tensor(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers, sparse ones, and the tensors in attributes."""
    for graph in every_graph(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        yield from _in_attributes(graph.node)
    for function in proto.functions:
        yield from _in_attributes(function.node)


def _in_attributes(nodes: Iterator[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
