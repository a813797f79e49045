"""A runtime as facts: how it is named, which releases there are, and what these take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from halfwise.core.notes import Note
from halfwise.core.targets.gpus import Gpu
from halfwise.core.targets.version import Span, Version

__all__ = ["Builder", "Runtime", "Typing"]

Releases = Mapping[int, tuple[int, "int | None"]]


class Typing(Enum):
    """How types are decided: by the builder within what the user asks for (weak), or by the model alone (strong)."""

    WEAK = "weak"
    STRONG = "strong"


@dataclass(frozen=True)
class Builder:
    """What makes engines for a runtime: its program, its Python modules, and the options that are verified."""

    executable: str
    modules: tuple[str, ...]
    flags: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)  # option -> first and last version
    offline: bool = False  # it needs no GPU, so a decision is compiled with the target's own compiler


def _no_cautions(typing: Typing, span: Span | None, gpu: Gpu | None) -> Iterable[Note]:
    return ()


@dataclass(frozen=True, eq=False)
class Runtime:
    """What runs models. `profile` names the emulation profile whose numerics stand for it.

    `releases`: major -> the first and the last minor release known; None: later ones are taken to be like the last one
    seen, because options and modes have only ever been removed with a new major version. Empty: it takes no version.
    `formats`: format -> the release it came with (empty: all have it); what is not named is not taken, and `without`
    gives the reason where there is one to tell. `reads_since`: operators that its parser knows from a release on only.
    """

    name: str  # in a target
    title: str
    profile: str
    examples: tuple[str, ...]  # targets of it, the usual one first
    other_names: tuple[str, ...] = ()
    releases: Releases = field(default_factory=dict)
    strong_from: str = ""  # with strong typing from this release on; empty: always
    weak_until: str = ""  # with weak typing until this release; empty: never
    formats: Mapping[str, str] = field(default_factory=lambda: {"fp32": "", "fp16": "", "bf16": ""})
    without: Mapping[str, str] = field(default_factory=dict)
    reads_since: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()  # operators of ONNX, or forms of them, that no release's parser reads
    unstable: frozenset[str] = frozenset()  # operators of ONNX whose steps in its parser overflow
    reads_own: frozenset[str] | None = None  # of ONNX Runtime's own operators those that it reads; None: all
    quantised: Mapping[str, str] | None = None  # the types of quantised tensors that it reads, since when; None: all
    blocks: Mapping[str, str] = field(default_factory=dict)  # those of them that may have a scale a block, since when
    negative_scales: frozenset[str] = frozenset()  # and those whose scales of blocks may be below 0
    folds_constants: bool = True  # it folds whatever constants alone lead to, also axes and weights
    fuses_norms: bool = False  # it has one kernel for a norm of small operators, which is kept whole
    builder: Builder | None = None
    cautions: Callable[[Typing, Span | None, Gpu | None], Iterable[Note]] = _no_cautions

    @property
    def releases_text(self) -> str:
        """The known releases in words."""
        return ", ".join(
            f"{major}.x" if last is None else f"{major}.{first} to {major}.{last}"
            for major, (first, last) in self.releases.items()
        )

    def knows(self, version: Version) -> bool:
        minors = self.releases.get(version.parts[0])
        if minors is None:
            return False
        first, last = minors
        return len(version.parts) == 1 or (first <= version.parts[1] and (last is None or version.parts[1] <= last))

    def quantised_types(self, span: Span | None) -> tuple[str, ...] | None:
        """ONNX's names of the types of quantised tensors that every release meant reads; None where all are read."""
        return None if self.quantised is None else _read_in(self.quantised, span)

    def block_types(self, span: Span | None) -> tuple[str, ...]:
        """Of these the ones that may have a scale for each block."""
        return _read_in(self.blocks, span)

    def nearest(self, version: Version) -> str:
        """The known release that lies nearest to one that is not known."""
        major = min(self.releases, key=lambda candidate: abs(candidate - version.parts[0]))
        first, last = self.releases[major]
        if major != version.parts[0]:
            below = version.parts[0] < major
            return f"{major}.{first}" if below else (f"{major}" if last is None else f"{major}.{last}")
        return f"{major}.{first if version.parts[1] < first else last}"

    def span(self, version: Version) -> Span:
        """The releases that a version means: a bare major version its known ones, not, say, 8.0."""
        span = version.span
        first, last = self.releases[version.parts[0]]
        if len(version.parts) > 1:
            return span
        major = version.parts[0]
        high = span.high if last is None else Version((major, last)).span.high
        return Span(Version((major, first)).span.low, high)

    def typings(self, version: Version | None) -> tuple[Typing, ...]:
        """The typings that a version can do, the default first."""
        if version is None:
            return (Typing.STRONG,)
        span = self.span(version)
        strong = not self.strong_from or span.low >= Version.parse(self.strong_from).span.low
        weak = bool(self.weak_until) and span.high <= Version.parse(self.weak_until).span.high
        return ((Typing.STRONG,) if strong else ()) + ((Typing.WEAK,) if weak else ())


def _read_in(since: Mapping[str, str], span: Span | None) -> tuple[str, ...]:
    """What every release meant reads."""
    return tuple(
        name for name, first in since.items() if not first or span is None or span.low >= Version.parse(first).span.low
    )
