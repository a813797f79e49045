"""What a look at files found, in one screen: the files, the findings that matter first, the next command."""

from __future__ import annotations

from itertools import groupby

from halfwise.core.english import say, say_all
from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.wording import and_more
from halfwise.report.terminal import SEVERITY_STYLES, Terminal
from halfwise.verbs.doctor.result import Diagnosed

__all__ = ["show_doctor"]

_FILES = 6
_OF_ONE_RULE = 2
_FINDINGS = 8


def show_doctor(terminal: Terminal, result: Diagnosed) -> None:
    """Findings with one remedy stand together."""
    for each in terminal.some(sorted(result.files, key=lambda file: _tells_least(file, result)), _FILES):
        tells = result.facts.get(each.path, "")
        terminal.line(f"{each.path}: {each.name}{f' - {tells}' if tells else ''}")
    terminal.more(len(result.files), _FILES, "file")
    groups = [
        list(group) for _, group in groupby(result.findings, key=lambda each: (each.severity, each.rule, each.remedy))
    ]
    for findings in terminal.some(groups, _FINDINGS):
        for finding in terminal.some(findings, _OF_ONE_RULE):
            terminal.line(f"{finding.severity:<7} {finding.rule} {_said(finding)}", SEVERITY_STYLES[finding.severity])
        if not terminal.full and len(findings) > _OF_ONE_RULE:
            terminal.line(and_more(len(findings), _OF_ONE_RULE).lstrip(), indent=8)
        terminal.line(f"-> {findings[0].remedy}", indent=8)
    terminal.more(len(groups), _FINDINGS, "kind")
    for sentence in say_all(result.notes):
        terminal.line(f"note: {sentence}")
    terminal.command("next: ", result.next.command)
    terminal.line(say(result.next.why), indent=6)


def _together(finding: Finding) -> tuple[str, str, str]:
    return finding.severity, finding.rule, finding.remedy


def _tells_least(file: Identified, result: Diagnosed) -> int:
    """What was examined comes first, what is of no known kind last."""
    if file.path in result.facts:
        return 0
    return 2 if file.kind in (FileKind.TEXT, FileKind.BINARY, FileKind.JSON, FileKind.EMPTY) else 1


def _said(finding: Finding) -> str:
    """Findings of files together name their places themselves."""
    bare = finding.rule.startswith("HW6") or finding.where.kind in ("build", "model") or not finding.where.name
    return finding.message if bare else f"{finding.where.name}: {finding.message}"
