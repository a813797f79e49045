"""The known precision defects of a target in one screen: those that apply in full, the others in short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfwise.core.english import say
from halfwise.report.terminal import Terminal

if TYPE_CHECKING:
    from halfwise.compiler.attention_regions import Fp32Region
    from halfwise.core.targets import Target
    from halfwise.deploy.advisories import Advisory

__all__ = ["show_advisories"]


def show_advisories(
    terminal: Terminal,
    target: Target,
    source: str,
    advisories: Sequence[Advisory],
    region: Fp32Region | None,
    note: str,
) -> None:
    """`source` is what was looked at, or empty; `note` says why no region is shown."""
    sure = [advisory for advisory in advisories if not advisory.open_questions]
    unsure = [advisory for advisory in advisories if advisory.open_questions]
    what = f" and {source}" if source else ""
    terminal.line(f"{target}{what}: {len(sure)} advisories apply, {len(unsure)} may apply", "bold")
    for caution in target.cautions:
        terminal.line(f"note: {say(caution)}")
    for advisory in sure:
        _show(terminal, advisory)
    if region is not None:
        terminal.line()
        for each in region.notes():
            terminal.line(say(each))
        for node in region.nodes:
            terminal.line(node, indent=2)
    elif note:
        terminal.line()
        terminal.line(f"note: {note}")
    if unsure:
        terminal.line()
        terminal.line("may apply" if terminal.full else "may apply (--full shows workarounds and sources)")
    for advisory in unsure:
        if terminal.full:
            _show(terminal, advisory)
            terminal.line(f"unknown: {'; '.join(advisory.open_questions)}", indent=2)
            continue
        terminal.line(_title(advisory), indent=2)
        terminal.line(advisory.entry.symptom, indent=4)
        terminal.line("; ".join(advisory.open_questions), indent=4)


def _show(terminal: Terminal, advisory: Advisory) -> None:
    entry = advisory.entry
    terminal.line()
    terminal.line(_title(advisory), "yellow")
    terminal.line(entry.symptom, indent=2)
    terminal.line(f"why: {advisory.why}", indent=2)
    terminal.line(f"do:  {entry.workaround}", indent=2)
    terminal.line(f"see: {', '.join(entry.source)}", indent=2)


def _title(advisory: Advisory) -> str:
    entry = advisory.entry
    fixed = f"fixed in {entry.fixed_in}" if entry.fixed_in else "no fix known"
    return f"{entry.id} ({entry.kind}, confidence {entry.confidence}, {fixed})"
