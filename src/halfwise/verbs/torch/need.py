"""PyTorch, or one line on what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from halfwise.core.exhausted import not_loaded

__all__ = ["need_torch"]


def need_torch() -> Any:
    """The `torch` module."""
    try:
        return import_module("torch")
    except ImportError as error:
        if error.name not in (None, "torch"):
            raise
        raise not_loaded(error, "PyTorch is not installed; pip install 'halfwise[torch]'") from None
