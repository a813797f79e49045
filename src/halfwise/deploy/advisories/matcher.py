"""Which advisories concern a target and a model, how surely, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from halfwise.core.advisory import AdvisoryRecord
from halfwise.core.english import said
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Fit, Gpu, Target, VersionRange
from halfwise.core.targets.gpus import KNOWN_GPUS
from halfwise.core.targets.version import best_fit
from halfwise.deploy.advisories.entries import Entry, load_entries
from halfwise.deploy.advisories.model_facts import ModelFacts

__all__ = ["Advisory", "gpu_fit", "match"]

_SURENESS = {"high": 0, "medium": 1, "low": 2}
_KINDS = {"defect": 0, "report": 1, "behaviour": 2, "tool": 3}
_SM = re.compile(r"sm_(\d+)(\+?)")
_SERIES = frozenset(name for name in KNOWN_GPUS if re.fullmatch(r"[gr]tx\d\d", name))


@dataclass(frozen=True)
class Advisory:
    """An entry that can concern this target and model.

    `applies` is YES, or MAYBE where something is not known; `open_questions` say what, and stand in `because` as well.
    """

    entry: Entry
    applies: Fit
    because: tuple[Note, ...]
    open_questions: tuple[Note, ...] = ()

    def document(self) -> AdvisoryRecord:
        return AdvisoryRecord(
            id=self.entry.id,
            kind=self.entry.kind,
            applies="yes" if self.applies is Fit.YES else "maybe",
            why=said(self.because),
            symptom=self.entry.symptom,
            fixed_in=self.entry.fixed_in,
            workaround=self.entry.workaround,
            source=self.entry.source,
            confidence=self.entry.confidence,
            note=self.entry.note,
            because=self.because,
        )


def match(target: Target, facts: ModelFacts | None = None) -> tuple[Advisory, ...]:
    """The advisories that concern `target` and, where given, a model or engine; the most certain first."""
    found = (_advisory(entry, target, facts) for entry in load_entries())
    return tuple(sorted((advisory for advisory in found if advisory is not None), key=_order))


def _order(advisory: Advisory) -> tuple[bool, int, int, str]:
    entry = advisory.entry
    return advisory.applies is not Fit.YES, _SURENESS[entry.confidence], _KINDS[entry.kind], entry.id


def _advisory(entry: Entry, target: Target, facts: ModelFacts | None) -> Advisory | None:
    reasons = (
        _by_version(entry, target),
        _by_typing(entry, target),
        _by_gpu(entry, target),
        _by_model(entry, facts),
        _by_condition(entry),
    )
    fits = [fit for fit, _ in reasons]
    if Fit.NO in fits:
        return None
    because = tuple(note for _, notes in reasons for note in notes)
    questions = tuple(note for fit, notes in reasons if fit is Fit.MAYBE for note in notes)
    return Advisory(entry, Fit.MAYBE if questions else Fit.YES, because, questions)


_Reasons = tuple[Fit, tuple[Note, ...]]


def _by_version(entry: Entry, target: Target) -> _Reasons:
    if entry.runtimes and target.runtime.name not in entry.runtimes:
        return Fit.NO, ()
    if not entry.versions:
        return Fit.YES, (Note.of(NoteKind.OF_ALL_VERSIONS),)
    if target.span is None:
        return Fit.NO, ()
    fit = best_fit(VersionRange.parse(text).fit(target.span) for text in entry.versions)
    if fit is Fit.MAYBE:
        return fit, (Note.of(NoteKind.MAYBE_OF_VERSIONS, target.title, versions=entry.versions),)
    return fit, (Note.of(NoteKind.OF_VERSIONS, target.title, versions=entry.versions),)


def _by_typing(entry: Entry, target: Target) -> _Reasons:
    if entry.typing is None:
        return Fit.YES, ()
    if entry.typing == target.typing.value:
        return Fit.YES, (Note.of(NoteKind.OF_TYPING, typing=entry.typing),)
    # A target that says nothing of typing has its default, and the other is one option away.
    if target.typing is target.typings[0] and len(target.typings) > 1:
        return Fit.MAYBE, (Note.of(NoteKind.ONLY_OF_TYPING, typing=entry.typing),)
    return Fit.NO, ()


def _by_gpu(entry: Entry, target: Target) -> _Reasons:
    if entry.gpus:
        return _among(entry.gpus, target.gpu)
    if not entry.seen_on:
        return Fit.YES, ()
    # What NVIDIA confirmed is the version's; what somebody saw on one GPU need not be there on another.
    unsure = Fit.MAYBE if entry.kind == "report" else Fit.YES
    gpu, seen = target.gpu, entry.seen_on
    if gpu is None:
        known = Note.of(NoteKind.SEEN_ON, gpus=seen)
        return unsure, (Note.of(NoteKind.SEEN_ON_UNNAMED, gpus=seen) if unsure is Fit.MAYBE else known,)
    same = best_fit(gpu_fit(pattern, gpu) for pattern in seen)
    if same is Fit.YES:
        return Fit.YES, (Note.of(NoteKind.SEEN_ON_THIS, gpus=seen),)
    if same is Fit.MAYBE:
        return unsure, (Note.of(NoteKind.SEEN_ON_MAYBE_THIS, gpus=seen),)
    if unsure is Fit.MAYBE:
        return unsure, (Note.of(NoteKind.SEEN_ON_OTHER, gpu.describe(), gpus=seen),)
    return Fit.YES, (Note.of(NoteKind.SEEN_ON, gpus=seen),)


def _among(gpus: tuple[str, ...], gpu: Gpu | None) -> _Reasons:
    if gpu is None:
        return Fit.MAYBE, (Note.of(NoteKind.ONLY_ON_GPU, gpus=gpus),)
    fit = best_fit(gpu_fit(pattern, gpu) for pattern in gpus)
    if fit is Fit.YES:
        return fit, (Note.of(NoteKind.ON_GPU, gpu.describe(), gpus=gpus),)
    return fit, (Note.of(NoteKind.MAYBE_ON_GPU, gpu.describe(), gpus=gpus),)


def _by_model(entry: Entry, facts: ModelFacts | None) -> _Reasons:
    seen = (Note.of(NoteKind.SEEN_WITH, what=entry.seen_with),) if entry.seen_with else ()
    if facts is not None and facts.kernels is not None and entry.kernels:
        kernels = [kernel for part in entry.kernels for kernel in facts.kernels_with(part)]
        if not kernels and facts.kernels_hidden:
            return Fit.MAYBE, (Note.of(NoteKind.ONLY_WITH_KERNELS, names=entry.kernels),)
        return (Fit.YES if kernels else Fit.NO), (Note.of(NoteKind.WITH_KERNELS, names=kernels),)
    if not entry.ops:
        return (Fit.MAYBE if seen else Fit.YES), seen
    if facts is None or facts.nodes is None:
        return Fit.MAYBE, (Note.of(NoteKind.ONLY_WITH_OPERATORS, names=entry.ops), *seen)
    present = [pattern for pattern in entry.ops if facts.has(pattern)]
    return (Fit.YES if present else Fit.NO), (Note.of(NoteKind.WITH_OPERATORS, names=present), *seen)


def _by_condition(entry: Entry) -> _Reasons:
    return (Fit.MAYBE, (Note.of(NoteKind.ONLY_WITH, what=entry.only_with),)) if entry.only_with else (Fit.YES, ())


def gpu_fit(pattern: str, gpu: Gpu) -> Fit:
    """Whether a GPU is meant by "t4", "rtx50", "sm_86", "sm_80+" or "jetson"; raises ValueError for other text.

    A target that names a compute capability alone may be any GPU of it.
    """
    if pattern == "jetson":
        return Fit.YES if gpu.is_jetson else Fit.NO
    bare = _SM.fullmatch(pattern)
    if bare:
        wanted = int(bare[1])
        return Fit.YES if gpu.sm == wanted or (bare[2] and gpu.sm > wanted) else Fit.NO
    named = Gpu.parse(pattern)
    if gpu.name == named.name or (pattern in _SERIES and gpu.name.startswith(pattern)):
        return Fit.YES
    unnamed = gpu.name.startswith("sm_") and gpu.capability == named.capability
    return Fit.MAYBE if unnamed else Fit.NO
