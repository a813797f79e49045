"""halfwise: finds why a network goes wrong in FP16, repairs it with the fewest FP32 layers, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfwise._version import __version__ as __version__
from halfwise.core.lazy import lazily

if TYPE_CHECKING:
    from halfwise import fleet
    from halfwise.compiler.buildlog import LogReport
    from halfwise.core import measures
    from halfwise.core.errors import HalfwiseError, InputError, MissingBackend
    from halfwise.core.formats import Format
    from halfwise.core.targets import Target
    from halfwise.core.tolerance import Tolerance
    from halfwise.model.inputs.audio import Audio
    from halfwise.model.inputs.images import Images
    from halfwise.model.inputs.shapes import Shapes
    from halfwise.model.model import Model, load
    from halfwise.precision.plan import Plan, read_plan
    from halfwise.report.html.fix_report import fix
    from halfwise.verbs.advise import Advice, advise
    from halfwise.verbs.audit import AuditResult, audit
    from halfwise.verbs.bisect.result import BisectResult
    from halfwise.verbs.bisect.run import bisect
    from halfwise.verbs.compare import Comparison, compare
    from halfwise.verbs.convert import ConversionWarning, convert
    from halfwise.verbs.demo import DemoResult, demo
    from halfwise.verbs.doctor import Diagnosed, doctor
    from halfwise.verbs.fix.result import FixResult
    from halfwise.verbs.gate import Gate, gate
    from halfwise.verbs.log import log
    from halfwise.verbs.profiles import Profiles, profiles
    from halfwise.verbs.prove import Proof, prove
    from halfwise.verbs.scan import ScanResult, scan
    from halfwise.verbs.stages import StagesResult, stages
    from halfwise.verbs.trace import Trace, trace
    from halfwise.verbs.verify import Verification, verify


__all__ = [
    "Advice",
    "Audio",
    "AuditResult",
    "BisectResult",
    "Comparison",
    "ConversionWarning",
    "DemoResult",
    "Diagnosed",
    "FixResult",
    "Format",
    "Gate",
    "HalfwiseError",
    "Images",
    "InputError",
    "LogReport",
    "MissingBackend",
    "Model",
    "Plan",
    "Profiles",
    "Proof",
    "ScanResult",
    "Shapes",
    "StagesResult",
    "Target",
    "Tolerance",
    "Trace",
    "Verification",
    "advise",
    "audit",
    "bisect",
    "compare",
    "convert",
    "demo",
    "doctor",
    "fix",
    "fleet",
    "gate",
    "load",
    "log",
    "measures",
    "profiles",
    "prove",
    "read_plan",
    "scan",
    "stages",
    "trace",
    "verify",
]

# Where each public name lives; importing halfwise itself loads none of it.
_HOMES = {
    "Audio": ".model.inputs.audio",
    "Advice": ".verbs.advise",
    "AuditResult": ".verbs.audit",
    "BisectResult": ".verbs.bisect.result",
    "Comparison": ".verbs.compare",
    "ConversionWarning": ".verbs.convert",
    "DemoResult": ".verbs.demo",
    "Diagnosed": ".verbs.doctor",
    "FixResult": ".verbs.fix.result",
    "Format": ".core.formats",
    "Gate": ".verbs.gate",
    "HalfwiseError": ".core.errors",
    "Images": ".model.inputs.images",
    "InputError": ".core.errors",
    "LogReport": ".compiler.buildlog",
    "MissingBackend": ".core.errors",
    "Model": ".model.model",
    "Plan": ".precision.plan",
    "Profiles": ".verbs.profiles",
    "Proof": ".verbs.prove",
    "ScanResult": ".verbs.scan",
    "Shapes": ".model.inputs.shapes",
    "StagesResult": ".verbs.stages",
    "Target": ".core.targets",
    "Tolerance": ".core.tolerance",
    "Trace": ".verbs.trace",
    "Verification": ".verbs.verify",
    "advise": ".verbs.advise",
    "audit": ".verbs.audit",
    "bisect": ".verbs.bisect.run",
    "compare": ".verbs.compare",
    "convert": ".verbs.convert",
    "demo": ".verbs.demo",
    "doctor": ".verbs.doctor",
    "fix": ".report.html.fix_report",
    "fleet": ".fleet",
    "gate": ".verbs.gate",
    "load": ".model.model",
    "log": ".verbs.log",
    "measures": ".core",
    "profiles": ".verbs.profiles",
    "prove": ".verbs.prove",
    "read_plan": ".precision.plan",
    "scan": ".verbs.scan",
    "stages": ".verbs.stages",
    "trace": ".verbs.trace",
    "verify": ".verbs.verify",
}


# Run in a worker, since native code works there on what a file says, or runs a model.
_CONTAINED = frozenset("advise audit bisect convert demo doctor fix gate log prove scan stages trace verify".split())


def _dressed(home: str, value: Any) -> Any:
    name = home.partition(":")[2]
    if name not in _CONTAINED and name != "load":
        return value
    from halfwise.verbs.contained.calling import contained, tried

    return tried(value) if name == "load" else contained(value, home)


def _before(home: str) -> None:
    if home in {_HOMES[name] for name in _CONTAINED}:
        from halfwise.verbs.contained.pool import begin

        begin(f"{__name__}{home}")
    if not home.startswith(".core"):
        from halfwise.core.put_off import put_off_for_onnx_ir

        put_off_for_onnx_ir()


__getattr__, __dir__ = lazily(__name__, _HOMES, _dressed, _before)
