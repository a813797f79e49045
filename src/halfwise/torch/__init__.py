"""PyTorch, numerically: what training had that an FP16 engine has not, stage by stage, and what is handed to an engine.

PyTorch itself is imported when a function needs it; where it is missing, one line says what to install.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfwise.torch.autocast import check_autocast
    from halfwise.torch.bindings import BindingsCheck, check_bindings
    from halfwise.torch.export import stages
    from halfwise.torch.results import AutocastCheck

__all__ = ["AutocastCheck", "BindingsCheck", "check_autocast", "check_bindings", "stages"]

_HOMES = {
    "AutocastCheck": "results",
    "BindingsCheck": "bindings",
    "check_autocast": "autocast",
    "check_bindings": "bindings",
    "stages": "export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
