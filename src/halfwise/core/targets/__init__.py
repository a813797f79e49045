"""What will run the model: runtime, version, typing and GPU, and what these can do."""

from halfwise.core.targets.gpus import Gpu
from halfwise.core.targets.runtime import Builder, Runtime, Typing
from halfwise.core.targets.runtimes import RUNTIMES, STRICT_PROFILE
from halfwise.core.targets.spec import DEFAULT_TARGET, Target
from halfwise.core.targets.version import Fit, Span, Version, VersionRange

__all__ = [
    "DEFAULT_TARGET",
    "RUNTIMES",
    "STRICT_PROFILE",
    "Builder",
    "Fit",
    "Gpu",
    "Runtime",
    "Span",
    "Target",
    "Typing",
    "Version",
    "VersionRange",
]
