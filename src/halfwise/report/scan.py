"""What a scan found, in one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from halfwise.core.english import say_all
from halfwise.core.finding import Finding
from halfwise.core.wording import counted, number, percent
from halfwise.report.shell import shell
from halfwise.report.terminal import SEVERITY_STYLES, Terminal
from halfwise.report.text import safe
from halfwise.verbs.scan import CheckpointFacts, InitializerCounts, ScanResult
from halfwise.verbs.scan.rounding import Rounding

__all__ = ["show_scan"]

_SHOWN = 3  # findings of one rule; --full shows all
_ROWS = 10
_LONGEST_NAME = 100
_COLUMNS = (
    ("subnormal", "subnormal"),
    ("underflow", "below 6e-08"),
    ("overflow", "over 65504"),
    ("nonfinite", "not finite"),
)
_CHANGES = ("change", "energy affected")


def show_scan(terminal: Terminal, result: ScanResult, *, rounding: bool = False) -> None:
    """`rounding`: what it changes in every weight was asked for."""
    for line in _headlines(result):
        terminal.line(line)
    named = {finding.where.name for finding in result.findings if finding.where.kind == "initializer"}
    shown = [entry for entry in result.initializers if entry.affected or rounding]
    _show_weights(terminal, shown, named, rounding)
    if rounding and (together := result.total_rounding) is not None:
        terminal.line(f"in all: {_in_all(together)}")
    if not result.findings:
        terminal.line("nothing found that FP16 would harm")
    for _, group in groupby(result.findings, key=lambda finding: (finding.severity, finding.rule)):
        _show_findings(terminal, list(group))
    if result.training:
        terminal.line("")
        terminal.line("if the model can be trained again:", "bold")
    for sentence in say_all(result.training):
        terminal.line(sentence, indent=2)
    if not isinstance(result.facts, CheckpointFacts) and result.facts.next:
        terminal.command("next    ", shell(result.facts.next))


def _headlines(result: ScanResult) -> list[str]:
    facts = result.facts
    kinds = Counter(entry.dtype for entry in result.initializers)
    types = kinds.most_common(1)[0][0].upper() if len(kinds) == 1 else "float" if kinds else "FP32"
    weights = f"{counted(len(result.initializers), f'{types} weight')} with {counted(result.totals.count, 'value')}"
    if len(kinds) > 1:
        weights += f" ({', '.join(f'{count:,} {kind.upper()}' for kind, count in kinds.most_common())})"
    if not isinstance(facts, CheckpointFacts):
        return [f"{facts.path or 'model'}: {counted(facts.nodes, 'node')}, opset {facts.opset}, {weights}"]
    parts = [weights, *([f"{facts.files} files"] if facts.files > 1 else [])]
    parts += [f"{counted(facts.shared, 'name')} shared, counted once"] if facts.shared else []
    parts += [f"{counted(facts.other, 'tensor')} of other types left out"] if facts.other else []
    return [f"{facts.path}: {', '.join(parts)}", *say_all(facts.notes)]


def _show_weights(terminal: Terminal, affected: Sequence[InitializerCounts], named: set[str], rounding: bool) -> None:
    """The weights that findings name, then those with the largest share of values that FP16 holds badly."""
    if not affected:
        return
    columns = [(field, title) for field, title in _COLUMNS if any(getattr(e.counts, field) for e in affected)]
    ranked = sorted(affected, key=lambda entry: (entry.name in named, _badness(entry)), reverse=True)
    rows = [
        [
            e.name,
            f"{e.counts.count:,}",
            *(f"{getattr(e.counts, field):,}" for field, _ in columns),
            number(e.counts.max_abs),
            *(_changes(e) if rounding else ()),
        ]
        for e in terminal.some(ranked, _ROWS)
    ]
    titles = ["weight", "values", *(title for _, title in columns), "largest", *(_CHANGES if rounding else ())]
    terminal.line()
    terminal.table(titles, rows, right=range(1, len(titles)))
    terminal.more(len(ranked), _ROWS, "weight")
    terminal.line()


def _changes(entry: InitializerCounts) -> list[str]:
    """What rounding changes: of the whole weight, and how much of its energy is in values that FP16 holds badly."""
    if entry.rounding is None:
        return ["", ""]
    return [percent(entry.rounding.relative), percent(entry.rounding.affected_share)]


def _in_all(together: Rounding) -> str:
    return (
        f"rounding to FP16 changes the weights by {percent(together.relative)} of their norm, a single value by up to "
        f"{number(together.largest)} or {percent(together.largest_relative)} of itself; "
        f"{percent(together.affected_share)} of their energy is in values that FP16 holds badly"
    )


def _badness(entry: InitializerCounts) -> tuple[int, int, float]:
    counts = entry.counts
    share = entry.rounding.relative if entry.rounding is not None else 0.0
    return counts.nonfinite, counts.overflow, share or (counts.subnormal + counts.underflow) / max(counts.count, 1)


def _show_findings(terminal: Terminal, findings: Sequence[Finding]) -> None:
    """Those of one rule."""
    for finding in terminal.some(findings, _SHOWN):
        place = f"{safe(finding.where.name, _LONGEST_NAME)}: " if finding.where.kind != "model" else ""
        text = f"{finding.severity:<7} {finding.rule} {place}{finding.message}"
        terminal.line(text, SEVERITY_STYLES[finding.severity])
    terminal.more(len(findings), _SHOWN, indent=8)
    terminal.line(f"-> {findings[0].remedy}", indent=8)
