"""Reads PyTorch's checkpoints without running any code of theirs: what is no plain tensor or container is refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.exhausted import not_loaded
from halfwise.model.checkpoints.archive import records_of
from halfwise.model.checkpoints.checkpoint import Aliases, Checkpoint, StoredTensor
from halfwise.model.checkpoints.state import find_state
from halfwise.model.elements import STORED_TYPES, Elements, Stretch

if TYPE_CHECKING:
    import torch

__all__ = ["read_pytorch"]

_ALONE = "save its state_dict() alone: torch.save(model.state_dict(), 'weights.pth')"
_OBJECT = re.compile(r"GLOBAL `?([\w.]+)`?")


def read_pytorch(path: Path) -> Checkpoint:
    """The tensors of the network in a `.pth` or `.pt` file; what else was saved beside them is left out."""
    torch = _torch()
    records = records_of(path)
    try:
        document = _load(torch, path, "meta" if records else "cpu")
    except NotImplementedError:  # quantised tensors do not exist without their values: read it as a whole
        records, document = {}, _load(torch, path, "cpu")
    state = find_state(document, lambda value: isinstance(value, torch.Tensor))
    if not state.tensors:
        raise InputError(f"{path} holds no tensors under any name; {_ALONE}")
    if records and not all(_lies_in(tensor, records) for tensor in state.tensors.values() if _is_plain(torch, tensor)):
        records = {}  # an older PyTorch that does not tell where, or an archive of another kind: read it as a whole
        state = find_state(_load(torch, path, "cpu"), lambda value: isinstance(value, torch.Tensor))
    aliases, first, other = Aliases(), {}, []
    for name, tensor in state.tensors.items():
        kind = _kind(torch, tensor)
        if kind is None:
            other.append(name)
            continue
        place = (_start(tensor), _once(tensor).numel(), kind) if tensor.numel() else name
        if not aliases.known(place, name):
            first[place] = _stored(path, name, kind, tensor, bool(records))
    tensors = tuple(
        StoredTensor(each.name, each.dtype, each.shape, each.elements, aliases.of(place))
        for place, each in first.items()
    )
    return Checkpoint(path, (path,), tensors, tuple(other), state.notes)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise not_loaded(error, "PyTorch's checkpoints are read with torch: pip install 'halfwise[torch]'") from None
    return torch


def _load(torch: Any, path: Path, device: str) -> Any:
    """With `meta`, only names, shapes and places are read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location=device, weights_only=True)
    except OSError:
        raise
    except Exception as error:
        if device == "meta" and isinstance(error, NotImplementedError):
            raise
        text = str(error)
        if "TorchScript" in text:
            raise InputError(f"{path} is a TorchScript program, which only code can read; {_ALONE}") from None
        if "Weights only load failed" in text:
            named = _OBJECT.search(text)
            what = f" ({named.group(1)})" if named is not None else ""
            raise InputError(
                f"{path} holds more than tensors{what}: reading that would run code from the file, "
                f"which is never done; {_ALONE}"
            ) from None
        raise InputError(f"{path} is no whole PyTorch checkpoint; copy or save it again") from None


def _is_plain(torch: Any, tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized


def _kind(torch: Any, tensor: torch.Tensor) -> str | None:
    known = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
    return known.get(tensor.dtype) if _is_plain(torch, tensor) else None


def _offset(tensor: torch.Tensor) -> int | None:
    return getattr(tensor.untyped_storage(), "_checkpoint_offset", None)


def _start(tensor: torch.Tensor) -> int:
    """Where the first element lies, in the file or in memory."""
    base = _offset(tensor)
    if base is None:
        base = tensor.untyped_storage().data_ptr()
    return int(base) + int(tensor.storage_offset()) * int(tensor.element_size())


def _lies_in(tensor: torch.Tensor, records: dict[int, int]) -> bool:
    """Whether the archive has all of the tensor where PyTorch says it is."""
    base = _offset(tensor)
    if base is None:
        return False
    last = int(tensor.storage_offset()) + _span(tensor)
    return bool(tensor.numel() == 0 or last * tensor.element_size() <= records.get(base, -1))


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """Without the axes along which every element is the same one."""
    for axis in reversed(range(tensor.dim())):
        if tensor.stride(axis) == 0 and tensor.shape[axis] > 1:
            tensor = tensor.select(axis, 0)
    return tensor


def _span(tensor: torch.Tensor) -> int:
    """How many elements of its storage lie between its first and its last one."""
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _stored(path: Path, name: str, kind: str, tensor: torch.Tensor, in_file: bool) -> StoredTensor:
    tensor = _once(tensor)
    shape = tuple(int(size) for size in tensor.shape)
    span = _span(tensor)
    if tensor.numel() > span:
        raise InputError(f"{path}: tensor {name!r} reads elements of its storage more than once; {_ALONE}")
    if not in_file:
        return StoredTensor(name, kind, shape, Elements(_array(kind, tensor.detach().contiguous())))
    dtype = STORED_TYPES[kind]
    if tensor.is_contiguous() or not tensor.numel():
        return StoredTensor(
            name, kind, shape, Elements(Stretch(path, _start(tensor), dtype, tensor.numel(), f"tensor {name!r}"))
        )
    whole = Elements(Stretch(path, _start(tensor), dtype, span, f"tensor {name!r}")).stored(0, span)
    strides = [stride * dtype.itemsize for stride in tensor.stride()]
    view = np.lib.stride_tricks.as_strided(whole, shape, strides, writeable=False)
    return StoredTensor(name, kind, shape, Elements(np.ascontiguousarray(view)))


def _array(kind: str, tensor: torch.Tensor) -> NDArray[Any]:
    import torch

    if kind == "bf16":
        return np.asarray(tensor.view(torch.int16).numpy()).view(STORED_TYPES[kind])
    return np.asarray(tensor.numpy())
