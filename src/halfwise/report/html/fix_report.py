"""`halfwise.fix`: the main job with its report, which is written beside the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.told import Stand, TimeLeft, Told
from halfwise.model.model import Model
from halfwise.model.passing import Passing
from halfwise.model.weight_counts import counts_of_weights
from halfwise.model.weight_facts import keeps_facts
from halfwise.model.weights import stored_tensor
from halfwise.report.html.histogram import powers_of_two, weigh
from halfwise.report.html.write import write_report
from halfwise.verbs.fix.fix import fix as main_job
from halfwise.verbs.fix.output_shares import shares_by_output
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.scan import ScanResult, scan

__all__ = ["fix", "with_report"]

_Asked = ParamSpec("_Asked")
_STEP = "writing the report"
_EVERY_S = 1.0


def with_report(
    result: FixResult,
    scanned: ScanResult | None = None,
    command: str = "",
    notify: Callable[[str], None] = lambda _: None,
) -> FixResult:
    """The result, knowing its report; as it is where no model was written. `command` is the line that made it."""
    notify(_STEP)
    if result.typed is None:
        return result
    stem = result.typed.path.name.removesuffix(".fp16.onnx")
    path = result.typed.path.with_name(f"{stem}.report.html")
    if not result.typed.path.exists():
        raise InputError(f"{result.typed.path} is gone: something removed it after it was written; run fix again")
    since, told = time.perf_counter(), _telling(notify)
    _read_once(result.model, told)
    found = scanned or scan(result.model, notify=lambda done, total: told(done, 2 * total))
    weighed = weigh(result.model, lambda done, total: told(total + done, 2 * total))
    shares = shares_by_output(result)
    took = result.cost.seconds + time.perf_counter() - since
    result = replace(result, cost=replace(result.cost, seconds=took))
    written = write_report(result, path, scan=found, command=command, by_output=shares, weighed=weighed)
    return replace(result, files=replace(result.files, report=written))


def _read_once(model: Model, told: Callable[[int, int], None]) -> None:
    """Each large weight of a file is counted for the findings and the histogram while it is in memory; both find it
    known."""
    tensors = {value: value.const_value for value in model.initializers() if value.const_value is not None}
    floats = [stored_tensor(tensor) for tensor in tensors.values() if tensor.dtype is ir.DataType.FLOAT]
    total, done = 2 * sum(int(tensor.size) for tensor in floats), 0
    large = [tensor for tensor in floats if keeps_facts(tensor)]
    passing = Passing([tensor] for tensor in large)
    for number, tensor in enumerate(large):
        passing.at(number)
        counts_of_weights([tensor])
        powers_of_two(tensor)
        done += 2 * int(tensor.size)
        told(done, total)
    passing.end()


def _telling(notify: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """What tells every second how many values of all weights were looked at, and how long the others take."""
    since = told = clock()
    most = 0

    def looked(done: int, total: int) -> None:
        nonlocal told, most
        now, most = clock(), max(most, done)  # what is known already is gone through once more
        if now - told >= _EVERY_S and most == done and 0 < done < total:
            told = now
            left = TimeLeft((now - since) / done * (total - done), now)
            stand = Stand(_STEP, f"{done:,} of {total:,} values", left=left)
            notify(Told(stand.text(now), stand))

    return looked


def _reporting(job: Callable[_Asked, FixResult]) -> Callable[_Asked, FixResult]:
    @wraps(job)
    def reported(*args: _Asked.args, **kwargs: _Asked.kwargs) -> FixResult:
        notify = kwargs.get("notify")
        return with_report(job(*args, **kwargs), notify=notify if callable(notify) else lambda _: None)

    return reported


fix = _reporting(main_job)
