"""The error along the model for one output at a time: which nodes spoil this one, where a model has several."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from halfwise.core.errors import HalfwiseError
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import worst_case_profiles
from halfwise.emulation.stepper import Stepper
from halfwise.search.diagnosis import diagnose
from halfwise.search.gradients import PROBES
from halfwise.search.noise import noise_pieces
from halfwise.search.sensitivity import sensitivity_by_output
from halfwise.verbs.fix.result import FixResult

__all__ = ["shares_by_output"]

MOST = 4  # outputs, those that plain FP16 does worst
PATIENCE_S, LEAST_PATIENCE_S = 2.0, 0.5
PATIENCE = 0.1  # of what the search took, between the two


def shares_by_output(result: FixResult, patience: float | None = None) -> Mapping[str, Mapping[str, float]]:
    """Of each output each node's part of the squared error that plain FP16 leaves there, over one search input.

    Empty where there is one output only, or nothing was wrong. Fewer outputs where that would take longer.
    """
    found = result.measured.diagnosis
    names = [name for name in result.fp16 if name in result.measured.floats]
    if found is None or not found.shares or len(result.fixed) < 2:
        return {}
    if patience is None:
        patience = min(max(PATIENCE * result.cost.seconds, LEAST_PATIENCE_S), PATIENCE_S)
    names.sort(key=lambda name: (-result.fp16[name].nonfinite, -result.fp16[name].rel_l2, name))
    until = partial(_until, time.monotonic() + patience)
    emulator = Emulator(worst_case_profiles(result.plan.profile)[-1], walked=until)
    if emulator.streams(found.sites.model) and _expected(result) > patience:
        return {}
    stepper = Stepper(emulator)
    feed = widen_feeds(result.samples.search[0])
    shares = {}
    with suppress(HalfwiseError, _Late):  # it ran before, and the model is written: the report does without
        for name, seen in sensitivity_by_output(stepper, found.sites, feed, names[:MOST]):
            shares[name] = diagnose(found.sites, noise_pieces(found.sites, seen), {}).shares
    return {name: found for name, found in shares.items() if found}


def _expected(result: FixResult) -> float:
    """Seconds until the first output is told: once over the model and back, by what a run took."""
    runs = result.cost.model_runs * max(len(result.samples.search), 1)
    return (1 + PROBES) * result.cost.seconds / runs if runs else 0.0


class _Late(Exception):
    pass


def _until(end: float, *_: int) -> None:
    """At every node on the way."""
    if time.monotonic() > end:
        raise _Late
