"""The rounding profiles as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfwise.emulation.profiles import LEARNED
from halfwise.report.terminal import Terminal

if TYPE_CHECKING:
    from halfwise.verbs.profiles import ProfileRecord, Profiles

__all__ = ["show_profiles"]

_TOLD = {
    "bound": "a limit; needs no evidence",
    "measured": "fitted to runs on a GPU",
    "inferred": "from kernel names; never run",
    "learned": "by halfwise prove",
}


def show_profiles(terminal: Terminal, found: Profiles) -> None:
    rows = [(each.name, _TOLD[each.evidence], f"{each.spread:.0%}") for each in found.records]
    terminal.table(("profile", "evidence", "margin"), rows, right=(2,))
    machines = dict.fromkeys(_machine(each) for each in found.records if each.forms is not None)
    for machine in machines:
        names = ", ".join(each.name for each in found.records if each.forms is not None and _machine(each) == machine)
        terminal.line(f"{names}: learned on {machine}")
    if not any(each.name.endswith(LEARNED) for each in found.records):
        terminal.line("No profile was learned in this folder. `halfwise prove --backend B` learns one from a GPU.")


def _machine(record: ProfileRecord) -> str:
    told = ", ".join(f"{count:,} {status}" for status, count in (record.forms or {}).items() if count)
    return f"{record.machine}, {record.made}: {told}"
