"""The backward rule of ONNX Runtime's own operators against finite differences of their kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from halfwise.search.vjp import Local, pull_back
from tests.models.contrib_cases import Case, cases

Array = np.ndarray[Any, Any]
_PROBES = 2

OWN = [case for case in cases() if case.runs]


@pytest.mark.parametrize("case", OWN, ids=[case.name for case in OWN])
def test_the_gradient_of_an_operator_of_onnx_runtime(case: Case) -> None:
    model = load(case.proto())
    stepper = Stepper(Emulator())
    fp32 = Assignment(Sites(model), {})
    store = Store(stepper.emulator, fp32, case.feeds)
    (only,) = model.graph

    def run(changed: Any) -> tuple[Array, ...]:
        by_value = {only.inputs[slot]: array for slot, array in changed.items()}
        found = stepper.run(only, fp32, store, by_value)  # type: ignore[arg-type]
        return tuple(found.get(v) for v in only.outputs)  # type: ignore[misc]

    results, rng = run({}), np.random.default_rng(7)
    gradients = tuple(
        rng.standard_normal((_PROBES, *y.shape)).astype(np.float32) if y is not None and y.dtype == np.float32 else None
        for y in results
    )
    local = Local(only, 1, case.inputs, results, gradients, run)
    for slot, array in enumerate(case.inputs):
        if array is None or array.dtype != np.float32 or slot in case.weights:
            continue
        along = np.random.default_rng(slot).standard_normal(array.shape).astype(np.float32)
        found = pull_back(local, slot)
        assert found is not None and found.shape == (_PROBES, *array.shape)
        step = 4e-4 if "activation" in case.attributes else 4e-3  # shorter where the operator has kinks
        above, below = (run({slot: array + np.float32(sign * step) * along}) for sign in (1, -1))
        for probe in range(_PROBES):
            wanted, scale = 0.0, 0.0
            for gradient, up, down in zip(gradients, above, below, strict=True):
                if gradient is not None:
                    rise = gradient[probe] * (up.astype(np.float64) - down) / (2 * step)
                    wanted, scale = wanted + float(rise.sum()), scale + float((rise**2).sum())
            assert float(np.sum(found[probe] * along)) == pytest.approx(wanted, abs=1e-2 * max(np.sqrt(scale), 1e-2))


def test_what_an_operator_stores_between_its_steps_counts_as_its_own() -> None:
    case = next(case for case in OWN if case.name == "multi-head")
    q, k, v = (array for array in case.inputs if array is not None)
    large = Case("large", case.op, (q * 300, k * 300, v), case.attributes)
    for each, fatal in ((case, False), (large, True)):
        model = load(each.proto())
        sites, into = Sites(model), Sensitivity()
        measure_sensitivity(Stepper(Emulator()), sites, each.feeds, into)
        (node,) = model.nodes
        assert fatal or into.weights[node] > 0  # scores so large leave one share, which nothing moves
        assert ((node, node.outputs[0]) in into.breaks) is fatal
