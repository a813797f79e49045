"""What a real backend made of a fixed model, beside what was predicted."""

from __future__ import annotations

from halfwise.backends.confirm import Confirmation
from halfwise.core.english import say
from halfwise.core.wording import three_digits
from halfwise.report.terminal import Terminal

__all__ = ["show_confirmation"]


def show_confirmation(terminal: Terminal, result: Confirmation) -> None:
    terminal.line()
    if result.met:
        terminal.line(f"Confirmed: the tolerance is kept on {result.record.title}, too:", "bold green")
    else:
        terminal.line(f"Not confirmed: the tolerance is not kept on {result.record.title}:", "bold red")
    if result.outputs:
        terminal.line(say(result.verdict.because), indent=2)
    if result.gaps:
        rows = [
            [name, three_digits(gap.predicted), three_digits(gap.measured), three_digits(gap.ratio)]
            for name, gap in result.gaps.items()
        ]
        terminal.line()
        terminal.table(["output", "rel_l2 predicted", "measured", "ratio"], rows, right=(1, 2, 3))
    for each in result.findings:
        style = {"error": "bold red", "warning": "yellow"}.get(each.severity, "")
        terminal.line(f"{each.rule} {each.severity}: {each.message}; {each.remedy}", style)
    for note in result.notes:
        terminal.line(f"note: {say(note)}", "yellow")
