"""External data of a model: that every weight file is there, long enough, and inside the model's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.real_path import real_path
from halfwise.model.proto_file import byte_size, every_tensor, own_name

__all__ = ["check_external_data", "data_folder", "external_files", "holds_own_weights", "read_small"]

_SMALL = 1 << 10  # bytes of a tensor that is read at once: sizes and axes decide what a graph computes


def check_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Raise one clear InputError where a weight file is missing, too short, or outside the model's folder."""
    folders, own = {real_path(path.parent), real_path(path).parent}, own_name(path)
    sizes: dict[Path, int] = {}
    for tensor in _external_tensors(proto):
        fields = _fields(tensor, path)
        location = fields.get("location", "")
        if not location:
            raise InputError(
                f"{path}: initializer {tensor.name!r} lies in external data, but no file is named; export it again"
            )
        file = path if location == own else _inside(folders, location, tensor.name, path)
        if file not in sizes:
            sizes[file] = _size(file, location, tensor.name, path)
        start, length = _extent(fields, tensor.name, path)
        end = start + max(length, byte_size(tensor))
        if start < 0 or length < 0 or end > sizes[file]:
            raise InputError(
                f"{path}: the external data file {location!r} ends before initializer {tensor.name!r} "
                f"({end} bytes needed, {sizes[file]} there); copy the file again"
            )


def external_files(proto: onnx.ModelProto, path: Path) -> tuple[Path, ...]:
    """The model's external data files, each once, in the order of their first use; its own file is none."""
    return tuple(path.parent / each for each in _locations(proto) if each != own_name(path))


def holds_own_weights(proto: onnx.ModelProto, path: Path) -> bool:
    """Whether weights stay in the model's own file."""
    return own_name(path) in _locations(proto)


def _locations(proto: onnx.ModelProto) -> dict[str, None]:
    named = (entry for tensor in _external_tensors(proto) for entry in tensor.external_data)
    return dict.fromkeys(entry.value for entry in named if entry.key == "location")


def data_folder(proto: onnx.ModelProto, path: Path) -> Path:
    """What the places of external data are relative to. The data of a model that is a link may lie beside the link and
    beside the file: it is named anew from a folder that holds all."""
    if not path.is_symlink():
        return path.parent
    own, place = real_path(path), dict[str, Path]()
    entries = [each for tensor in _external_tensors(proto) for each in tensor.external_data if each.key == "location"]
    for entry in entries:
        place[entry.value] = own if entry.value == own_name(path) else real_path(path.parent / entry.value)
    folder = Path(os.path.commonpath([file.parent for file in (place or {"": own}).values()]))
    for entry in entries:
        entry.value = place[entry.value].relative_to(folder).as_posix()
    return folder


def read_small(model: ir.Model) -> None:
    """Exporters may put every tensor into external data, shapes and scalars included: these are held as any other."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            held = value.const_value
            if isinstance(held, ir.ExternalTensor) and held.nbytes <= _SMALL:
                sizes = held.shape.numpy()
                read = onnx.TensorProto(
                    name=held.name,
                    data_type=held.dtype.value,
                    dims=sizes,
                    raw_data=held.tobytes() if held.size else b"",
                )
                value.const_value = ir.TensorProtoTensor(read)


def _fields(tensor: onnx.TensorProto, path: Path) -> dict[str, str]:
    """Each key once: of two, one reader takes the first and another one the last."""
    keys = [entry.key for entry in tensor.external_data]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path}: the external data of initializer {tensor.name!r} says {twice!r} twice; export the model again"
        )
    return {entry.key: entry.value for entry in tensor.external_data}


def _inside(folders: Set[Path], location: str, tensor: str, path: Path) -> Path:
    """Hubs keep a model and its data as links into one folder of contents, which is the model's, too."""
    parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
    absolute = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
    resolved = path if absolute else real_path(path.parent / location)
    if absolute or ".." in parts or not any(map(resolved.is_relative_to, folders)):
        raise InputError(
            f"{path}: initializer {tensor!r} points outside the model's folder ({location!r}); "
            "such files are never read; put the data beside the model"
        )
    return resolved


def _size(file: Path, location: str, tensor: str, path: Path) -> int:
    """Bytes of a regular file that is there under one name."""
    if file.exists() and not file.is_file():
        raise InputError(
            f"{path}: the external data of initializer {tensor!r} ({location!r}) is no regular file; "
            "put the data beside the model"
        )
    if not file.is_file():
        raise InputError(
            f"{path}: the external data file {location!r} of initializer {tensor!r} is missing; put it beside the model"
        )
    there = file.stat()
    if there.st_nlink > 1:  # the library that reads weights refuses them: another name may lie outside
        raise InputError(
            f"{path}: the external data file {location!r} of initializer {tensor!r} has "
            f"{there.st_nlink} names (hard links) and may lie outside the model's folder, too; "
            "put a copy in its place"
        )
    return there.st_size


def _extent(fields: dict[str, str], tensor: str, path: Path) -> tuple[int, int]:
    """Where the tensor begins in its file, and how many bytes it states."""
    try:
        return int(fields.get("offset", 0) or 0), int(fields.get("length", 0) or 0)
    except ValueError:
        raise InputError(
            f"{path}: initializer {tensor!r} has an external offset or length that is no number; export the model again"
        ) from None


def _external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (tensor for tensor in every_tensor(proto) if tensor.data_location == onnx.TensorProto.EXTERNAL)
