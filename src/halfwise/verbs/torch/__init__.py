"""PyTorch, numerically: what training had that an FP16 engine has not, stage by stage, and what is handed to an engine.

PyTorch itself is imported when a function needs it; where it is missing, one line says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfwise.core.lazy import lazily

if TYPE_CHECKING:
    from halfwise.verbs.torch.autocast import check_autocast
    from halfwise.verbs.torch.bindings import BindingsCheck, check_bindings
    from halfwise.verbs.torch.export import stages
    from halfwise.verbs.torch.results import AutocastCheck

__all__ = ["AutocastCheck", "BindingsCheck", "check_autocast", "check_bindings", "stages"]

_HOMES = {
    "AutocastCheck": ".results",
    "BindingsCheck": ".bindings",
    "check_autocast": ".autocast",
    "check_bindings": ".bindings",
    "stages": ".export",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
