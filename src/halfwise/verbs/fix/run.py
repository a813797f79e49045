"""The main job: prepare -> search -> fit to the target -> compile -> judge -> write, frozen data in and out."""

from __future__ import annotations

import time

from halfwise.core.errors import NoRoom
from halfwise.core.held_folder import held
from halfwise.precision.typed_onnx import least_bytes
from halfwise.verbs.fix.conclude import conclude
from halfwise.verbs.fix.decide import decide
from halfwise.verbs.fix.delivery import deliver
from halfwise.verbs.fix.prepare import prepare
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.results_folder import check_folder

__all__ = ["run"]


def run(request: FixRequest) -> FixResult:
    started = time.perf_counter()
    if request.model.files:
        _ = request.model.hashing  # done by the time that a plan names it
    if request.out is None:
        return _run(request, started)
    check_folder(request.out, request.model.path, least_bytes(request.model))
    with held(request.out):
        return _run(request, started)


def _run(request: FixRequest, started: float) -> FixResult:
    prepared = prepare(request)
    try:
        found = decide(prepared)  # search, fit to the target, compile
        delivery = deliver(prepared, found)  # judge, write
        return conclude(prepared, delivery, started)
    except NoRoom as error:  # the measurements stay; the walks, which only save time, make room
        prepared.context.emulator.kept.discard()
        raise NoRoom(f"{error}; once there is room, the same command goes on") from error
    except Exception:
        if not prepared.journal.resumed:  # else the measurements of an interrupted search are worth keeping
            prepared.context.emulator.kept.discard()
            prepared.journal.withdraw()
        raise
