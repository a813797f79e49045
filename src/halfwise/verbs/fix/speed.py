"""Which clock judges an answer: a machine's measured times, or the roofline of the GPU that the target names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from halfwise.core.document import LEFT_OUT, Left
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.targets import Target
from halfwise.emulation.latency import Latency
from halfwise.emulation.profiles.machine import read_machine
from halfwise.emulation.timing.gpus import PEAKS
from halfwise.emulation.timing.law import measured_law, roofline
from halfwise.emulation.timing.operation import has_work
from halfwise.emulation.timing.record import TimesRecord
from halfwise.precision.assignment import Assignment
from halfwise.search.speed import Speed
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.document import LatencyRecord, NodeTimeRecord
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["latency_record", "speed_of"]


ROOFLINE = "roofline"


def speed_of(cost: str | Path | None, target: Target) -> Speed | None:
    """None where neither is there. A roofline tells times; it chooses the set only where it is asked to."""
    path = Path(cost) if cost is not None and str(cost) != ROOFLINE else None
    if path is not None:
        machine = read_machine(path)
        if not isinstance(machine.times, TimesRecord) or not machine.times.rows:
            raise InputError(f"{path} holds no times; `halfwise prove --time` measures them")
        if odd := next((row.operation for row in machine.times.rows if not has_work(row.operation)), None):
            raise InputError(f"{path} tells a time of {odd.op[:80]!r} at sizes that it cannot have")
        return Speed(measured_law(machine.times.rows, machine.ran.title, machine.times.cache_bytes))
    peak = PEAKS.get(target.gpu.name) if target.gpu is not None else None
    if peak is None and cost is not None:
        known = ", ".join(PEAKS)
        raise InputError(f"--cost {ROOFLINE} needs a GPU in the target, such as trt-10.9@t4; known are {known}")
    return None if peak is None else Speed(roofline(peak), guides=cost is not None)


def latency_record(prepared: Prepared, candidate: Candidate) -> LatencyRecord | Left:
    """Plain FP16 and FP32 of the model as given, and the answer, node by node."""
    speed = prepared.context.speed
    if speed is None:
        return LEFT_OUT
    decided, io = candidate.decided, prepared.request.io_types
    given = prepared.context.statistics(prepared.sites, decided.samples.search[:1])[0].shapes
    plain = speed.latency(Assignment.all_narrow(prepared.sites, io=io), given)
    wide = speed.latency(Assignment(prepared.sites, {}, Format.FP32), given)
    fixed = speed.latency(candidate.decision.assignment, candidate.statistics.shapes)
    tables = [_by_node(each) for each in (plain, fixed, wide)]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = tuple(NodeTimeRecord(name, *(round(table.get(name, 0.0), 3) for table in tables)) for name in names)
    law, (narrow_ms, fixed_ms, wide_ms) = speed.law, (round(each.milliseconds, 5) for each in (plain, fixed, wide))
    return LatencyRecord(law.source, law.is_measured, narrow_ms, fixed_ms, wide_ms, rows)


def _by_node(latency: Latency) -> Mapping[str, float]:
    return {name: 1e3 * each for name, each in latency.by_node.items()}
