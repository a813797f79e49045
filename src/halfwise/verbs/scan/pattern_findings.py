"""Findings about patterns: one per kind of trouble, however often the model repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Severity, Where
from halfwise.core.formats import Format, round_to
from halfwise.core.notes import Note, NoteKind
from halfwise.model.patterns import KINDS, Pattern

__all__ = ["pattern_findings"]

_FP16 = Format.FP16
_LISTED = 64
_SQUARE_LIMIT = 255.0  # 256 * 256 is over 65504
_EXP_LIMIT = 11.09  # exp(11.09) is over 65504
_LONG_SUM = 16384  # elements of 4 on average reach 65504
_LONG_PRODUCT = 1024
_LONG_RUN = 2048
_EXACT_IDS = 2048


def pattern_findings(patterns: Sequence[Pattern]) -> list[Finding]:
    """The findings HW201 to HW211."""
    kinds: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        kinds.setdefault(pattern.kind, []).append(pattern)
    found: list[Finding] = []
    for kind, group in kinds.items():
        judge = _JUDGES.get(kind)
        if judge is not None:
            found.extend(judge(group))
    return found


def _one(
    rule: str, group: Sequence[Pattern], note: Note, severity: Severity | None = None, **numbers: Any
) -> Iterator[Finding]:
    """The finding of a group: where its first is, how many there are, and where the others are."""
    if not group:
        return
    first = group[0]
    numbers = {"pattern": first.kind, "count": len(group), "nodes": [p.anchor for p in group[:_LISTED]], **numbers}
    if len(group) > 1:
        note = Note.of(NoteKind.TIMES, times=len(group), what=note)
    yield finding(rule, Where("node", first.anchor), note, numbers, severity)


def _norms(group: Sequence[Pattern]) -> Iterator[Finding]:
    kind = group[0].kind
    squared = "x" if kind == "rmsnorm" else "x - mean"
    note = Note.of(NoteKind.NORM_SQUARES, pattern=KINDS[kind], squared=squared, limit=_SQUARE_LIMIT)
    yield from _one("HW201", [p for p in group if not p.details["by_moments"]], note, limit=_SQUARE_LIMIT)


def _moments(group: Sequence[Pattern]) -> Iterator[Finding]:
    note = Note.of(NoteKind.MOMENTS_CANCEL, pattern=KINDS[group[0].kind], limit=_SQUARE_LIMIT)
    yield from _one("HW202", group, note, limit=_SQUARE_LIMIT)


def _lengths(group: Sequence[Pattern]) -> Iterator[Finding]:
    apart = [p for p in group if not p.details["whole"]]
    note = Note.of(NoteKind.LENGTH_SQUARES, pattern=KINDS["l2norm"], limit=_SQUARE_LIMIT)
    yield from _one("HW203", apart, note, limit=_SQUARE_LIMIT, least=2.0**-12)


def _exponentials(group: Sequence[Pattern]) -> Iterator[Finding]:
    unstable = [p for p in group if not p.details["stable"]]
    note = Note.of(NoteKind.EXP_UNSHIFTED, pattern=KINDS[group[0].kind], limit=_EXP_LIMIT)
    yield from _one("HW204", unstable, note, limit=_EXP_LIMIT)


def _inverse_sigmoids(group: Sequence[Pattern]) -> Iterator[Finding]:
    bare = [p for p in group if not _guards_one(p)]
    highs = sorted({p.details["high"] for p in bare if p.details["high"] is not None})
    note = Note.of(NoteKind.LOGIT_BOUND_IS_ONE, high=highs[0]) if highs else Note.of(NoteKind.LOGIT_UNGUARDED)
    yield from _one("HW205", bare, note, high=highs[0] if highs else None)


def _guards_one(pattern: Pattern) -> bool:
    """Whether 1 - x is kept from 0 in FP16, too."""
    high, rest = pattern.details["high"], pattern.details["low_rest"]
    below = high is not None and float(round_to(np.asarray(high), _FP16)) < 1.0
    return below or (rest is not None and rest >= _FP16.smallest_subnormal)


def _sums(group: Sequence[Pattern]) -> Iterator[Finding]:
    long = [p for p in group if p.details["sums"] and p.details["count"] >= _LONG_SUM]
    if long:
        count = max(p.details["count"] for p in long)
        note = Note.of(NoteKind.SUM_LONG, elements=count, limit=_FP16.max / count)
        yield from _one("HW206", long, note, elements=count, limit=_FP16.max / count)


def _grams(group: Sequence[Pattern]) -> Iterator[Finding]:
    long = [p for p in group if p.details["count"] is not None and p.details["count"] >= _LONG_PRODUCT]
    if long:
        count = max(p.details["count"] for p in long)
        limit = float(np.sqrt(_FP16.max / count))
        note = Note.of(NoteKind.GRAM_LONG, pattern=KINDS["gram"], elements=count, limit=limit)
        yield from _one("HW206", long, note, elements=count, limit=limit)


def _running_sums(group: Sequence[Pattern]) -> Iterator[Finding]:
    long = [p for p in group if p.details["count"] is None or p.details["count"] >= _LONG_RUN]
    known = [p.details["count"] for p in long if p.details["count"] is not None]
    note = Note.of(NoteKind.RUNNING_SUM_OVER, elements=max(known)) if known else Note.of(NoteKind.RUNNING_SUM)
    yield from _one("HW207", long, note, "warning" if known else "info", elements=max(known, default=None))


def _coordinates(group: Sequence[Pattern]) -> Iterator[Finding]:
    remainders = [p for p in group if p.details["remainder"]]
    yield from _one("HW208", remainders, Note.of(NoteKind.REMAINDER))
    differences = [p for p in group if not p.details["remainder"] and p.details["op"] in ("Add", "Sub")]
    scaled = [p for p in group if not p.details["remainder"] and p.details["op"] in ("Mul", "Div")]
    for part, severity in ((differences, "warning"), (scaled, "info")):
        if part:
            largest = max(p.details["largest"] for p in part)
            step = max(p.details["step"] for p in part)
            note = Note.of(NoteKind.COORDINATES, largest=largest, step=step)
            yield from _one("HW208", part, note, severity, largest=largest, step=step)  # type: ignore[arg-type]


def _waves(group: Sequence[Pattern]) -> Iterator[Finding]:
    large = [p for p in group if p.details["largest"] is not None]
    note = Note.of(NoteKind.WAVES)
    largest = max((p.details["largest"] for p in large), default=None)
    if largest is not None:
        note = Note.of(NoteKind.WAVES_UP_TO, largest=largest, step=float(np.spacing(np.float16(largest))))
    yield from _one("HW209", group, note, "warning" if large else "info", largest=largest)


def _selections(group: Sequence[Pattern]) -> Iterator[Finding]:
    ops = sorted({p.details["op"] for p in group})
    yield from _one("HW210", group, Note.of(NoteKind.SELECTION, ops=ops))


def _ids(group: Sequence[Pattern]) -> Iterator[Finding]:
    to_index = [p for p in group if p.details["direction"] == "to-index"]
    large = [p for p in to_index if (p.details["table"] or 0) > _EXACT_IDS]
    if large:
        table = max(p.details["table"] for p in large)
        note = Note.of(NoteKind.IDS_OF_TABLE, table=table, exact=_EXACT_IDS)
        yield from _one("HW211", large, note, table=table)
    open_ended = [p for p in to_index if p.details["table"] is None]
    yield from _one("HW211", open_ended, Note.of(NoteKind.IDS_AS_FLOATS, exact=_EXACT_IDS), "info")
    note = Note.of(NoteKind.INTEGERS_AS_FLOATS, exact=_EXACT_IDS)
    yield from _one("HW211", [p for p in group if p.details["direction"] == "from-id"], note, "info")


_JUDGES: dict[str, Callable[[Sequence[Pattern]], Iterator[Finding]]] = {
    "layernorm": _norms,
    "rmsnorm": _norms,
    "instancenorm": _norms,
    "groupnorm": _norms,
    "variance-by-moments": _moments,
    "l2norm": _lengths,
    "softmax": _exponentials,
    "logsumexp": _exponentials,
    "inverse-sigmoid": _inverse_sigmoids,
    "large-reduction": _sums,
    "gram": _grams,
    "cumsum": _running_sums,
    "large-coordinates": _coordinates,
    "sincos-embedding": _waves,
    "selection": _selections,
    "id-cast": _ids,
}
