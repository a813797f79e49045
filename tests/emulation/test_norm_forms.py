"""What a GPU made of 2,071 placements of FP32 in norms is what is foreseen, and so are the errors."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from benchmarks.gpu.norm_forms import FORMS, NormForm, assignments, inputs
from halfwise.core.metrics import compare
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import ORT_CUDA, STRICT
from halfwise.emulation.profiles.norm_fusions import Outcome, norms_of, outcome
from halfwise.precision.assignment import Assignment
from tests.support.paths import ROOT

DATA = json.loads((ROOT / "benchmarks" / "data" / "norm_forms.json").read_text(encoding="utf-8"))
OPERATORS = {"layer-norm": "LayerNormalization", "rms-norm": "SimplifiedLayerNormalization"}
SHARE = 23  # of the placements every one in so many is emulated


def foreseen(assignment: Assignment) -> str:
    """The operator that is left of a norm, `pieces` or `refused`."""
    norms = norms_of(assignment.sites.model)
    if any(outcome(norm, assignment) is Outcome.REFUSED for norm in norms):
        return "refused"
    for norm in norms:
        for each in (norm, norm.core):
            if each is not None and outcome(each, assignment) is Outcome.FUSED:
                return OPERATORS[each.kind]
    return "pieces"


def test_the_data_are_of_all_placements() -> None:
    assert DATA["schema"] == "halfwise.norm-forms/1"
    assert set(DATA["machine"]) == {"gpu", "driver", "onnxruntime", "cuda", "cudnn", "date"}
    assert list(DATA["forms"]) == [form.name for form in FORMS]
    assert sum(len(seen) for seen in DATA["forms"].values()) == 2071
    counted = Counter(became for seen in DATA["forms"].values() for became, _ in seen.values())
    assert counted["refused"] == 42


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_becomes_of_every_placement_is_foreseen(form: NormForm) -> None:
    seen = {names: became for names, (became, _) in DATA["forms"][form.name].items()}
    assert {names: foreseen(assignment) for names, assignment in assignments(form)} == seen


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_errors_are_foreseen(form: NormForm) -> None:
    feed = {name: array.astype(np.float16).astype(np.float32) for name, array in inputs().items()}
    exact = None
    for index, (names, assignment) in enumerate(assignments(form)):
        if exact is None:
            (exact,) = Emulator(STRICT).session(Assignment(assignment.sites, {})).run(inputs()).values()
        became, measured = DATA["forms"][form.name][names]
        if index % SHARE or became == "refused":
            continue
        (found,) = Emulator(ORT_CUDA).session(assignment).run(feed).values()
        assert compare(exact, found).rel_l2 == pytest.approx(measured, rel=0.05), names
