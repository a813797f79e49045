"""Build logs for tests."""

from __future__ import annotations

from halfwise.compiler.buildlog import (
    LogReport,
)
from halfwise.core.finding import Finding
from tests.support.paths import DATA

__all__ = ["LOGS", "V", "one"]


LOGS = DATA / "logs"
V = "[02/03/2025-10:11:12] [V] [TRT] "


def one(report: LogReport, rule: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.rule == rule]
    return finding
