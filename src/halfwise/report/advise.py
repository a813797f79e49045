"""The known precision defects of a target in one screen: those that apply in full, the others in short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfwise.core.english import said, say
from halfwise.core.wording import counted
from halfwise.report.terminal import Terminal

if TYPE_CHECKING:
    from halfwise.deploy.advisories import Advisory
    from halfwise.verbs.advise import Advice

__all__ = ["show_advisories"]


def show_advisories(terminal: Terminal, advice: Advice) -> None:
    sure = [advisory for advisory in advice.advisories if not advisory.open_questions]
    unsure = [advisory for advisory in advice.advisories if advisory.open_questions]
    what = f" and {advice.source}" if advice.source else ""
    certain = counted(len(sure), "advisory applies", "advisories apply")
    terminal.line(f"{advice.target}{what}: {certain}, {len(unsure)} may apply", "bold")
    for caution in advice.target.cautions:
        terminal.line(f"note: {say(caution)}")
    for advisory in sure:
        _show(terminal, advisory)
    if advice.region is not None:
        terminal.line()
        for each in advice.region.notes():
            terminal.line(say(each))
        for node in advice.region.nodes:
            terminal.line(node, indent=2)
    elif advice.note:
        terminal.line()
        terminal.line(f"note: {advice.note}")
    if unsure:
        terminal.line()
        terminal.line("may apply" if terminal.full else "may apply (--full shows workarounds and sources)")
    for advisory in unsure:
        if terminal.full:
            _show(terminal, advisory)
            terminal.line(f"unknown: {said(advisory.open_questions)}", indent=2)
            continue
        terminal.line(_title(advisory), indent=2)
        terminal.line(advisory.entry.symptom, indent=4)
        terminal.line(said(advisory.open_questions), indent=4)


def _show(terminal: Terminal, advisory: Advisory) -> None:
    entry = advisory.entry
    terminal.line()
    terminal.line(_title(advisory), "yellow")
    terminal.line(entry.symptom, indent=2)
    terminal.line(f"why: {said(advisory.because)}", indent=2)
    terminal.line(f"do:  {entry.workaround}", indent=2)
    terminal.line(f"see: {', '.join(entry.source)}", indent=2)


def _title(advisory: Advisory) -> str:
    entry = advisory.entry
    fixed = f"fixed in {entry.fixed_in}" if entry.fixed_in else "no fix known"
    return f"{entry.id} ({entry.kind}, confidence {entry.confidence}, {fixed})"
