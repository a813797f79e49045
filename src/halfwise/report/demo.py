"""The demo's story: what the model is, what was wrong, what the scan said, the fix, and one answer before and after."""

from __future__ import annotations

from halfwise.report.fix import show_fix
from halfwise.report.terminal import Terminal
from halfwise.verbs.demo import DemoResult

__all__ = ["show_demo"]

_WARNINGS = 4


def show_demo(terminal: Terminal, result: DemoResult) -> None:
    answers = result.answers
    terminal.line(
        f"A small transformer head of {len(result.fix.model.nodes)} nodes, written to {result.model}. In FP32 it is "
        "right. Its LayerNorm squares values up to 900, and FP16 ends at 65504: there the squares become infinite. "
        "x / inf becomes 0, and the answer is wrong without a single NaN:"
    )
    rows = [
        ["FP32", *(f"{value:.4f}" for value in answers.fp32)],
        ["plain FP16", *(f"{value:.4f}" for value in answers.fp16)],
        ["fixed", *(f"{value:.4f}" for value in answers.fixed)],
    ]
    terminal.line()
    terminal.table(["one answer", *("" for _ in answers.fp32)], rows, right=range(1, len(rows[0])))
    found = [finding for finding in result.scan.findings if finding.severity != "info"]
    terminal.line()
    terminal.line(f"$ halfwise scan {result.model}", "bold")
    for finding in found[:_WARNINGS]:
        terminal.line(f"{finding.severity} {finding.rule} {finding.where.name}: {finding.message}", "yellow", indent=2)
    if not found:
        terminal.line("nothing found without running it", indent=2)
    terminal.line()
    terminal.line(f"$ {result.command}", "bold")
    show_fix(terminal, result.fix, result.command)
