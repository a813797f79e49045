"""Which advisories concern a target and a model, how surely, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.core.advisory import AdvisoryRecord
from halfwise.core.targets import Fit, Gpu, Target, VersionRange
from halfwise.core.targets.gpus import KNOWN_GPUS
from halfwise.core.targets.version import best_fit
from halfwise.core.wording import listed
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

    `applies` is YES, or MAYBE where something is not known; `open_questions` say what, and stand in `why` as well.
    """

    entry: Entry
    applies: Fit
    why: str
    open_questions: tuple[str, ...] = ()

    def document(self) -> AdvisoryRecord:
        return AdvisoryRecord(
            id=self.entry.id,
            kind=self.entry.kind,
            applies="yes" if self.applies is Fit.YES else "maybe",
            why=self.why,
            symptom=self.entry.symptom,
            fixed_in=self.entry.fixed_in,
            workaround=self.entry.workaround,
            source=self.entry.source,
            confidence=self.entry.confidence,
            note=self.entry.note,
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
    why = "; ".join(reason for _, reason in reasons if reason)
    questions = tuple(reason for fit, reason in reasons if fit is Fit.MAYBE)
    return Advisory(entry, Fit.MAYBE if questions else Fit.YES, why, questions)


def _by_version(entry: Entry, target: Target) -> tuple[Fit, str]:
    if entry.runtimes and target.runtime.name not in entry.runtimes:
        return Fit.NO, ""
    if not entry.versions:
        return Fit.YES, "it holds for every version"
    if target.span is None:
        return Fit.NO, ""
    fit = best_fit(VersionRange.parse(text).fit(target.span) for text in entry.versions)
    affected = ", ".join(entry.versions)
    if fit is Fit.MAYBE:
        return fit, f"{target.title} may be among the versions concerned ({affected})"
    return fit, f"{target.title} is among the versions concerned ({affected})"


def _by_typing(entry: Entry, target: Target) -> tuple[Fit, str]:
    if entry.typing is None or entry.typing == target.typing.value:
        return Fit.YES, f"the build is {entry.typing}ly typed" if entry.typing else ""
    # A target that says nothing of typing has its default, and the other is one option away.
    if target.typing is target.typings[0] and len(target.typings) > 1:
        return Fit.MAYBE, f"only where the build is {entry.typing}ly typed (target +{entry.typing})"
    return Fit.NO, ""


def _by_gpu(entry: Entry, target: Target) -> tuple[Fit, str]:
    gpu = target.gpu
    seen = f"reported on {', '.join(entry.seen_on)}" if entry.seen_on else ""
    if gpu is None:
        if entry.gpus:
            return Fit.MAYBE, f"only on {' or '.join(entry.gpus)}"
        return (Fit.MAYBE, f"{seen}; the target names no GPU") if entry.kind == "report" and seen else (Fit.YES, seen)
    if entry.gpus:
        fit = best_fit(gpu_fit(pattern, gpu) for pattern in entry.gpus)
        return fit, f"{gpu.describe()} is {'' if fit is Fit.YES else 'perhaps '}{' or '.join(entry.gpus)}"
    same = best_fit(gpu_fit(pattern, gpu) for pattern in entry.seen_on)
    if same is Fit.YES:
        return Fit.YES, f"{seen}, the GPU of this target"
    if same is Fit.MAYBE:
        return (Fit.MAYBE if entry.kind == "report" else Fit.YES), f"{seen}, perhaps the GPU of this target"
    # What NVIDIA confirmed is the version's; what somebody saw on one GPU need not be there on another.
    if entry.kind == "report" and entry.seen_on:
        return Fit.MAYBE, f"{seen} only, not on {gpu.describe()}"
    return Fit.YES, seen


def _by_model(entry: Entry, facts: ModelFacts | None) -> tuple[Fit, str]:
    seen = f"reported with {entry.seen_with}" if entry.seen_with else ""
    if facts is not None and facts.kernels is not None and entry.kernels:
        kernels = [kernel for part in entry.kernels for kernel in facts.kernels_with(part)]
        if not kernels and facts.kernels_hidden:
            return Fit.MAYBE, f"only where the engine has a kernel {' or '.join(entry.kernels)}, which it does not tell"
        return (Fit.YES if kernels else Fit.NO), _few("the engine has", kernels)
    if not entry.ops:
        return (Fit.MAYBE if entry.seen_with else Fit.YES), seen
    if facts is None or facts.nodes is None:
        return Fit.MAYBE, f"only where the model has {' or '.join(entry.ops)}" + (f", {seen}" if seen else "")
    present = [pattern for pattern in entry.ops if facts.has(pattern)]
    return (Fit.YES if present else Fit.NO), _few("the model has", present) + (f", {seen}" if seen else "")


def _by_condition(entry: Entry) -> tuple[Fit, str]:
    return (Fit.MAYBE, f"only with {entry.only_with}") if entry.only_with else (Fit.YES, "")


def _few(what: str, names: Sequence[str]) -> str:
    return f"{what} {listed(names, quote=str)}"


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
