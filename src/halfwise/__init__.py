"""halfwise: finds why a network goes wrong in FP16, repairs it with the fewest FP32 layers, and proves it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from halfwise.lazy import lazily

if TYPE_CHECKING:
    from halfwise.bisect.result import BisectResult
    from halfwise.bisect.run import bisect
    from halfwise.compare import Comparison, compare
    from halfwise.demo import DemoResult, demo
    from halfwise.errors import HalfwiseError, InputError, MissingBackend
    from halfwise.fix import fix
    from halfwise.fix_result import FixResult
    from halfwise.formats import Format
    from halfwise.gate import Gate, gate
    from halfwise.model import Model, load
    from halfwise.plan import Plan, read_plan
    from halfwise.scan import ScanResult, scan
    from halfwise.stages import StagesResult, stages
    from halfwise.target import Target
    from halfwise.tolerance import Tolerance
    from halfwise.trace import Trace, trace
    from halfwise.verify import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "BisectResult",
    "Comparison",
    "DemoResult",
    "FixResult",
    "Format",
    "Gate",
    "HalfwiseError",
    "InputError",
    "MissingBackend",
    "Model",
    "Plan",
    "ScanResult",
    "StagesResult",
    "Target",
    "Tolerance",
    "Trace",
    "Verification",
    "bisect",
    "compare",
    "demo",
    "fix",
    "gate",
    "load",
    "read_plan",
    "scan",
    "stages",
    "trace",
    "verify",
]

# Where each public name lives; importing halfwise itself loads none of it.
_HOMES = {
    "BisectResult": "bisect.result",
    "Comparison": "compare",
    "DemoResult": "demo",
    "FixResult": "fix_result",
    "Format": "formats",
    "Gate": "gate",
    "HalfwiseError": "errors",
    "InputError": "errors",
    "MissingBackend": "errors",
    "Model": "model",
    "Plan": "plan",
    "ScanResult": "scan",
    "StagesResult": "stages",
    "Target": "target",
    "Tolerance": "tolerance",
    "Trace": "trace",
    "Verification": "verify",
    "bisect": "bisect.run",
    "compare": "compare",
    "demo": "demo",
    "fix": "fix",
    "gate": "gate",
    "load": "model",
    "read_plan": "plan",
    "scan": "scan",
    "stages": "stages",
    "trace": "trace",
    "verify": "verify",
}


__getattr__, __dir__ = lazily(__name__, _HOMES)


class _Package(ModuleType):
    """`halfwise.fix` is the function, also after something has imported the module of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
