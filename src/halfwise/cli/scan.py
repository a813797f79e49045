"""`halfwise scan`: what can be known of a model's FP16 numerics without running it."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.cli.options import Full, Sarif

if TYPE_CHECKING:
    from rich.console import Console

    from halfwise.finding import Finding
    from halfwise.scan import InitializerCounts, ScanResult
    from halfwise.scan.rounding import Rounding

__all__ = ["command"]

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_SHOWN = 3  # findings of one rule; --full shows all
_ROWS = 10
_PIPED_WIDTH = 120
_NARROWEST_NAME = 16
_LONGEST_NAME = 100
_COLUMNS = (
    ("subnormal", "subnormal"),
    ("underflow", "below 6e-08"),
    ("overflow", "over 65504"),
    ("nonfinite", "not finite"),
)
_CHANGES = ("change", "energy affected")


def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="ONNX model, or a checkpoint: .safetensors, .pth, .pt, an index of shards, or a folder of them.",
        ),
    ],
    rounding: Annotated[
        bool,
        typer.Option("--rounding", help="Measure what rounding changes in every weight, not only in doubtful ones."),
    ] = False,
    sarif: Sarif = None,
    full: Full = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.scan/1).")] = False,
) -> None:
    """What can go wrong in FP16, seen without running: weights, constants, patterns, types."""
    from halfwise.scan import scan

    result = scan(model, rounding=rounding)
    if sarif is not None:
        from halfwise.report.files import write
        from halfwise.report.sarif import sarif_text

        write(sarif, sarif_text(result.findings, model))
    if as_json:
        from halfwise.report.terminal import write_out

        write_out(json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
    else:
        _show(result, full, rounding)


def _show(result: ScanResult, full: bool = False, rounding: bool = False) -> None:
    console = _console()
    for line in _headlines(result):
        _line(console, line)
    named = {finding.where.name for finding in result.findings if finding.where.kind == "initializer"}
    shown = [entry for entry in result.initializers if entry.affected or rounding]
    _show_weights(console, shown, named, full, rounding)
    if rounding and (together := result.total_rounding) is not None:
        _line(console, f"in all: {_in_all(together)}")
    if not result.findings:
        _line(console, "nothing found that FP16 would harm")
    for _, group in groupby(result.findings, key=lambda finding: (finding.severity, finding.rule)):
        _show_findings(console, list(group), full)
    if result.training:
        _line(console, "")
        _line(console, "if it can be trained again:", "bold")
    for sentence in result.training:
        _line(console, sentence, indent=2)


def _headlines(result: ScanResult) -> list[str]:
    from halfwise.scan import CheckpointFacts
    from halfwise.scan.words import counted

    facts = result.facts
    kinds = Counter(entry.dtype for entry in result.initializers)
    types = kinds.most_common(1)[0][0].upper() if len(kinds) == 1 else "float" if kinds else "FP32"
    weights = f"{len(result.initializers):,} {types} weights with {result.totals.count:,} values"
    if len(kinds) > 1:
        weights += f" ({', '.join(f'{count:,} {kind.upper()}' for kind, count in kinds.most_common())})"
    if not isinstance(facts, CheckpointFacts):
        return [f"{facts.path or 'model'}: {facts.nodes:,} nodes, opset {facts.opset}, {weights}"]
    parts = [weights, *([f"{facts.files} files"] if facts.files > 1 else [])]
    parts += [f"{counted(facts.shared, 'name')} shared, counted once"] if facts.shared else []
    parts += [f"{counted(facts.other, 'tensor')} of other types left out"] if facts.other else []
    return [f"{facts.path}: {', '.join(parts)}", *facts.notes]


def _console() -> Console:
    """Colours and wrapping on a terminal only; rich itself heeds NO_COLOR and COLUMNS."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):  # a name must not end the program on a terminal with few letters
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_WIDTH
    return console


def _line(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """One paragraph: wrapped on a terminal, one line where a program reads it."""
    from rich.padding import Padding
    from rich.text import Text

    from halfwise.report.text import brief, safe

    if console.is_terminal:
        console.print(Padding(Text(brief(text), style=style), (0, 0, 0, indent)))
    else:
        console.print(" " * indent + safe(text), soft_wrap=True)


def _show_weights(
    console: Console, affected: list[InitializerCounts], named: set[str], full: bool, rounding: bool
) -> None:
    """The weights that findings name, then those with the largest share of values that FP16 holds badly."""
    from rich.table import Table
    from rich.text import Text

    from halfwise.report.text import safe
    from halfwise.scan.words import number

    if not affected:
        return
    columns = [(field, title) for field, title in _COLUMNS if any(getattr(e.counts, field) for e in affected)]
    ranked = sorted(affected, key=lambda entry: (entry.name in named, _badness(entry)), reverse=True)
    rows = ranked if full else ranked[:_ROWS]
    cells = [
        [
            f"{e.counts.count:,}",
            *(f"{getattr(e.counts, field):,}" for field, _ in columns),
            number(e.counts.max_abs),
            *(_changes(e) if rounding else ()),
        ]
        for e in rows
    ]
    titles = ["values", *(title for _, title in columns), "largest", *(_CHANGES if rounding else ())]
    taken = sum(max(len(title), *(len(row[i]) for row in cells)) + 2 for i, title in enumerate(titles))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(Text("weight"), no_wrap=True)
    for title in titles:
        table.add_column(Text(title), justify="right", no_wrap=True)
    width = max(_NARROWEST_NAME, console.width - taken - 2)
    for entry, row in zip(rows, cells, strict=True):
        table.add_row(Text(safe(entry.name, width)), *map(Text, row))
    console.print()
    console.print(table)
    if len(affected) > len(rows):
        _line(console, f"... and {len(affected) - len(rows):,} more weights (--full shows all)")
    console.print()


def _changes(entry: InitializerCounts) -> list[str]:
    """What rounding changes: of the whole weight, and how much of its energy is in values that FP16 holds badly."""
    from halfwise.scan.words import percent

    if entry.rounding is None:
        return ["", ""]
    return [percent(entry.rounding.relative), percent(entry.rounding.affected_share)]


def _in_all(together: Rounding) -> str:
    from halfwise.scan.words import number, percent

    return (
        f"rounding to FP16 changes the weights by {percent(together.relative)} of their norm, a single value by up to "
        f"{number(together.largest)} or {percent(together.largest_relative)} of itself; "
        f"{percent(together.affected_share)} of their energy is in values that FP16 holds badly"
    )


def _badness(entry: InitializerCounts) -> tuple[int, int, float]:
    counts = entry.counts
    share = entry.rounding.relative if entry.rounding is not None else 0.0
    return counts.nonfinite, counts.overflow, share or (counts.subnormal + counts.underflow) / max(counts.count, 1)


def _show_findings(console: Console, findings: list[Finding], full: bool) -> None:
    from halfwise.report.text import safe

    first = findings[0]
    most = len(findings) if full else _SHOWN
    for finding in findings[:most]:
        place = f"{safe(finding.where.name, _LONGEST_NAME)}: " if finding.where.kind != "model" else ""
        text = f"{finding.severity:<7} {finding.rule} {place}{finding.message}"
        _line(console, text, _STYLES[finding.severity])
    if len(findings) > most:
        _line(console, f"... and {len(findings) - most:,} more of {first.rule}", indent=8)
    _line(console, f"-> {first.remedy}", indent=8)
