"""Turns what a damaged or hostile file makes a reader raise into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from halfwise.core.errors import InputError

__all__ = ["readable"]


@contextmanager
def readable(label: str) -> Iterator[None]:
    """Around the reading of a file, or of a part of one; `label` says which."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{label}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        if "Object arrays" in str(error):
            raise InputError(f"{label}: holds Python objects, which are never loaded; save plain arrays") from None
        raise InputError(f"{label}: is damaged, or not what its name says: {error or type(error).__name__}") from error
