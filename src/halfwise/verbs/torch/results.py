"""What a check against autocast found: the two ways of running, every submodule, and what autocast keeps in FP32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from halfwise.core.document import Documented
from halfwise.core.english import documented, say, say_all
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.summary import Summary
from halfwise.core.tolerance import Tolerance, Verdict
from halfwise.core.wording import three_digits
from halfwise.verbs.torch.document import AutocastDocument, FirstOut, KeptRecord, RunRecord, SubmoduleRecord

__all__ = ["AutocastCheck", "Kept", "RunErrors", "Submodule"]

_SHOWN = 12


@dataclass(frozen=True)
class RunErrors:
    """One way of running, against FP32. `failure`: why it gave no answer, in which case there is nothing else."""

    how: str  # "real" or "emulated"
    outputs: Mapping[str, Metrics]
    verdict: Verdict
    failure: str = ""

    @property
    def met(self) -> bool:
        return not self.failure and self.verdict.met

    @property
    def ratio(self) -> float:
        """The error over the allowed error."""
        return math.inf if self.failure else self.verdict.ratio

    @property
    def words(self) -> str:
        return f"fails: {self.failure}" if self.failure else say(self.verdict.because)

    def document(self) -> RunRecord:
        return RunRecord(self.how, self.met, self.ratio, outputs_told(self.outputs), self.failure)


@dataclass(frozen=True)
class Submodule:
    """One call of a submodule: its largest activation in FP32, how many are beyond FP16, and both errors."""

    name: str
    type: str
    max_abs: float
    overflowing: int
    autocast: float | None  # error over allowed error; None where it did not run
    half: float | None

    def document(self) -> SubmoduleRecord:
        return SubmoduleRecord(self.name, self.type, self.max_abs, self.overflowing, self.autocast, self.half)


@dataclass(frozen=True)
class Kept:
    """Something that autocast keeps in FP32 and a plain FP16 engine does not. `without`: the error over the allowed
    error, of autocast with this in FP16 as well."""

    name: str
    family: str
    calls: int
    modules: tuple[str, ...]
    largest_input: float
    largest_result: float
    without: float | None  # None where the module does not bear that

    def document(self) -> KeptRecord:
        return KeptRecord(
            name=self.name,
            family=self.family,
            calls=self.calls,
            modules=self.modules,
            largest_input=self.largest_input,
            largest_result=self.largest_result,
            without_load=self.without,
        )


@dataclass(frozen=True, repr=False)
class AutocastCheck(Documented):
    """FP32 against autocast and against a module all in FP16. Printed, it is the answer and the tables."""

    module: str
    tolerance: Tolerance
    samples: int
    device: str
    autocast: RunErrors
    half: RunErrors
    submodules: tuple[Submodule, ...]  # in the order in which they finished; of several samples the worst
    kept: tuple[Kept, ...]  # what matters most first
    notes: tuple[Note, ...] = ()

    @property
    def met(self) -> bool:
        """Whether the module keeps the tolerance all in FP16."""
        return self.half.met

    @property
    def first_autocast(self) -> Submodule | None:
        """The first submodule whose output leaves the tolerance under autocast."""
        return next((each for each in self.submodules if each.autocast is not None and each.autocast > 1), None)

    @property
    def first_half(self) -> Submodule | None:
        """The same, all in FP16."""
        return next((each for each in self.submodules if each.half is not None and each.half > 1), None)

    @property
    def causes(self) -> tuple[Kept, ...]:
        """What autocast cannot do without: in FP16, each of them alone breaks the tolerance."""
        return (
            tuple(each for each in self.kept if each.without is not None and each.without > 1)
            if self.autocast.met
            else ()
        )

    @property
    def conclusion(self) -> Note:
        """Training used AMP, so why is it wrong now?"""
        if self.half.met:
            return Note.of(NoteKind.AUTOCAST_UNNEEDED, self.module)
        if not self.autocast.met:
            return Note.of(NoteKind.AUTOCAST_MISSES, self.module)
        if self.causes:
            return Note.of(NoteKind.AUTOCAST_NEEDED, self.module, names=[each.name for each in self.causes])
        return Note.of(NoteKind.AUTOCAST_TOGETHER, self.module)

    @property
    def answer(self) -> str:
        return say(self.conclusion)

    def summary(self) -> Summary:
        """The answer, and each submodule."""
        rows = tuple((s.name, s.type, s.max_abs, s.overflowing, s.autocast, s.half) for s in self.submodules)
        columns = ("submodule", "type", "largest", "beyond FP16", "autocast", "FP16")
        return Summary(self.answer, columns, rows, self.met)

    def document(self) -> AutocastDocument:
        first = [each.name if each is not None else None for each in (self.first_autocast, self.first_half)]
        return AutocastDocument(
            status="met" if self.met else "not-met",
            module=self.module,
            answer=self.answer,
            tolerance=self.tolerance.to_json(),
            samples=self.samples,
            device=self.device,
            autocast=self.autocast.document(),
            half=self.half.document(),
            first_out_of_tolerance=FirstOut(*first),
            submodules=[each.document() for each in self.submodules],
            kept_in_fp32=[each.document() for each in self.kept],
            causes=[each.name for each in self.causes],
            **documented(self.notes),
            because=(self.conclusion,),
        )

    def __str__(self) -> str:
        lines = [f"{self.answer}.", f"  autocast: {self.autocast.words}", f"  FP16:     {self.half.words}"]
        lines += [f"note: {each}" for each in say_all(self.notes)]
        lines += _table(
            ["kept in FP32 by autocast", "kind", "calls", "reads up to", "gives up to", "error without"],
            [
                [
                    k.name,
                    k.family,
                    str(k.calls or "-"),
                    _size(k.largest_input),
                    _size(k.largest_result),
                    _load(k.without),
                ]
                for k in self.kept
            ],
        )
        lines += _table(
            ["submodule", "type", "largest", "beyond FP16", "autocast", "FP16"],
            [
                [s.name, s.type, three_digits(s.max_abs), str(s.overflowing or "-"), _load(s.autocast), _load(s.half)]
                for s in self._telling()
            ],
        )
        for how, first in (("autocast", self.first_autocast), ("FP16", self.first_half)):
            if first is not None:
                lines.append(f"{how}: {first.name} ({first.type}) is the first whose output leaves the tolerance")
        lines.append("errors are over the allowed one; to_json() has all submodules")
        return "\n".join(lines)

    def _telling(self) -> list[Submodule]:
        """The first to leave the tolerance, those with the largest activations and those with the largest errors."""
        ranked = sorted(self.submodules, key=lambda s: (-(s.half or 0.0), -s.max_abs))
        chosen = {each for each in (self.first_autocast, self.first_half) if each is not None}
        chosen |= set(ranked[: _SHOWN // 2])
        chosen |= set(sorted(self.submodules, key=lambda s: -s.max_abs)[: _SHOWN // 2])
        return [each for each in self.submodules if each in chosen]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[index]) for row in (titles, *rows)) for index in range(len(titles))]
    return [
        "",
        *(
            "  ".join(
                cell.ljust(width) if index < 2 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (titles, *rows)
        ),
    ]


def _size(value: float) -> str:
    return three_digits(value) if value else "-"


def _load(value: float | None) -> str:
    return "-" if value is None else three_digits(value)
