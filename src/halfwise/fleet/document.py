"""The documents of a fleet: a run, and one model over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from halfwise.core.document import Count, Document, Number, Record, Share, about
from halfwise.core.summary import Summary
from halfwise.fleet.store import Result

__all__ = ["ChangeRecord", "FleetDocument", "HistoryDocument", "JobRecord", "job_record", "job_table"]


class CulpritRecord(Record, frozen=True):
    """What keeps nodes in FP32, what repaired them, or which rule of the scan applies; and how often."""

    what: str
    count: Count


class JobRecord(Record, frozen=True):
    """One job as it ended."""

    model: str
    version: str
    action: str
    target: str
    tolerance: str
    path: str
    state: Annotated[
        str, about("good, bad, refused, unavailable, failed, died, over time, over memory or interrupted.")
    ]
    why: Annotated[str, about("Why a job is not good, or is good with a caution.")]
    started: float
    seconds: float
    peak_bytes: Count
    nodes: Count | None
    fp32_nodes: Count | None
    fp32_share: Share | None
    error: Number | None
    model_runs: float | None
    culprits: Sequence[CulpritRecord]
    folder: Annotated[str, about("In the folder of results.")]
    host: str
    halfwise: str


class ChangeRecord(Record, frozen=True):
    """One job that ended otherwise than in the run before."""

    direction: Literal["worse", "better", "new"]
    what: Literal["state", "FP32 nodes", "error", "first result"]
    before: JobRecord | None
    now: JobRecord


class FleetDocument(Document, frozen=True, tag="halfwise.fleet/1", kw_only=True):
    """What `halfwise fleet run --json` prints: every job of the run, and what changed since the run before."""

    status: Literal["good", "bad"]
    results: Annotated[str, about("The folder of results.")]
    run: Count
    reused: Annotated[Count, about("Jobs that were done before.")]
    jobs: Sequence[JobRecord]
    changes: Sequence[ChangeRecord]
    ended: Annotated[bool, about("Whether the run came to its end; else it goes on or was interrupted.")] = True


class HistoryDocument(Document, frozen=True, tag="halfwise.fleet-history/1", kw_only=True):
    """What `halfwise fleet show --model NAME --json` prints: each result of one model, the latest last."""

    model: str
    jobs: Sequence[JobRecord]


def job_table(headline: str, results: Sequence[Result], good: bool | None = None, wary: bool = False) -> Summary:
    """A job a row."""
    columns = ("model", "version", "action", "target", "tolerance", "state", "fp32_nodes", "error", "seconds", "why")
    rows = tuple(tuple(getattr(each, name) for name in columns) for each in results)
    return Summary(headline, columns, rows, good, wary)


def job_record(result: Result) -> JobRecord:
    names = set(JobRecord.__struct_fields__) - {"culprits"}
    culprits = [CulpritRecord(what, count) for what, count in result.culprits]
    return JobRecord(**{name: getattr(result, name) for name in names}, culprits=culprits)
