"""The target: what will run the model, and what that runtime, version and GPU can do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from halfwise.core.errors import InputError
from halfwise.core.notes import Note
from halfwise.core.targets.flags import has_flag
from halfwise.core.targets.gpus import LEAST_CAPABILITY, Gpu
from halfwise.core.targets.runtime import Runtime, Typing
from halfwise.core.targets.runtimes import ONNX, RUNTIMES
from halfwise.core.targets.version import Span, Version

if TYPE_CHECKING:
    from halfwise.core.formats import Format

__all__ = ["DEFAULT_TARGET", "Target"]

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
                raise InputError(
                    f"target '{text}': '{mark}' is neither +weak, +strong nor one @GPU (e.g. {_examples()})"
                )
        typings = runtime.typings(version)
        if typing is not None and typing not in typings:
            title = f"{runtime.title} {version}" if version else runtime.title
            raise InputError(f"target '{text}': {title} has no {typing.value} typing, only {typings[0].value}")
        return cls(runtime, version, typing or typings[0], gpu)

    @classmethod
    def of_builder(cls, version: str) -> Target | None:
        """The target of what a builder made that states only its version; None where none of that version is known."""
        major = version.partition(".")[0]
        built = (each for each in RUNTIMES.values() if each.builder is not None and major in map(str, each.releases))
        runtime = next(built, None)
        try:
            return None if runtime is None else cls.parse(f"{runtime.name}-{version}")
        except InputError:
            return None

    def __str__(self) -> str:
        text = self.runtime.name + (f"-{self.version}" if self.version else "")
        if self.typing is not self.typings[0]:
            text += f"+{self.typing.value}"
        return text + (f"@{self.gpu}" if self.gpu else "")

    @property
    def title(self) -> str:
        """The runtime and its version in words, e.g. "TensorRT 10.0.1"."""
        return self.runtime.title + (f" {self.version}" if self.version else "")

    @property
    def typings(self) -> tuple[Typing, ...]:
        """The typings this runtime and version can do, the default first."""
        return self.runtime.typings(self.version)

    @property
    def profile(self) -> str:
        """The emulation profile whose numerics stand for this target."""
        return self.runtime.profile

    @property
    def span(self) -> Span | None:
        """The releases that the version may mean; None where the runtime has no version."""
        return None if self.version is None else self.runtime.span(self.version)

    def within(self, first: str, last: str | None = None) -> bool:
        """Whether every release meant lies from `first` to `last` (open where None)."""
        if self.span is None:
            return False
        high = Version.parse(last).span.high if last else self.span.high
        return self.span.within(Span(Version.parse(first).span.low, high))

    def has_flag(self, flag: str) -> bool:
        """Whether the program that builds engines takes this option in every release meant, as far as is verified."""
        builder = self.runtime.builder
        return builder is not None and self.span is not None and has_flag(flag, self.span, builder.flags)

    def supports(self, fmt: Format) -> bool:
        """Whether tensors may have this format here."""
        return self.why_not(fmt) is None

    def why_not(self, fmt: Format) -> str | None:
        """What stands against this format, in words; None where nothing does."""
        runtime, title = self.runtime, fmt.value.upper()
        if fmt.value in runtime.without:
            return runtime.without[fmt.value]
        if fmt.value not in runtime.formats:
            return f"{self.title} is not known to take {title}"
        since = runtime.formats[fmt.value]
        if self._is_before(since):
            return f"{self.title} has no {title}; it came with {since}"
        least = LEAST_CAPABILITY.get(fmt.value, (0, 0))
        if self.gpu is not None and self.gpu.capability < least:
            return f"{self.gpu.describe()} has no {title}; it needs {least[0]}.{least[1]}"
        return None

    @property
    def unread_operators(self) -> dict[str, str]:
        """The operators that the parser of some release meant does not know, and the release they came with."""
        return {op: since for op, since in self.runtime.reads_since.items() if self._is_before(since)}

    def _is_before(self, since: str) -> bool:
        return bool(since) and self.span is not None and self.span.low < Version.parse(since).span.low

    @property
    def cautions(self) -> tuple[Note, ...]:
        """What a user of this very combination should know before building."""
        return tuple(self.runtime.cautions(self.typing, self.span, self.gpu))


def _examples() -> str:
    return ", ".join(example for runtime in RUNTIMES.values() for example in runtime.examples)


def _other_name(name: str) -> str | None:
    """What a name that is not known was perhaps meant to be."""
    meant = (runtime.name for runtime in RUNTIMES.values() if name in runtime.other_names)
    return next(meant, None) or next(iter(get_close_matches(name, list(RUNTIMES), n=1)), None)


def _parse_head(head: str, text: str) -> tuple[Runtime, Version | None]:
    found = _HEAD.fullmatch(head)
    name = found["runtime"] if found else head
    number = found["version"] if found else None
    runtime = RUNTIMES.get(name)
    if runtime is None:
        near = _other_name(name)
        hint = f"; did you mean '{near}{'-' + number if number else ''}'?" if near else ""
        raise InputError(f"target '{text}': unknown runtime '{name}' (known: {_examples()}){hint}")
    if not runtime.releases:
        if number is not None:
            raise InputError(f"target '{text}': {runtime.name} takes no version; write '{runtime.name}'")
        return runtime, None
    known = f"known: {runtime.releases_text}"
    if number is None:
        raise InputError(f"target '{text}': {runtime.title} needs a version, such as {runtime.examples[0]} ({known})")
    try:
        version = Version.parse(number)
    except ValueError:
        raise InputError(f"target '{text}': '{number}' is not a version ({known})") from None
    if not runtime.knows(version):
        raise InputError(
            f"target '{text}': {runtime.title} {version} is not known ({known}); "
            f"the nearest is {runtime.name}-{runtime.nearest(version)}"
        )
    return runtime, version


DEFAULT_TARGET = Target(ONNX, None, Typing.STRONG, None)
