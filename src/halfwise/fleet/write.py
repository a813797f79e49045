"""Writes the page of a run, and what else was asked for."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from halfwise._version import __version__
from halfwise.core.wording import counted, number
from halfwise.fleet.run import FleetRun
from halfwise.fleet.show import culprits_of, title, what_changed
from halfwise.fleet.store import Result, Store
from halfwise.fleet.work import OUT
from halfwise.report.files import write
from halfwise.report.html.embed import digits
from halfwise.report.html.sealed import sealed, templates
from halfwise.report.text import safe

__all__ = ["PAGE", "page_text", "write_all"]

PAGE = "index.html"
_HISTORY = 30  # results of one job that the page draws
_CHANGES, _CULPRITS, _COSTS = 50, 40, 20
_STYLES = (
    ("halfwise.report.html", "assets/tokens.css"),
    ("halfwise.report.html", "assets/page.css"),
    ("halfwise.fleet", "page/fleet.css"),
)
_SCRIPTS = (("halfwise.fleet", "page/fleet.js"),)


def write_all(
    results: Path,
    run: FleetRun,
    *,
    page: Path | None = None,
    junit: Path | None = None,
    sarif: Path | None = None,
    markdown: Path | None = None,
) -> tuple[Path, ...]:
    place = page or results / PAGE
    write(place, page_text(run, place.parent))
    written = [place]
    if junit or sarif or markdown:
        from halfwise.fleet.exports import junit_text, markdown_text, sarif_text  # loads what `fix` is made of

        for path, text in ((junit, junit_text), (sarif, sarif_text), (markdown, markdown_text)):
            if path is not None:
                write(path, text(run))
                written.append(path)
    return tuple(written)


def page_text(run: FleetRun, folder: Path) -> str:
    """One page that needs nothing beside it but, for its links, the folder of results; `folder` is the page's."""
    with Store(run.folder, write=False) as store:
        history: dict[str, list[Result]] = {}
        for _, result in store.history():
            known = history.setdefault(result.subject, [])
            if not known or known[-1].id != result.id:
                known.append(result)
        began = next(start for each, start, _, _ in store.runs() if each == run.id)
    models = _models(run, history, folder)
    slowest = sorted(run.results, key=lambda result: -result.seconds)[:_COSTS]
    told = [each for each in run.changes if each.direction != "new"]
    values = {
        "standing": run.summary().rank,
        "told": run.told,
        "bad_words": f"{counted(sum(not result.good for result in run.results), 'job')} not good",
        "models_told": counted(len(models), "model"),
        "run": run.id,
        "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(began)),
        "version": __version__,
        "reused": run.reused,
        "tiles": _tiles(run),
        "changes": [(each.direction, title(each.now), what_changed(each)) for each in told[:_CHANGES]],
        "more_changes": max(0, len(told) - _CHANGES),
        "culprits": culprits_of([result for result in run.results if result.action == "fix"])[:_CULPRITS],
        "costs": [(title(r), f"{r.seconds:.1f}", _size(r.peak_bytes), number(r.model_runs or 0)) for r in slowest],
    }
    environment = templates("halfwise.fleet", "page")
    return sealed(environment, "fleet.html", values, {"models": models}, _STYLES, _SCRIPTS)


def _tiles(run: FleetRun) -> list[tuple[str, str]]:
    shares = [result.fp32_share for result in run.results if result.fp32_share is not None]
    worse = sum(change.direction == "worse" for change in run.changes)
    better = sum(change.direction == "better" for change in run.changes)
    return [
        ("worse than before", str(worse)),
        ("better than before", str(better)),
        ("FP32 arithmetic, mean", f"{100 * sum(shares) / len(shares):.1f}%" if shares else "none measured"),
        ("work", f"{sum(result.seconds for result in run.results):,.0f} s"),
    ]


def _models(run: FleetRun, history: Mapping[str, Sequence[Result]], folder: Path) -> list[dict[str, Any]]:
    """By model; what broke since the last run first, then what is not good."""
    directions = {change.now.id: change.direction for change in run.changes if change.direction != "new"}
    found: dict[str, list[Result]] = {}
    for result in run.results:
        found.setdefault(result.model, []).append(result)

    def rank(result: Result) -> tuple[bool, bool, bool, bool, str]:
        return directions.get(result.id) != "worse", result.good, not result.wary, result.action != "fix", title(result)

    models = []
    for name, results in found.items():
        results.sort(key=rank)
        jobs = [_job(r, directions.get(r.id, ""), history.get(r.subject, [r]), run.folder, folder) for r in results]
        models.append((rank(results[0]), {"name": safe(name), "jobs": jobs}))
    return [model for _, model in sorted(models, key=lambda each: each[0])]


def _job(result: Result, change: str, history: Sequence[Result], results: Path, folder: Path) -> dict[str, Any]:
    return {
        "title": safe(title(result)),
        "state": "good, caution" if result.wary else result.state,
        "change": change,
        "why": safe(result.why[:300]),
        "nodes": result.nodes,
        "fp32": result.fp32_nodes,
        "share": _short(result.fp32_share),
        "error": _short(result.error),
        "seconds": _short(result.seconds),
        "report": _link(results / result.folder / OUT / result.report, folder) if result.report else "",
        "history": [_point(each) for each in history[-_HISTORY:]],
    }


def _point(result: Result) -> list[Any]:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(result.started))
    return [day, _short(result.fp32_share), _short(result.error), result.state]


def _short(value: float | None) -> float | str | None:
    return None if value is None or math.isnan(value) else digits(value)


def _link(report: Path, folder: Path) -> str:
    try:
        return quote(Path(os.path.relpath(report, folder)).as_posix())
    except ValueError:  # another drive
        return report.absolute().as_uri()


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
