"""The error along the model for one output at a time: which nodes spoil this one, where a model has several."""

from __future__ import annotations

from collections.abc import Mapping

from halfwise.core.errors import HalfwiseError
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import worst_case_profiles
from halfwise.emulation.stepper import Stepper
from halfwise.search.diagnosis import diagnose
from halfwise.search.effects import Sensitivity
from halfwise.search.noise import noise_pieces
from halfwise.search.sensitivity import measure_sensitivity
from halfwise.verbs.fix.result import FixResult

__all__ = ["shares_by_output"]

MOST = 4  # outputs, those that plain FP16 does worst
_RUNS = 6  # that a walk forward and back is worth
_PATIENCE_S = 2.0  # and no more than a tenth of what the answer itself took


def shares_by_output(result: FixResult) -> Mapping[str, Mapping[str, float]]:
    """Of each output each node's part of the squared error that plain FP16 leaves there, over one search input.

    Empty where there is one output only, or nothing was wrong. Fewer outputs where that would take long.
    """
    found = result.measured.diagnosis
    names = [name for name in result.fp16 if name in result.measured.floats]
    if found is None or not found.shares or len(result.fixed) < 2:
        return {}
    names.sort(key=lambda name: (-result.fp16[name].nonfinite, -result.fp16[name].rel_l2, name))
    stepper = Stepper(Emulator(worst_case_profiles(result.plan.profile)[-1]))
    feed = widen_feeds(result.samples.search[0])
    shares = {}
    for name in names[: _affordable(result)]:
        others = {other: 0.0 for other in result.fixed if other != name}
        seen = Sensitivity()
        try:
            measure_sensitivity(stepper, found.sites, feed, seen, weights=others)
        except HalfwiseError:  # it ran before, and the model is written: the report does without
            break
        shares[name] = diagnose(found.sites, noise_pieces(found.sites, seen), {}).shares
    return {name: found for name, found in shares.items() if found}


def _affordable(result: FixResult) -> int:
    cost = result.cost
    one_run = cost.seconds / max(cost.model_runs * len(result.samples.search), 1.0)
    return min(MOST, int(max(_PATIENCE_S, cost.seconds / 10) / max(_RUNS * one_run, 1e-9)))
