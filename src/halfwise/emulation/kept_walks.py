"""What finished walks through a large model gave, in a folder: an interrupted job does not walk them again."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.archives import read_npz
from halfwise.core.json_text import parse_json
from halfwise.core.opened import is_own
from halfwise.core.own_code import code_identity
from halfwise.core.removed_tree import remove_tree
from halfwise.emulation.quantised_tensor import QuantisedTensor
from halfwise.model.weights import DerivedTensor, stored_tensor

__all__ = ["KeptWalks", "identity_of"]

T = TypeVar("T")

Array = NDArray[Any]

_LARGEST = 1 << 28  # bytes of one answer: writing more takes longer than it saves
_READ = 1 << 20  # bytes of a weight in memory that its identity is made of; a larger one has none
_DOCUMENT = "document"
_NOT_OURS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)  # what reading another's may raise


class KeptWalks:
    """Without a folder nothing is kept. At most `most` bytes are, and `room` bytes on the disk are left for results."""

    def __init__(self, folder: Path | None = None, room: int = 0, most: float = math.inf) -> None:
        self.folder = None if folder is not None and folder.is_symlink() else folder  # a link leads elsewhere
        self._room = room
        self._left = most
        self.taken = 0  # walks that were not walked again

    def answer(self, key: str) -> dict[str, Array] | None:
        """What was kept under a key. The archive tells what is not as it was written."""
        path = self._path(key)
        if path is None or not path.is_file() or not is_own(path):
            return None
        try:
            held = read_npz(path)
            told = parse_json(held[_DOCUMENT].tobytes())
            arrays = {str(name): held[f"a{index}"] for index, name in enumerate(told["names"])}
            found = arrays if told["key"] == key else None  # not another walk, renamed
        except Exception:  # whatever a damaged file makes a reader raise: it is made anew
            return None
        self.taken += found is not None
        return found

    def keep(self, key: str, arrays: Mapping[str, Any]) -> None:
        path = self._path(key)
        if path is None or not _can_be_kept(arrays.values()):
            return
        part = path.with_suffix(".part")
        told = json.dumps({"names": list(arrays), "key": key})
        numbered = {f"a{index}": each for index, each in enumerate(arrays.values())}
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            size = sum(each.nbytes for each in arrays.values())
            if self._left < size or shutil.disk_usage(path.parent).free < self._room + size:
                return
            self._left -= size
            part.unlink(missing_ok=True)
            with part.open("xb") as file:  # not through a link
                np.savez(file, **{_DOCUMENT: np.frombuffer(told.encode(), np.uint8)}, **numbered)  # type: ignore[arg-type]
            part.replace(path)
        with suppress(OSError):
            part.unlink(missing_ok=True)

    def document(self, key: str, make: Callable[[], Any], read: Callable[[Any], T]) -> T:
        """What `make` gives, which JSON can say, as it is read."""
        known = self.answer(key)
        with suppress(*_NOT_OURS):
            if known is not None:
                return read(parse_json(known[_DOCUMENT].tobytes()))
        made = make()
        if self._path(key) is not None:
            self.keep(key, {_DOCUMENT: np.frombuffer(json.dumps(made).encode(), np.uint8)})
        return read(made)

    def discard(self) -> None:
        if self.folder is not None:
            remove_tree(self.folder)

    def _path(self, key: str) -> Path | None:
        return self.folder / f"{key}.npz" if self.folder is not None and key else None


def identity_of(model: bytes, weights: Iterable[ir.TensorProtocol], feed: Mapping[str, Any], *also: object) -> str:
    """Of a walk of this model, its weights and its input; empty where it is not known what a weight is made of.

    A weight in a file goes by the file's name, size and time.
    """
    known = hashlib.sha256(model)
    files: dict[str, tuple[object, ...]] = {}  # many weights lie in one
    for tensor in map(stored_tensor, weights):
        while isinstance(tensor, (DerivedTensor, QuantisedTensor)):
            known.update(tensor.recipe)
            tensor = stored_tensor(tensor.source)
        if isinstance(tensor, ir.ExternalTensor):
            path = os.fspath(tensor.path)
            if path not in files:
                files[path] = _file(Path(path).resolve())
            known.update(repr((*files[path], tensor.offset, tensor.length)).encode())
        elif tensor.dtype.bitwidth >= 8 and (isinstance(tensor, ir.LazyTensor) or tensor.nbytes > _READ):
            return ""
        else:
            known.update(tensor.tobytes())
    for name in sorted(feed):
        array = feed[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            return ""
        known.update(f"{name} {array.dtype} {array.shape}".encode())
        known.update(np.ascontiguousarray(array).data)
    known.update(repr((code_identity(), *also)).encode())
    return known.hexdigest()[:32]


def _file(path: Path) -> tuple[object, ...]:
    found = path.stat()
    return str(path), found.st_size, found.st_mtime_ns


def _can_be_kept(arrays: Iterable[Any]) -> bool:
    total = 0
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            return False
        total += array.nbytes
    return total <= _LARGEST
