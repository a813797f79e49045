"""What a build log says about precision, in one screen."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from halfwise.core.finding import Finding, most_severe_first
from halfwise.core.wording import counted
from halfwise.report.shell import shell
from halfwise.report.terminal import SEVERITY_STYLES, Terminal

if TYPE_CHECKING:
    from halfwise.compiler.buildlog import LogReport

__all__ = ["show_log"]

_SHOWN = 5
_TOLD = ("build", "option")  # places that the message names itself, if any


def show_log(terminal: Terminal, report: LogReport) -> None:
    constraints = f" ({report.constraints} precision constraints)" if report.constraints else ""
    version = f"TensorRT {report.trt_version}" if report.trt_version else "TensorRT version not stated"
    typing = f", {report.typing}" if report.typing else ""
    precision = report.precision or "precision not stated"
    terminal.line(f"{report.source}: {version}, {precision}{constraints}{typing}", "bold")
    if not report.findings:
        lines = counted(report.lines, "line")
        terminal.line(f"a TensorRT log of {lines} without a warning about precision{_quiet(report)}")
    for _, group in groupby(most_severe_first(report.findings), key=lambda finding: finding.rule):
        findings = list(group)
        for finding in terminal.some(findings, _SHOWN):
            _show_finding(terminal, finding)
        terminal.more(len(findings), _SHOWN, indent=8)
        terminal.line(f"-> {findings[0].remedy}", indent=8)
    if any(finding.severity != "info" for finding in report.findings) and _unsure(report):
        terminal.line(
            "note: the log states neither its version nor its typing. The remedies are for TensorRT up to 10.16; "
            "from 11 on, build a typed ONNX model (`halfwise fix MODEL --target trt-11`)"
        )
    if report.structure.engine_lines:  # it lists what each node ran in, which this verb does not judge
        terminal.command("next    ", shell(["halfwise", "audit", report.source]))


def _unsure(report: LogReport) -> bool:
    return report.trt_version is None and report.strongly_typed is None


def _quiet(report: LogReport) -> str:
    structure = report.structure
    verbose = structure.registered or structure.nodes or structure.engine_lines
    return "" if verbose else " (a build with --verbose says more)"


def _show_finding(terminal: Terminal, finding: Finding) -> None:
    place = f"{finding.where.name}: " if finding.where.name and finding.where.kind not in _TOLD else ""
    text = f"{finding.severity:7} {finding.rule} {place}{finding.message}"
    terminal.line(text, SEVERITY_STYLES[finding.severity])
    if finding.rule == "HW712":
        return
    names = finding.numbers.get("names") or finding.numbers.get("layers") or ()
    origins = finding.numbers.get("origins", {})
    for name in terminal.some(names, _SHOWN):
        found = origins.get(name, {}).get("initializers", [])
        terminal.line(name + (f"  = {', '.join(found)}" if found else ""), indent=8)
    terminal.more(len(names), _SHOWN, indent=8)
