"""What the store tells of runs that are over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from halfwise.core.document import Documented
from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest
from halfwise.core.summary import Summary
from halfwise.core.wording import counted
from halfwise.fleet.changes import changes
from halfwise.fleet.document import HistoryDocument, job_record, job_table
from halfwise.fleet.run import FleetRun
from halfwise.fleet.store import Result, Store

__all__ = ["History", "history_of", "last_run", "whole_history"]


@dataclass(frozen=True, repr=False)
class History(Documented):
    """One model: each result once, the latest last."""

    model: str
    results: tuple[Result, ...]

    def summary(self) -> Summary:
        """Every result."""
        return job_table(f"{self.model}: {counted(len(self.results), 'result')}", self.results)

    def document(self) -> HistoryDocument:
        return HistoryDocument(model=self.model, jobs=[job_record(result) for result in self.results])


def last_run(folder: Path) -> FleetRun:
    with Store(folder, write=False) as store:
        runs = store.runs()
        if not runs:
            raise InputError(f"{folder} holds no run: `halfwise fleet run` makes one")
        run, _, _, state = runs[0]
        results = tuple(store.results_of(run))
        return FleetRun(folder, run, results, 0, tuple(changes(store.before(run), results)), state == "ended")


def history_of(folder: Path, model: str) -> History:
    found = whole_history(folder)
    if model not in found:
        raise InputError(f"{folder} holds no model {model!r}{nearest(model, found)}")
    return History(model, found[model])


def whole_history(folder: Path) -> dict[str, tuple[Result, ...]]:
    """By model, each result once, in the order in which they came."""
    found: dict[str, dict[int, Result]] = {}
    with Store(folder, write=False) as store:
        for _, result in store.history():
            found.setdefault(result.model, {})[result.id] = result
    return {model: tuple(results.values()) for model, results in sorted(found.items())}
