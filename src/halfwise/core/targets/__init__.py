"""What will run the model: runtime, version, typing and GPU, and what these can do."""

from halfwise.core.targets.gpus import Gpu
from halfwise.core.targets.spec import DEFAULT_TARGET, STRICT_PROFILE, Runtime, Target, Typing
from halfwise.core.targets.version import Fit, Span, Version, VersionRange

__all__ = [
    "DEFAULT_TARGET",
    "STRICT_PROFILE",
    "Fit",
    "Gpu",
    "Runtime",
    "Span",
    "Target",
    "Typing",
    "Version",
    "VersionRange",
]
