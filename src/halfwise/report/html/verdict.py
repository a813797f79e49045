"""The verdict in a sentence, with before and after in the words of the tolerance; and the errors output by output."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfwise.backends.confirm import Confirmation
from halfwise.core.english import said
from halfwise.core.formats import Format
from halfwise.core.metrics import LIKENESSES, Metrics
from halfwise.core.summary import Rank
from halfwise.core.tolerance import EVERY_OUTPUT, USER_METRIC, Tolerance, Verdict
from halfwise.core.wording import counted
from halfwise.report.answer import caution, way_out
from halfwise.report.html.meter import Meter, meter
from halfwise.report.html.names import Names
from halfwise.report.numbers import factor, number, percent
from halfwise.verbs.fix.result import FixResult

__all__ = ["ErrorRow", "GapRow", "VerdictWords", "bound_text", "error_rows", "gap_rows", "verdict_words"]

METRIC_WORDS = {
    "rel_l2": "relative error",
    "max_abs": "largest difference",
    "rms": "root mean squared difference",
    "cosine": "cosine likeness",
    "psnr": "signal to noise, in dB",
    "topk": "share of the five largest kept",
    "exact": "share of equal places",
    "found": "share of selected rows found again",
    USER_METRIC: "your own metric",
}


@dataclass(frozen=True)
class VerdictWords:
    """The headline, the two halves of the comparison, and the picture. `standing` is the answer as a whole: `status`
    says what it rests on, `but` what spoils a tolerance that is kept, or why it is missed."""

    standing: Rank
    status: str
    headline: str
    but: str
    before: str
    after: str
    fp16_fails: bool
    delivered: str  # what ONNX Runtime made of what was written; empty where it did not run
    better: str  # how much smaller the error became; empty where that cannot be said
    meter: Meter


@dataclass(frozen=True)
class ErrorRow:
    """One output: its error as plain FP16, as fixed, and what is allowed."""

    output: int
    metric: str
    words: str
    before: str
    after: str
    allowed: str
    before_nonfinite: int
    after_nonfinite: int
    note: str
    meter: Meter


def verdict_words(result: FixResult) -> VerdictWords:
    name = result.model.path.name if result.model.path else "The model"
    here = result.standing.here
    kept = [node for node in result.plan.nodes if node.format is not Format.FP16]
    total = len(result.model.nodes)
    formats = " and ".join(sorted({node.format.value.upper() for node in kept}, reverse=True)) or "FP32"
    repairs = counted(len(result.plan.repairs), "exact repair") if result.plan.repairs else ""
    if result.met and kept:
        with_repairs = f" after {repairs}" if repairs else ""
        share = f"{len(kept):,} of its {counted(total, 'node')}"
        headline = f"{name} stays accurate{here} in FP16 with {share} in {formats}{with_repairs}."
    elif result.met and repairs:
        headline = f"{name} stays accurate{here} in FP16 after {repairs}: no node needs FP32."
    elif result.met and not result.sites.free:
        headline = f"{name} stays as it is: no node can be FP16."
    elif result.met:
        headline = f"{name} is accurate{here} in FP16 as it is: no node needs FP32."
    else:
        what = f"even with {counted(len(kept), 'node')} in {formats}" if kept else "in plain FP16"
        headline = f"{name} misses the tolerance {what}."
    status, spoiled, but = _spoiled(result, name)
    headline = spoiled or headline
    loads = (("plain FP16", result.fp16_verdict.ratio), ("fixed", result.verdict.ratio))
    before, after = result.fp16_verdict, result.verdict
    return VerdictWords(
        result.standing.rank,
        status,
        headline,
        but,
        verdict_text(before),
        verdict_text(after),
        not before.met,
        verdict_text(ran) if (ran := result.delivered and result.delivered.verdict) else "",
        _better(before.ratio, after.ratio) if kept or repairs else "",
        meter(loads if kept or repairs else loads[:1]),
    )


def _spoiled(result: FixResult, name: str) -> tuple[str, str, str]:
    """The answer in two or three words; and, where the emulation says yes, who says no in a headline, and why."""
    standing, cause = result.standing, way_out(result).cause
    if result.good:
        return standing.title, "", caution(result)
    if not result.met:
        return standing.title, "", cause
    return standing.title, f"{name} {standing.told}.", cause


def verdict_text(verdict: Verdict) -> str:
    if not verdict.metric:
        return "the tolerance bounds no output of this model"
    if verdict.metric == "nonfinite":
        return f"{counted(int(verdict.value), 'value')} of {verdict.worst_output!r} inf or NaN"
    ready = verdict.part if verdict.metric == USER_METRIC else ""  # the measure's name
    what = ready or METRIC_WORDS.get(verdict.metric, verdict.metric)
    where = "" if verdict.metric == USER_METRIC else f" of {verdict.worst_output!r}"
    sign = "at least" if verdict.metric in LIKENESSES else "at most"
    return f"{what}{where} {number(verdict.value)}; allowed {sign} {number(verdict.allowed)}"


def _better(before: float, after: float) -> str:
    if not math.isfinite(before) or not math.isfinite(after) or after <= 0 or before <= 2 * after:
        return ""
    return f"{factor(before / after)} smaller"


@dataclass(frozen=True)
class GapRow:
    """One output on a real backend: its relative error as predicted and as measured there."""

    output: int
    predicted: float
    measured: float
    ratio: float


def gap_rows(confirmation: Confirmation | None, names: Names) -> tuple[GapRow, ...]:
    """The furthest from its prediction first."""
    gaps = confirmation.gaps if confirmation is not None else {}
    ranked = sorted(gaps.items(), key=lambda item: (-item[1].ratio, -item[1].measured))
    return tuple(GapRow(names(name), gap.predicted, gap.measured, gap.ratio) for name, gap in ranked)


def bound_text(tolerance: Tolerance) -> str:
    """The tolerance as it is written on the command line."""
    return ", ".join(f"{b.output}:{b.metric}{b.op}{b.value:g}" for b in tolerance.bounds)


def error_rows(result: FixResult, names: Names) -> tuple[ErrorRow, ...]:
    """Every output with the metric that its tightest bound is on, the worst of plain FP16 first."""
    rows = []
    for name, after in result.fixed.items():
        before = result.fp16[name]
        metric, allowed = _bound_on(result, name, before)
        loads = _loads(result, name, before, after)
        rows.append((loads, _row(name, names(name), metric, allowed, before, after, loads)))
    rows.sort(key=lambda row: (-row[0][0], -row[0][1]))
    return tuple(row for _, row in rows)


def _row(
    name: str, index: int, metric: str, allowed: str, before: Metrics, after: Metrics, loads: tuple[float, float]
) -> ErrorRow:
    return ErrorRow(
        output=index,
        metric=metric,
        words=METRIC_WORDS[metric],
        before=_value(before, metric),
        after=_value(after, metric),
        allowed=allowed,
        before_nonfinite=before.nonfinite,
        after_nonfinite=after.nonfinite,
        note=said(after.uncompared or before.uncompared),
        meter=meter((("plain FP16", loads[0]), ("fixed", loads[1]))),
    )


def _value(metrics: Metrics, metric: str) -> str:
    value = getattr(metrics, metric)
    return percent(value) if metric in ("exact", "topk", "found") else number(value)


def _bound_on(result: FixResult, name: str, before: Metrics) -> tuple[str, str]:
    """The metric to show of an output and what is allowed of it: of its bounds the one that plain FP16 loads most."""
    floating = name in result.measured.floats
    bounds = [b for b in result.plan.tolerance.bounds if b.output == name]
    named = {b.metric for b in bounds}
    bounds += [
        b
        for b in result.plan.tolerance.bounds
        if b.output == EVERY_OUTPUT and b.metric not in (*named, USER_METRIC) and (b.metric == "exact") is not floating
    ]
    if not bounds:
        return ("rel_l2" if floating else "exact"), "not bounded"
    worst = max(bounds, key=lambda b: b.ratio(getattr(before, b.metric)))
    sign = "≥" if worst.op == ">=" else "≤"
    shown = percent(worst.value) if worst.metric in ("exact", "topk", "found") else number(worst.value)
    return worst.metric, f"{sign} {shown}"


def _loads(result: FixResult, name: str, before: Metrics, after: Metrics) -> tuple[float, float]:
    """Error over allowed error of one output alone; of one that is not bounded, its relative error."""
    bounds = tuple(
        b for b in result.plan.tolerance.bounds if b.output in (name, EVERY_OUTPUT) and b.metric != USER_METRIC
    )
    floats = {name} & result.measured.floats
    alone = Tolerance(bounds)
    return alone.ratio({name: before}, floats), alone.ratio({name: after}, floats)
