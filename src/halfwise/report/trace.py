"""A trace in one screen: the tensors that FP16 holds worst, and the nodes that it harms most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halfwise.core.wording import counted, three_digits
from halfwise.report.shell import shell
from halfwise.report.terminal import Terminal, share
from halfwise.report.verdict import show_notes
from halfwise.verbs.trace import TensorTrace, Trace

__all__ = ["show_trace"]

_SHOWN = 12


def show_trace(terminal: Terminal, result: Trace, model: Path, inputs: Sequence[str] = ()) -> None:
    """`inputs` are the options that say what it ran on, for the command to go on with."""
    bad = [tensor for tensor in result.tensors if tensor.over or tensor.nonfinite]
    terminal.line(
        f"{model.name}: {counted(len(result.tensors), 'float tensor')} over {counted(result.samples, 'input')}; "
        f"{len(bad):,} with values that FP16 cannot hold",
        "bold red" if bad else "bold",
    )
    show_notes(terminal, result.notes)
    _show_findings(terminal, result)
    _show_tensors(terminal, result)
    _show_nodes(terminal, result)
    terminal.command("next    ", shell(["halfwise", "fix", str(model), *inputs, "--out", "fixed"]))


def _show_findings(terminal: Terminal, result: Trace) -> None:
    for found in result.findings:
        terminal.line(f"{found.rule} input {found.where.name!r}, were it FP16: {found.message}")
        terminal.line(f"-> {found.remedy}", indent=8)


def _show_tensors(terminal: Terminal, result: Trace) -> None:
    touched = sorted((t for t in result.tensors if _badness(t) > (0, 0, 0)), key=_badness, reverse=True)
    if not touched:
        terminal.line("every value of every tensor is in FP16's normal range")
        return
    terminal.line()
    rows = [
        [
            tensor.name,
            three_digits(tensor.min),
            three_digits(tensor.max),
            share(tensor.over),
            share(tensor.below_normal),
            share(tensor.below_subnormal),
            share(tensor.nonfinite),
        ]
        for tensor in terminal.some(touched, _SHOWN)
    ]
    titles = ["tensor", "min", "max", "over 65504", "below 6.1e-5", "below 6e-8", "not finite"]
    terminal.table(titles, rows, right=range(1, 7))
    terminal.more(len(touched), _SHOWN)


def _show_nodes(terminal: Terminal, result: Trace) -> None:
    harmed = sorted((node for node in result.nodes if node.local_error > 0), key=lambda node: -node.local_error)
    if not harmed:
        return
    terminal.line()
    rows = [[node.name, node.op, three_digits(node.local_error)] for node in terminal.some(harmed, _SHOWN)]
    terminal.table(["node, alone in FP16", "operator", "relative error"], rows, right=(2,))
    terminal.more(len(harmed), _SHOWN)


def _badness(tensor: TensorTrace) -> tuple[float, float, float]:
    return tensor.nonfinite, tensor.over, tensor.below_normal
