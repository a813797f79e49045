"""Digests of what jobs read: files, folders, models with their external data, and the source of a user's function."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.fleet.sources import sources_of
from halfwise.fleet.store import Store

__all__ = ["Contents", "digest_of"]


class Contents:
    """Digests of this run. The store remembers those of files that have not changed since."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._found: dict[Path, str] = {}
        self._sizes: dict[Path, int] = {}

    def of(self, path: Path) -> str:
        if path not in self._found:
            self._found[path] = _folder(path, self._file) if path.is_dir() else self._model_or_file(path)
        return self._found[path]

    def size_of(self, model: Path) -> int:
        """Bytes of a model, its external data among them."""
        self.of(model)
        return self._sizes.get(model, 0)

    def of_functions(self, *names: str) -> str:
        """Of the files of their modules."""
        return " ".join(self.of(file) for name in filter(None, names) for file in sources_of(name, self._folder))

    def parts_of(self, model: Path) -> list[Path]:
        """The files of its external data."""
        return [model.parent / part for part in self._known(model)[1]] if model.is_file() else []

    def _model_or_file(self, path: Path) -> str:
        digest, parts = self._known(path)
        self._sizes[path] = path.stat().st_size
        for part in parts:
            file = path.parent / part
            digest += self._file(file)
            self._sizes[path] += file.stat().st_size
        return digest

    def _file(self, path: Path) -> str:
        return self._known(path)[0]

    def _known(self, path: Path) -> tuple[str, list[str]]:
        try:
            stat = path.stat()
            known = self._store.known(path, stat.st_size, stat.st_mtime_ns)
            if known is not None:
                return known
            digest = digest_of(path)
            parts = _external(path) if path.suffix == ".onnx" else []
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
        self._store.remember(path, stat.st_size, stat.st_mtime_ns, digest, parts)
        return digest, parts


def _folder(path: Path, of: Callable[[Path], str]) -> str:
    """Names and contents of all files in it."""
    whole = hashlib.sha256()
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        whole.update(f"{file.relative_to(path).as_posix()}\0{of(file)}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        whole = hashlib.sha256()
        while block := file.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()


def _external(path: Path) -> list[str]:
    """Names of the files with its weights; none of a file that is no model, which its job will say."""
    import onnx

    from halfwise.model.external import external_files

    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception:
        return []
    return [os.path.relpath(file, path.parent) for file in external_files(proto, path) if file.is_file()]
