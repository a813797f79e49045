"""A run on the screen: what got worse first, then every job that is not good, then the whole in one line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from halfwise.core.wording import counted, number, together
from halfwise.fleet.changes import Change
from halfwise.fleet.run import FleetRun
from halfwise.fleet.store import Result
from halfwise.fleet.stored import History
from halfwise.report.terminal import Terminal, share

__all__ = ["culprits_of", "show_history", "show_run", "title", "told", "what_changed"]

_ROWS = 20
_STYLES = {"worse": "bold red", "better": "green", "new": "cyan"}


def show_run(screen: Terminal, run: FleetRun, written: Sequence[Path]) -> None:
    for direction in ("worse", "better"):
        found = [each for each in run.changes if each.direction == direction]
        if found:
            screen.line(f"{counted(len(found), 'job')} {direction} than in the run before", _STYLES[direction])
            for change in screen.some(found, _ROWS):
                screen.line(f"{title(change.now)}: {what_changed(change)}", indent=2)
            screen.more(len(found), _ROWS, indent=2)
    new = sum(change.direction == "new" for change in run.changes)
    if new:
        screen.line(f"{counted(new, 'job')} without an earlier result", _STYLES["new"])
    told = sorted((result for result in run.results if not result.good or result.wary), key=lambda result: result.good)
    if told:
        screen.line()
        rows = [(title(result), result.state, result.why) for result in screen.some(told, _ROWS)]
        screen.table(("job", "state", "why"), rows, fold=2)
        screen.more(len(told), _ROWS)
    screen.line()
    states = Counter(result.state for result in run.results)
    counts = together(f"{count} {state}" for state, count in states.most_common()) if states else "none has ended"
    wary = sum(result.wary for result in run.results)
    cautions = f" ({wary} good with a caution)" if wary else ""
    seconds = sum(result.seconds for result in run.results)
    reused = f"; {run.reused} of them were done before" if run.reused else ""
    jobs = f"{counted(len(run.results), 'job')}: {counts}{cautions}{reused}"
    screen.line(f"{jobs}; {number(round(seconds))} s of work", "bold")
    if not run.ended:
        screen.line("the run has not ended: it still runs, or it was interrupted and jobs are missing", "bold red")
    for path in written:
        screen.line(f"wrote {path}")


def show_history(screen: Terminal, history: History) -> None:
    rows = [
        (
            title(result),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(result.started)),
            result.state,
            "" if result.fp32_nodes is None else f"{result.fp32_nodes}",
            "" if result.fp32_share is None else share(result.fp32_share),
            "" if result.error is None else number(result.error),
            f"{result.seconds:.1f}",
        )
        for result in history.results
    ]
    titles = ("job", "when", "state", "FP32 nodes", "of the arithmetic", "error", "seconds")
    screen.table(titles, rows, right=(3, 4, 5, 6))


def title(result: Result) -> str:
    return " ".join(filter(None, (result.model, result.action, result.target, result.tolerance, result.version)))


def what_changed(change: Change) -> str:
    before, now = change.before, change.now
    if before is None:
        return f"{now.state}, the first result"
    if change.what == "state":
        return f"{before.state}, now {now.state}{f': {now.why}' if now.why else ''}"
    if change.what == "FP32 nodes":
        return f"{counted(before.fp32_nodes or 0, 'FP32 node')}, now {now.fp32_nodes}"
    return f"error {number(before.error or 0.0)}, now {number(now.error or 0.0)}"


def told(result: Result) -> str:
    """State and, where there is one, the reason."""
    return f"{result.state}: {result.why}" if result.why else result.state


def culprits_of(results: Sequence[Result]) -> list[tuple[str, int, int]]:
    """Over all models: what, how many times, in how many models; the most models first. Several jobs on one model see
    the same nodes: the most that one of them saw counts."""
    seen: dict[str, dict[str, int]] = {}
    for result in results:
        for what, count in result.culprits:
            models = seen.setdefault(what, {})
            models[result.model] = max(count, models.get(result.model, 0))
    found = [(what, sum(models.values()), len(models)) for what, models in seen.items()]
    return sorted(found, key=lambda each: (-each[2], -each[1], each[0]))
