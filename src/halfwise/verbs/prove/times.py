"""How long a machine's kernels take: operations timed in a child process, one after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from halfwise.backends import BackendOptions
from halfwise.core.child.worker import ChildDied, ChildFailed, Worker
from halfwise.core.document import LEFT_OUT, Count, Left, Record
from halfwise.emulation.timing.operation import Operation
from halfwise.emulation.timing.record import Precision, TimeRecord, TimesRecord
from halfwise.search.journal import Journal

__all__ = ["TIMED", "Row", "rows_of", "timed"]

TIMED = ("ort-cuda", "ort-cpu")  # the backends that can be timed
_FUNCTION = "halfwise.backends.runtime_timing:serve"
_MOST = 60  # rows of one child
_TF32_OPS = frozenset({"Conv", "ConvTranspose", "FusedMatMul", "GRU", "Gemm", "LSTM", "MatMul"})

Row = tuple[Operation, Precision]
Entry = dict[str, Any]
Clock = tuple[str, float, int]  # its title, microseconds of a graph, bytes of the GPU's cache


_Milliseconds = Annotated[float, Meta(ge=1e-7, le=1e6)]


class _Timed(Record, frozen=True):
    """What the journal keeps of a row."""

    milliseconds: _Milliseconds | Left = LEFT_OUT
    spread: float = 0.0
    cold_ms: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    clock: tuple[str, float, Count] | None = None
    error: str | Left = LEFT_OUT


def rows_of(operations: Iterable[Operation]) -> list[Row]:
    """Each in FP16 and FP32, and what multiplies matrices in TF32; none twice."""
    found: dict[tuple[str, str], Row] = {}
    for each in operations:
        kinds: tuple[Precision, ...] = ("fp16", "fp32", "tf32") if each.op in _TF32_OPS else ("fp16", "fp32")
        for kind in kinds:
            found.setdefault((each.key, kind), (each, kind))
    return list(found.values())


def timed(
    backend: str, rows: Sequence[Row], options: BackendOptions, journal: Journal, notify: Callable[[int], None]
) -> TimesRecord | None:
    """What was timed before an interruption is not timed again; None where nothing is asked."""
    if not rows:
        return None
    started = time.monotonic()
    done: dict[tuple[str, str], Entry] = {}
    left: list[Row] = []
    for row in rows:
        known = journal.get(_name(row), _Timed)
        if known is None:
            left.append(row)
        else:
            done[_place(row)] = known.to_json()
    clock: Clock = ("", 0.0, 0)
    for tf32 in (False, True):  # a child's environment decides about TF32
        asked = [row for row in left if (row[1] == "tf32") is tf32]
        while asked:
            part, asked = asked[:_MOST], asked[_MOST:]
            answered, told = _ask(backend, part, options, tf32, partial(_told, notify, len(done)))
            clock = told or clock
            for row, entry in zip(part, answered, strict=False):
                done[_place(row)] = entry
                journal.put(_name(row), {**entry, "clock": clock})
            asked = part[len(answered) :] + asked
            notify(len(done))
    if not clock[0]:  # all of it was timed before an interruption
        title, graph, *cache = next((entry["clock"] for entry in done.values() if entry.get("clock")), clock)
        clock = (str(title), float(graph), int(cache[0]) if cache else 0)
    return _record(rows, done, clock, time.monotonic() - started)


def _told(notify: Callable[[int], None], before: int, more: int) -> None:
    notify(before + more)


def _ask(
    backend: str, rows: Sequence[Row], options: BackendOptions, tf32: bool, notify: Callable[[int], None]
) -> tuple[list[Entry], Clock | None]:
    """The answers to the first rows: all of them, or those up to the one that ended the child, which is refused."""
    told: list[Entry] = []
    asked = {
        "backend": backend,
        "device": options.device,
        "rows": [{"operation": operation.to_json(), "format": kind} for operation, kind in rows],
    }

    def one(text: str) -> None:
        told.append(json.loads(text))
        notify(len(told))

    environment = {} if tf32 else {"NVIDIA_TF32_OVERRIDE": "0"}
    with Worker(environment=environment) as worker:
        try:
            answer = worker.ask(
                _FUNCTION,
                asked,
                time_limit_s=options.time_limit_s,
                notify=one,
            )
        except (ChildDied, ChildFailed) as error:
            return [*told, {"error": str(error)}][: len(rows)], None
    told_by = answer.data
    return list(told_by["rows"]), (str(told_by["clock"]), float(told_by["graph_us"]), int(told_by["cache"]))


def _record(rows: Sequence[Row], done: dict[tuple[str, str], Entry], told: Clock, seconds: float) -> TimesRecord:
    found, refused = [], []
    for row in rows:
        operation, kind = row
        entry = done.get(_place(row), {})
        if "milliseconds" not in entry:
            refused.append(f"{operation.op} {kind}: {entry.get('error', 'not asked')}")
            continue
        spread = round(float(entry["spread"]), 3)
        cold = round(1e3 * float(entry.get("cold_ms", 0.0)), 4)
        found.append(TimeRecord(operation, kind, round(1e3 * entry["milliseconds"], 4), spread, cold))
    why = tuple(dict.fromkeys(refused))
    return TimesRecord(told[0], round(told[1], 3), tuple(found), why, round(seconds, 1), told[2])


def _place(row: Row) -> tuple[str, str]:
    return row[0].key, row[1]


def _name(row: Row) -> str:
    return f"time {row[0].key} {row[1]}"
