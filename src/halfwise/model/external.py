"""External data of a model: that every weight file is there, long enough, and inside the model's folder."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.real_path import real_path
from halfwise.model.bodies import graphs_in
from halfwise.model.proto_file import byte_size, every_tensor, own_name

__all__ = ["beside_its_data", "check_external_data", "data_folder", "external_files", "holds_own_weights", "read_small"]

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
    return tuple(_place(each, path) for each in _locations(proto) if each != own_name(path))


def holds_own_weights(proto: onnx.ModelProto, path: Path) -> bool:
    """Whether weights stay in the model's own file."""
    return own_name(path) in _locations(proto)


def _locations(proto: onnx.ModelProto) -> dict[str, None]:
    named = (entry for tensor in _external_tensors(proto) for entry in tensor.external_data)
    return dict.fromkeys(entry.value for entry in named if entry.key == "location")


def data_folder(proto: onnx.ModelProto, path: Path) -> str:
    """What the places of external data are relative to. Those of a model that is a link, or of files with several names
    (hard links), become absolute and relative to nothing: the library that reads weights checks what lies in a folder
    once more, and takes neither."""
    if not path.is_symlink() and all(file.stat().st_nlink == 1 for file in (path, *external_files(proto, path))):
        return str(path.parent)
    for tensor in _external_tensors(proto):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = str(real_path(path if entry.value == own_name(path) else _place(entry.value, path)))
    return ""


def beside_its_data(proto: onnx.ModelProto, path: Path) -> Path:
    """The model for a library that looks for data in the folder of the path that it gets, links or not."""
    names = [each for each in _locations(proto) if each != own_name(path)]
    return path if all(_place(each, path) == path.parent / each for each in names) else real_path(path)


def _place(location: str, path: Path) -> Path:
    """Beside the model, or else, where it is a link, beside the file that it leads to."""
    beside = path.parent / location
    return beside if beside.exists() or not path.is_symlink() else real_path(path).parent / location


def read_small(model: ir.Model) -> None:
    """Exporters may put every tensor into external data, shapes and scalars included: these are held as any other."""
    for graph in (model.graph, *graphs_in(model.graph)):
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
    resolved = path if absolute else real_path(_place(location, path))
    if absolute or ".." in parts or not any(map(resolved.is_relative_to, folders)):
        raise InputError(
            f"{path}: initializer {tensor!r} points outside the model's folder ({location!r}); "
            "such files are never read; put the data beside the model"
        )
    return resolved


def _size(file: Path, location: str, tensor: str, path: Path) -> int:
    """Bytes of a regular file that is there."""
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
    # A name may have been given to somebody else's file; of one's own, it is as good as a copy.
    if there.st_nlink > 1 and _owner(file) != _owner(path):
        raise InputError(
            f"{path}: the external data file {location!r} of initializer {tensor!r} has "
            f"{there.st_nlink} names (hard links) and another owner than the model: it may lie outside the model's "
            "folder, too; put a copy in its place"
        )
    return there.st_size


def _owner(file: Path) -> int:
    return file.stat().st_uid


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
