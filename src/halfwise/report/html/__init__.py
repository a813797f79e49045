"""One self-contained HTML page about a fix: what was wrong, how wrong, where, what was done, and how we know."""

from halfwise.report.html.write import write_report

__all__ = ["write_report"]
