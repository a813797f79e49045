"""The main job: prepare -> search -> fit to the target -> compile -> judge -> write, frozen data in and out."""

from __future__ import annotations

import time
from collections.abc import Callable

from halfwise.core.errors import NoRoom
from halfwise.core.held_folder import held
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.precision.typed_onnx import least_bytes
from halfwise.search.journal import Journal
from halfwise.verbs.fix.budget import may_go_on
from halfwise.verbs.fix.built_attention import with_built_attention
from halfwise.verbs.fix.conclude import conclude
from halfwise.verbs.fix.decide import decide
from halfwise.verbs.fix.delivery import deliver
from halfwise.verbs.fix.prepare import Prepared, prepare
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.results_folder import check_folder

__all__ = ["run"]


def run(request: FixRequest, then: Callable[[FixResult], FixResult]) -> FixResult:
    """What comes `then` is part of the job: interrupted there, it goes on without a search."""
    started = time.perf_counter()
    if request.model.files:
        _ = request.model.data_hash.begun  # done by the time that a plan names it
    if request.out is None:
        return _run(request, started, then)
    check_folder(request.out, request.model.path, least_bytes(request.model))
    with held(request.out):
        return _run(request, started, then)


def _run(request: FixRequest, started: float, then: Callable[[FixResult], FixResult]) -> FixResult:
    found, measurements = _found(prepare(request), started)
    result = then(found)
    for each in measurements:
        each.discard()
    return result


def _found(prepared: Prepared, started: float) -> tuple[FixResult, tuple[Journal | KeptWalks, ...]]:
    """With what is kept for a job that goes on, where this one may not."""
    journal, walks = prepared.journal, prepared.context.emulator.kept
    try:
        prepared, found = with_built_attention(prepared, decide(prepared))  # search, fit to the target, compile
        delivery = deliver(prepared, found)  # judge, write
        result = conclude(prepared, delivery, started)
    except NoRoom as error:  # the measurements stay; the walks, which only save time, make room
        walks.discard()
        raise NoRoom(f"{error}; once there is room, the same command goes on") from error
    except Exception:
        if not journal.resumed:  # else the measurements of an interrupted search are worth keeping
            walks.discard()
            journal.withdraw()
        raise
    more = may_go_on(prepared.context.counter, delivery.found.candidate.decided.notes)
    return result, () if more else (journal, walks)
