"""NumPy's products on one thread: the last bits of a sum hang on how many threads share it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from threading import Lock

__all__ = ["on_one_thread"]

_HOMES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")  # what OpenBLAS is linked to, by version
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")

_lock = Lock()
_before: list[int] = []  # of each product that is being made, how many threads there were


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Products within have the same bits on every machine; where NumPy has no OpenBLAS, nothing is changed."""
    told = _told()
    if told is None:
        yield
        return
    get, tell = told
    with _lock:
        _before.append(_before[0] if _before else get())
        tell(1)
    try:
        yield
    finally:
        with _lock:
            threads = _before.pop()
            if not _before:
                tell(threads)


@cache
def _told() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """Of OpenBLAS, what says its threads and what sets them."""
    import_module("numpy")
    module = next((sys.modules[home] for home in _HOMES if home in sys.modules), None)
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    with suppress(OSError):
        library = ctypes.CDLL(file)
        for name in _NAMES:
            if hasattr(library, name.format("set")) and hasattr(library, name.format("get")):
                return library[name.format("get")], library[name.format("set")]
    return None
