"""What a machine's probes told, in one screen: the answers by rule, and the forms that no hypothesis explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfwise.core.wording import counted
from halfwise.emulation.profiles.learned import shared
from halfwise.emulation.profiles.machine import FormRecord, MachineDocument
from halfwise.report.terminal import Terminal

if TYPE_CHECKING:
    from halfwise.verbs.prove import Proof

__all__ = ["show_machine", "show_proof"]

_SHOWN = 10


def show_proof(terminal: Terminal, proof: Proof) -> None:
    show_machine(terminal, proof.machine)
    if proof.path is not None:
        terminal.command("judge a model by it: ", f"halfwise fix MODEL.onnx --out DIR --profile {proof.path}")


def show_machine(terminal: Terminal, machine: MachineDocument) -> None:
    told = ", ".join(f"{count:,} {status}" for status, count in machine.counts.items() if count)
    forms = counted(len(machine.forms), "probe")
    terminal.line(f"{machine.ran.title}: {forms} in {machine.seconds:,.0f} s: {told}", "bold")
    terminal.table(("rule", "probe", "hypothesis"), _rows(machine.forms), right=(1,))
    loose = [form for form in machine.forms if form.status == "loose"]
    if loose:
        terminal.line("no hypothesis explains:")
        for form in terminal.some(loose, _SHOWN):
            terminal.line(f"{form.name}: {_deviation(form)}", indent=2)
        terminal.more(len(loose), _SHOWN, "probe", indent=2)
    refused = [form for form in machine.forms if form.status in ("refused", "elsewhere")]
    if refused:
        terminal.line("not run on the device:")
        for form in terminal.some(refused, _SHOWN):
            terminal.line(f"{form.name}: {form.why or 'another provider ran it'}", indent=2)
        terminal.more(len(refused), _SHOWN, "probe", indent=2)


def _rows(forms: Sequence[FormRecord]) -> list[tuple[str, str, str]]:
    groups: dict[tuple[str, str], list[FormRecord]] = {}
    for form in forms:
        if form.hypotheses:
            groups.setdefault((form.rule, form.variant), []).append(form)
    rows = []
    for (rule, variant), found in sorted(groups.items()):
        agreed = shared(found)
        told = agreed[:1] or tuple(dict.fromkeys(name for form in found for name in form.hypotheses[:1]))
        loose = sum(form.status == "loose" for form in found)
        beside = f"; {loose} loose" if loose else ""
        rows.append((f"{rule}: {variant}" if variant else rule, str(len(found)), " or ".join(told) + beside))
    return rows


def _deviation(form: FormRecord) -> str:
    nearest = form.evidence[form.hypotheses[0]]
    return (
        f"nearest {form.hypotheses[0]!r} ({nearest.equal:.1%} of {form.values:,} equal, largest distance "
        f"{nearest.largest_ulp:,}, difference {nearest.difference:.2g})"
    )
