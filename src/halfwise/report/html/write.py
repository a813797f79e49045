"""Renders the page and writes it whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment

from halfwise.core.whole_files import WholeFiles
from halfwise.core.wording import and_more, counted
from halfwise.report import numbers
from halfwise.report.html.histogram import WeightHistogram, weigh
from halfwise.report.html.names import SHOWN, short
from halfwise.report.html.page import gather
from halfwise.report.html.sealed import Asset, sealed, templates
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.scan import ScanResult
from halfwise.verbs.trace import Trace

__all__ = ["render", "rendered", "write_report"]

_STYLES = ("tokens.css", "page.css", "pictures.css", "graph.css", "print.css")
_SCRIPTS = ("page.js", "csv.js", "table.js", "tables.js", "strip.js", "layout.js", "graph.js", "panel.js", "tree.js")


def write_report(
    result: FixResult,
    path: Path,
    *,
    scan: ScanResult | None = None,
    trace: Trace | None = None,
    command: str = "",
    by_output: Mapping[str, Mapping[str, float]] | None = None,
    weighed: WeightHistogram | None = None,
) -> Path:
    """Write one page that needs nothing beside it. `command` is the command line that made the result.

    With a scan, its findings are shown; with a trace, the ranges are over all its inputs, and each node's own error
    is drawn along the model. `by_output` has the shares of each output's error by node (`output_shares`); `weighed` is
    where the weights lie, if that is known.
    """
    now, shares = datetime.now(UTC), by_output or {}
    text = render(result, scan=scan, trace=trace, command=command, when=now, by_output=shares, weighed=weighed)
    with WholeFiles(path.parent) as files:
        files.text(path, text, errors="backslashreplace")
    return path


def render(
    result: FixResult,
    *,
    scan: ScanResult | None,
    trace: Trace | None,
    command: str,
    when: datetime,
    by_output: Mapping[str, Mapping[str, float]],
    weighed: WeightHistogram | None = None,
) -> str:
    page = gather(result, scan, trace, command, when, by_output, weighed or weigh(result.model))
    return rendered("report.html", page, _STYLES, _SCRIPTS)


def rendered(template: str, page: Mapping[str, Any], styles: Sequence[str], scripts: Sequence[str]) -> str:
    """A page that may run its own script and style, by their hashes, and nothing else; `page["data"]` is its data."""
    table: Sequence[str] = page["data"]["names"]
    environment = page_templates()
    environment.globals["full"] = table.__getitem__
    environment.globals["brief"] = lambda index, width=SHOWN: short(table[index], width)
    return sealed(environment, template, {"culprits": (), **page}, page["data"], _assets(styles), _assets(scripts))


def page_templates() -> Environment:
    environment = templates("halfwise.report.html")
    for name in numbers.__all__:
        environment.filters[name] = getattr(numbers, name)
    environment.filters["short"] = short
    environment.filters["plural"] = counted
    environment.filters["and_more"] = and_more
    return environment


def _assets(names: Sequence[str]) -> list[Asset]:
    return [("halfwise.report.html", f"assets/{name}") for name in names]
