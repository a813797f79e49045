"""The target: what will run the model, and what that runtime, version and GPU can do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING

from halfwise.core.errors import InputError
from halfwise.core.targets.flags import has_flag
from halfwise.core.targets.gpus import Gpu
from halfwise.core.targets.version import Span, Version

if TYPE_CHECKING:
    from halfwise.core.formats import Format

__all__ = ["DEFAULT_TARGET", "STRICT_PROFILE", "Runtime", "Target", "Typing"]


STRICT_PROFILE = "strict"  # the profile that rounds every stored tensor and fuses nothing


class Typing(Enum):
    """How types are decided: by the builder within what the user asks for (weak), or by the model alone (strong)."""

    WEAK = "weak"
    STRONG = "strong"


class Runtime(Enum):
    """What runs the model. The value is its name in a target."""

    ONNX = "onnx"  # any strongly typed runtime: promises nothing but the ONNX types
    TENSORRT = "trt"
    RTX = "rtx"
    ORT_CUDA = "ort-cuda"


_TITLES = {
    Runtime.ONNX: "ONNX",
    Runtime.TENSORRT: "TensorRT",
    Runtime.RTX: "TensorRT-RTX",
    Runtime.ORT_CUDA: "ort-cuda",
}
_PROFILES = {
    Runtime.ONNX: STRICT_PROFILE,
    Runtime.TENSORRT: "tensorrt",
    Runtime.RTX: "tensorrt",
    Runtime.ORT_CUDA: "ort-cuda",
}
# major -> the minor releases known; None: later ones are taken to be like the last one seen, because options and
# modes have only ever been removed with a new major version.
_KNOWN: Mapping[Runtime, Mapping[int, tuple[int, int | None]]] = {
    Runtime.TENSORRT: {8: (4, 6), 9: (1, 3), 10: (0, None), 11: (0, None)},
    Runtime.RTX: {1: (0, None)},
}
_KNOWN_TEXT = {Runtime.TENSORRT: "8.4 to 8.6, 9.1 to 9.3, 10.x, 11.x", Runtime.RTX: "1.x"}
_STRONG_FROM = Version.parse("9.1").span.low
_WEAK_UNTIL = Version.parse("10").span.high
_BF16_FROM = Version.parse("9.1").span.low
_FORMS = "onnx, trt-10.9, trt-10.9@t4, trt-10.9+weak@t4, rtx-1.7, ort-cuda"
_OTHER_NAMES = {
    "tensorrt": "trt",
    "tensorrt-rtx": "rtx",
    "trt-rtx": "rtx",
    "cuda": "ort-cuda",
    "onnxruntime": "ort-cuda",
}
_HEAD = re.compile(r"(?P<runtime>ort-cuda|[a-z][a-z-]*?)(?:-?(?P<version>\d[\w.]*))?")


@dataclass(frozen=True)
class Target:
    """What will run the model, as text `RUNTIME[-VERSION][+weak|+strong][@GPU]`, e.g. `trt-10.0.1+weak@t4`.

    TensorRT 9.1 to 10.x can do both typings, and an answer differs between them (flags, advisories, what an
    ONNX Cast is worth), so the choice is part of the target. Strong is the default where it exists: there a
    Cast in the model is binding, and nothing changes on the way to TensorRT 11, which has no other.
    """

    runtime: Runtime
    version: Version | None
    typing: Typing
    gpu: Gpu | None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Raises InputError, one line that says what is known."""
        head, *marks = re.split(r"(?=[@+])", text.strip())
        runtime, version = _parse_head(head.lower(), text)
        typing: Typing | None = None
        gpu: Gpu | None = None
        for mark in marks:
            if mark[0] == "@" and gpu is None:
                gpu = Gpu.parse(mark[1:])
            elif mark[0] == "+" and typing is None and mark[1:].lower() in ("weak", "strong"):
                typing = Typing(mark[1:].lower())
            else:
                raise InputError(f"target '{text}': '{mark}' is neither +weak, +strong nor one @GPU (e.g. {_FORMS})")
        typings = _typings(runtime, version)
        if typing is not None and typing not in typings:
            title = f"{_TITLES[runtime]} {version}" if version else _TITLES[runtime]
            raise InputError(f"target '{text}': {title} has no {typing.value} typing, only {typings[0].value}")
        return cls(runtime, version, typing or typings[0], gpu)

    def __str__(self) -> str:
        text = self.runtime.value + (f"-{self.version}" if self.version else "")
        if self.typing is not self.typings[0]:
            text += f"+{self.typing.value}"
        return text + (f"@{self.gpu}" if self.gpu else "")

    @property
    def title(self) -> str:
        """The runtime and its version in words, e.g. "TensorRT 10.0.1"."""
        return _TITLES[self.runtime] + (f" {self.version}" if self.version else "")

    @property
    def typings(self) -> tuple[Typing, ...]:
        """The typings this runtime and version can do, the default first."""
        return _typings(self.runtime, self.version)

    @property
    def profile(self) -> str:
        """The emulation profile whose numerics stand for this target."""
        return _PROFILES[self.runtime]

    @property
    def span(self) -> Span | None:
        """The releases that the version may mean; None where the runtime has no version."""
        return None if self.version is None else _span(self.runtime, self.version)

    def within(self, first: str, last: str | None = None) -> bool:
        """Whether this is TensorRT proper and every release meant lies from `first` to `last` (open where None)."""
        if self.runtime is not Runtime.TENSORRT or self.span is None:
            return False
        high = Version.parse(last).span.high if last else self.span.high
        return self.span.within(Span(Version.parse(first).span.low, high))

    def has_flag(self, flag: str) -> bool:
        """Whether trtexec of every release meant takes this option."""
        return self.runtime is Runtime.TENSORRT and self.span is not None and has_flag(flag, self.span)

    def supports(self, fmt: Format) -> bool:
        """Whether tensors may have this format here."""
        return self.why_not(fmt) is None

    def why_not(self, fmt: Format) -> str | None:
        """What stands against this format, in words; None where nothing does."""
        if fmt.value != "bf16":
            return None
        if self.runtime is Runtime.ORT_CUDA:
            return "ONNX Runtime's CUDA provider has BF16 kernels for some operators only"
        if self.runtime is Runtime.TENSORRT and self.span is not None and self.span.low < _BF16_FROM:
            return f"{self.title} has no BF16; it came with 9.1"
        if self.gpu is not None and self.gpu.capability < (8, 0):
            return f"{self.gpu.describe()} has no BF16; it needs 8.0"
        return None

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a user of this very combination should know before building, one sentence each."""
        found = []
        if self.runtime is Runtime.RTX and self.gpu is not None:
            if self.gpu.sm == 75:
                found.append("TensorRT-RTX builds for compute capability 7.5 only when asked to (SM75).")
            elif self.gpu.sm not in (80, 86, 89) and self.gpu.sm < 120:
                found.append(
                    f"TensorRT-RTX does not run on {self.gpu.describe()}; it needs 7.5, 8.0, 8.6, 8.9 or >= 12.0."
                )
        if self.typing is Typing.STRONG and self.within("9.1", "9.1"):
            found.append("Before TensorRT 9.2 not every ONNX importer kept the types of the model under strong typing.")
        return tuple(found)


def _parse_head(head: str, text: str) -> tuple[Runtime, Version | None]:
    found = _HEAD.fullmatch(head)
    name = found["runtime"] if found else head
    number = found["version"] if found else None
    try:
        runtime = Runtime(name)
    except ValueError:
        near = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, [r.value for r in Runtime], n=1)), None)
        hint = f"; did you mean '{near}{'-' + number if number else ''}'?" if near else ""
        raise InputError(f"target '{text}': unknown runtime '{name}' (known: {_FORMS}){hint}") from None
    if runtime not in _KNOWN:
        if number is not None:
            raise InputError(f"target '{text}': {runtime.value} takes no version; write '{runtime.value}'")
        return runtime, None
    known = f"known: {_KNOWN_TEXT[runtime]}"
    if number is None:
        example = "trt-10.9" if runtime is Runtime.TENSORRT else "rtx-1.7"
        raise InputError(f"target '{text}': {_TITLES[runtime]} needs a version, such as {example} ({known})")
    try:
        version = Version.parse(number)
    except ValueError:
        raise InputError(f"target '{text}': '{number}' is not a version ({known})") from None
    if not _is_known(runtime, version):
        raise InputError(
            f"target '{text}': {_TITLES[runtime]} {version} is not known ({known}); "
            f"the nearest is {runtime.value}-{_nearest(runtime, version)}"
        )
    return runtime, version


def _is_known(runtime: Runtime, version: Version) -> bool:
    minors = _KNOWN[runtime].get(version.parts[0])
    if minors is None:
        return False
    first, last = minors
    return len(version.parts) == 1 or (first <= version.parts[1] and (last is None or version.parts[1] <= last))


def _nearest(runtime: Runtime, version: Version) -> str:
    known = _KNOWN[runtime]
    major = min(known, key=lambda candidate: abs(candidate - version.parts[0]))
    if major != version.parts[0]:
        first, last = known[major]
        below = version.parts[0] < major
        return f"{major}.{first}" if below else (f"{major}" if last is None else f"{major}.{last}")
    first, last = known[major]
    return f"{major}.{first if version.parts[1] < first else last}"


def _span(runtime: Runtime, version: Version) -> Span:
    """A bare major version means its known releases, not, say, 8.0."""
    span = version.span
    first, last = _KNOWN[runtime][version.parts[0]]
    if len(version.parts) > 1:
        return span
    major = version.parts[0]
    high = span.high if last is None else Version((major, last)).span.high
    return Span(Version((major, first)).span.low, high)


def _typings(runtime: Runtime, version: Version | None) -> tuple[Typing, ...]:
    if runtime is not Runtime.TENSORRT or version is None:
        return (Typing.STRONG,)
    span = _span(runtime, version)
    strong = (Typing.STRONG,) if span.low >= _STRONG_FROM else ()
    weak = (Typing.WEAK,) if span.high <= _WEAK_UNTIL else ()
    return strong + weak


DEFAULT_TARGET = Target(Runtime.ONNX, None, Typing.STRONG, None)
