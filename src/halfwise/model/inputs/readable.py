"""Turns what a damaged or hostile file makes a reader raise into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.files.identify import not_wanted

__all__ = ["readable"]


@contextmanager
def readable(label: str, wanted: str = "") -> Iterator[None]:
    """Around the reading of a file, or of a part of one; `label` says which. `wanted`, such as "an image": the label
    is the path of a whole file, and what it is instead is told."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        told = f"{label}: cannot be read: {error.strerror or error}"
        raise InputError(not_wanted(Path(label), wanted, told) if wanted else told) from error
    except Exception as error:
        if "Object arrays" in str(error):
            raise InputError(
                f"{label}: holds Python objects, which are never loaded; save plain arrays, text with dtype=str"
            ) from None
        told = f"{label}: is damaged, or not what its name says: {error or type(error).__name__}"
        raise InputError(not_wanted(Path(label), wanted, told) if wanted else told) from error
