"""What will run the model: runtime, version, typing and GPU, and what these can do."""

from halfwise.target.gpus import Gpu
from halfwise.target.spec import DEFAULT_TARGET, Runtime, Target, Typing
from halfwise.target.version import Fit, Span, Version, VersionRange

__all__ = ["DEFAULT_TARGET", "Fit", "Gpu", "Runtime", "Span", "Target", "Typing", "Version", "VersionRange"]
