"""Checkpoints: the weights of a network without its graph, found in files and folders, read where they lie."""

from __future__ import annotations

from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import identify, not_wanted
from halfwise.core.files.kinds import FileKind
from halfwise.model.checkpoints.checkpoint import Checkpoint, StoredTensor
from halfwise.model.checkpoints.pytorch import read_pytorch
from halfwise.model.checkpoints.safetensors import read_safetensors
from halfwise.model.checkpoints.shards import INDEX, read_index

__all__ = ["Checkpoint", "StoredTensor", "is_checkpoint", "read_checkpoint"]

_SAFETENSORS = ".safetensors"
_PYTORCH = (".pth", ".pt", ".bin", ".ckpt")
_UNSURE = {FileKind.BINARY, FileKind.RAW, FileKind.EMPTY, FileKind.TEXT, FileKind.CUT_OFF}
_CHECKPOINTS = {FileKind.SAFETENSORS, FileKind.CHECKPOINT, FileKind.TORCHSCRIPT, FileKind.PICKLE, *_UNSURE}


def is_checkpoint(path: Path) -> bool:
    """By its name: an ONNX file is none, a folder is one unless it only holds ONNX files."""
    if path.is_dir():
        return bool(_indices(path) or _files(path))
    return path.name.endswith(INDEX) or path.suffix.lower() in (_SAFETENSORS, *_PYTORCH)


def read_checkpoint(path: Path) -> Checkpoint:
    """Every tensor of a checkpoint; anything unfit raises one clear InputError."""
    if not path.exists():
        raise absent(path)
    try:
        if path.is_dir():
            return _read_folder(path)
        if path.name.endswith(INDEX):
            return read_index(path, _read_file)
        return _read_file(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_file(path: Path) -> Checkpoint:
    if identify(path).kind not in _CHECKPOINTS and (told := not_wanted(path, "a checkpoint", "")):
        raise InputError(told)
    return read_safetensors(path) if path.suffix.lower() == _SAFETENSORS else read_pytorch(path)


def _read_folder(folder: Path) -> Checkpoint:
    """The index where there is one; else the safetensors; else PyTorch's files."""
    indices = _indices(folder)
    if indices:
        return read_index(indices[0], _read_file)
    files = _files(folder)
    parts = [_read_file(file) for file in files]
    if len(parts) == 1:
        return parts[0]
    owner: dict[str, Path] = {}
    for file, part in zip(files, parts, strict=True):
        for tensor in part.tensors:
            if tensor.name in owner:
                raise InputError(
                    f"{folder}: {owner[tensor.name].name} and {file.name} both hold a tensor {tensor.name!r}; "
                    "they are different checkpoints: name one of them"
                )
            owner[tensor.name] = file
    return Checkpoint.joined(folder, parts)


def _indices(folder: Path) -> list[Path]:
    """Safetensors first."""
    return sorted(folder.glob(f"*{INDEX}"), key=lambda path: (_SAFETENSORS not in path.name, path.name))


def _files(folder: Path) -> list[Path]:
    for suffixes in ((_SAFETENSORS,), _PYTORCH):
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file())
        if found:
            return found
    return []
