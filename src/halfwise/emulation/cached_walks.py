"""Walks that an interrupted command finished which writes no results, in the user's folder for caches."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from halfwise.core.cache_folder import cache_folder
from halfwise.core.removed_tree import remove_tree
from halfwise.emulation.kept_walks import KeptWalks

__all__ = ["cached_walks", "finished_walks"]

_MOST = 1 << 30  # bytes of a command
_OLD_S = 2 * 86400


@contextmanager
def cached_walks(command: str, *sources: Any) -> Iterator[KeptWalks]:
    """Those of this command on these files, until it is done. What nobody came back for in two days goes."""
    folder = _place(command, sources)
    kept = KeptWalks(folder, most=_MOST)
    if folder is not None:
        _sweep(folder.parent)
    try:
        yield kept
    except Exception:
        kept.discard()
        raise
    kept.discard()


def finished_walks(command: str, *sources: Any) -> int:
    """How many are kept of an interrupted command."""
    folder = _place(command, sources)
    return sum(1 for _ in folder.glob("*.npz")) if folder is not None else 0


def _place(command: str, sources: tuple[Any, ...]) -> Path | None:
    folder = cache_folder("walks")
    if folder is None or not all(isinstance(source, (str, Path)) for source in sources):
        return None
    told = repr((command, [str(Path(source).absolute()) for source in sources]))
    return folder / hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:16]


def _sweep(folder: Path) -> None:
    with suppress(OSError):
        for each in folder.iterdir():
            if time.time() - each.lstat().st_mtime > _OLD_S:
                remove_tree(each)
