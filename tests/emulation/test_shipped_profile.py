"""The profile of ONNX Runtime's CUDA provider is the file that `halfwise prove` wrote on a GPU, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.probes import PROBES, Form
from halfwise.emulation.probes.judge import distance, form_assignment
from halfwise.emulation.profiles import ORT_CUDA, ORT_CUDA_UNFUSED
from halfwise.emulation.profiles.machine import FormRecord
from halfwise.emulation.profiles.shape_class import ShapeClass, shape_class
from halfwise.emulation.profiles.shipped import shipped_machine
from halfwise.model.model import load
from tests.models.build import model, node, value, weight
from tests.support.simulated_gpu import RULES, simulated

ANSWERS = {form.name: form for form in shipped_machine().forms}


def told_apart() -> list[tuple[Form, FormRecord]]:
    """Probes of which the GPU bore out one hypothesis and refuted another."""
    found = [(form, ANSWERS[form.name]) for form in PROBES if form.rule in RULES and form.name in ANSWERS]
    return [
        (form, record)
        for form, record in found
        if record.status == "proven"
        and set(record.evidence) - set(record.hypotheses)
        and record.values <= 1 << 16
        and form.name != "average pooling, one dimension"  # NumPy has planes only
    ]


def test_the_file_answers_every_probe_of_this_version() -> None:
    assert set(ANSWERS) == {form.name for form in PROBES}
    assert shipped_machine().ran.backend == "ort-cuda"


@pytest.mark.parametrize("form", [form for form, _ in told_apart()], ids=lambda form: form.name)
def test_the_profile_computes_what_the_gpu_was_seen_to_compute(form: Form) -> None:
    """By NumPy, which knows only the hypothesis that the GPU bore out."""
    record = ANSWERS[form.name]
    made = simulated(form, record.hypotheses[0])
    assert made is not None
    profile = ORT_CUDA if form.fused else ORT_CUDA_UNFUSED
    (got,) = Emulator(profile).session(form_assignment(form)).run(form.feed()).values()
    with np.errstate(all="ignore"):
        apart = distance(np.asarray(made, np.float16), got.astype(np.float16))
    assert np.mean(apart <= 1) > 0.995 and np.mean(apart == 0) > 0.9


@pytest.mark.parametrize(
    ("shape", "axes", "wanted"),
    [
        ((64, 4096), [-1], ShapeClass("last axes", 4096)),
        ((1000, 64), [0], ShapeClass("first axes", 1000)),
        ((4, 30, 8, 9), [1, 2], ShapeClass("middle axes", 240)),
        ((4, 16), [], ShapeClass("last axes", 64)),
        (("N", 768), [1], ShapeClass("last axes", 768)),
        (("N", 300, 64), [1], ShapeClass("", 300)),  # of a batch of one they are the first
        ((4, "T"), [1], ShapeClass("last axes", None)),
        (None, [1], ShapeClass("", None)),
    ],
)
def test_a_reduction_is_placed_by_its_axes_and_measured_by_its_terms(shape: Any, axes: Any, wanted: ShapeClass) -> None:
    given = [weight("a", np.array(axes, np.int64))] if axes else []
    nodes = [node("ReduceMean", "x a" if axes else "x", "y")]
    graph = model(nodes, [value("x", TensorProto.FLOAT, shape=shape)], [value("y", shape=None)], given, 18)
    (found,) = load(graph).nodes
    assert shape_class(found) == wanted
