"""What is finite in FP32 and not in FP16 inside the model is healed though the outputs hold, unless it is harmless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import WIDE
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment
from halfwise.search import run_counter
from halfwise.search.context import EvaluationContext
from halfwise.search.judge import Measured
from halfwise.verbs.fix import decide
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.prepare import Prepared
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only

WIDTH = 32
Array = NDArray[Any]
FEEDS = [{"x": np.random.default_rng(seed).standard_normal((4, WIDTH)).astype(np.float32)} for seed in range(4)]


def built(nodes: list[onnx.NodeProto], **weights: Any) -> onnx.ModelProto:
    return model(
        nodes,
        [value("x", shape=(4, WIDTH))],
        [value("y", shape=(4, WIDTH))],
        [weight(name, np.asarray(array, dtype=np.float32)) for name, array in weights.items()],
    )


def dead_norm() -> onnx.ModelProto:
    """A norm whose squares overflow hands on zeros; beside the rest of the sum nobody sees that on these samples."""
    nodes = [
        node("Mul", "x thousand", "b"),
        node("Mul", "b b", "sq"),
        node("ReduceMean", "sq", "v", axes=[-1], keepdims=1),
        node("Sqrt", "v", "r"),
        node("Div", "b r", "n"),
        node("Mul", "n little", "l"),
        node("Add", "x l", "y"),
    ]
    return built(nodes, thousand=1000.0, little=1e-3)


def infinities(made: Any) -> list[str]:
    """The tensors that FP16 makes infinite where FP32 does not, from a walk of both, node by node."""
    stepper, found = Stepper(Emulator()), []
    formats = {made.sites.model.node_by_name[each.name]: each.format for each in made.plan.nodes}
    for feed in FEEDS:
        walks = [
            [dict(step.outputs) for step in stepper.walk(Store(stepper.emulator, decision, feed))]
            for decision in (Assignment(made.sites, {}), Assignment.excepting(made.sites, formats))
        ]
        for wide, narrow in zip(*walks, strict=True):
            found += [v.name for v in wide if (np.isfinite(wide[v]) & ~np.isfinite(narrow[v])).any()]
    return found


@pytest.mark.parametrize("repairs", ["none", "all"])
def test_a_norm_that_is_dead_in_fp16_is_healed_though_the_outputs_hold(repairs: str) -> None:
    made = fix(dead_norm(), FEEDS, repairs=repairs)
    assert made.met and made.fp16_verdict.met
    assert infinities(made) == []
    assert (len(made.fp32_nodes) == 0) == (repairs == "all")
    assert "n_sq" in only(made.notes, NoteKind.OVERFLOW_HEALED).values["nodes"]


def test_it_is_repaired_though_the_runs_for_saving_nodes_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_counter, "SAVING_RUNS_SMALL", run_counter.KEPT_BACK)
    made = fix(dead_norm(), FEEDS, repairs="all")
    assert made.met and not made.fp32_nodes and infinities(made) == []


class Doubted(Candidate):
    """Misses the tolerance where less is rounded."""

    def by_profile(self, context: EvaluationContext) -> dict[str, Measured]:
        seen = super().by_profile(context)
        return {**seen, WIDE.name: replace(seen[WIDE.name], ratios=(1.1,))}


def test_what_heals_but_misses_with_less_rounding_is_searched_with_that_in_sight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, asked = decide._second, []

    def second(prepared: Prepared, in_sight: EvaluationContext, first: Candidate) -> Candidate | None:
        found = search(prepared, in_sight, first)
        assert found is not None
        asked.append([each.profile.name for each in in_sight.also])
        return found if WIDE.name in asked[-1] else Doubted(**vars(found))

    monkeypatch.setattr(decide, "_second", second)
    made = fix(dead_norm(), FEEDS, repairs="none")
    assert asked == [[], [WIDE.name]]
    assert made.met and infinities(made) == []
    assert NoteKind.OVERFLOW_HEALED in kinds(made.notes) and NoteKind.OVERFLOW_LEFT not in kinds(made.notes)


def test_what_the_user_forces_is_left_and_named() -> None:
    made = fix(dead_norm(), FEEDS, repairs="none", force=["op:Mul", "op:ReduceMean", "op:Sqrt"])
    assert made.met and not made.fp32_nodes
    assert set(only(made.notes, NoteKind.OVERFLOW_LEFT).values["nodes"]) >= {"n_sq", "n_v"}


def test_a_plan_is_told_what_it_leaves() -> None:
    plan = fix(dead_norm(), FEEDS, repairs="none", force=["op:Mul", "op:ReduceMean", "op:Sqrt"]).plan
    assert NoteKind.OVERFLOW_LEFT in kinds(fix(dead_norm(), FEEDS, plan=plan).notes)


LARGE = {"big": 1e6, "six": 6.0, "low": -1e9, "zero": 0.0}
HARMLESS = {
    "clip": [node("Mul", "x big", "b"), node("Clip", "b zero six", "y")],
    "min": [node("Abs", "x", "a"), node("Mul", "a big", "b"), node("Min", "b six", "y")],
    "tanh": [node("Mul", "x big", "b"), node("Tanh", "b", "y")],
    "sigmoid": [node("Mul", "x big", "b"), node("Sigmoid", "b", "y")],
    "other reader": [
        node("Mul", "x big", "b"),
        node("Tanh", "b", "t"),
        node("Abs", "b", "a"),
        node("Min", "a six", "m"),
        node("Add", "m t", "y"),
    ],
    "exp": [node("Abs", "x", "a"), node("Mul", "a low", "b"), node("Exp", "b", "e"), node("Add", "e x", "y")],
    "mask": [
        node("Less", "x zero", "c"),
        node("Where", "c low zero", "m"),
        node("Add", "m m", "mm"),
        node("Add", "x mm", "s"),
        node("Softmax", "s", "y", axis=-1),
    ],
    "where": [
        node("Mul", "x big", "b"),
        node("Less", "b six", "c"),
        node("Where", "c x six", "y"),
    ],
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_vanishes_in_fp32_too_is_left_alone(case: str) -> None:
    made = fix(built(HARMLESS[case], **LARGE), FEEDS, repairs="none")
    assert made.met and not made.fp32_nodes
    assert not {NoteKind.OVERFLOW_HEALED, NoteKind.OVERFLOW_LEFT} & set(kinds(made.notes))


def test_a_logarithm_of_what_fp16_makes_zero_is_no_harmless_matter() -> None:
    nodes = [
        node("Mul", "x x", "sq"),
        node("Mul", "sq tiny", "t"),
        node("Log", "t", "g"),
        node("Max", "g bound", "h"),
        node("Mul", "h little", "l"),
        node("Add", "x l", "y"),
    ]
    made = fix(built(nodes, tiny=1e-9, bound=-60.0, little=1e-5), FEEDS, repairs="none")
    assert made.met and {"n_t", "n_g"} <= set(made.fp32_nodes) and infinities(made) == []


MASKED = {
    "weight": [],
    "tensor": [node("Shape", "x", "s"), node("ConstantOfShape", "s", "low", value=weight("v", np.float32([-3e38])))],
    "moved": [node("Unsqueeze", "lowest axes", "low")],
}


@pytest.mark.parametrize("case", MASKED)
def test_a_row_that_is_masked_throughout_by_what_fp16_clamps_is_left_alone(case: str) -> None:
    """Neither infinite nor NaN: the constant is stored as FP16's largest number, and the row is uniform."""
    nodes = [*MASKED[case], node("Where", "rows low x", "m"), node("Softmax", "m", "y", axis=-1)]
    given = built(nodes, low=-3e38) if case == "weight" else built(nodes)
    rows = np.array([[True], [False], [False], [True]])
    given.graph.initializer.extend([weight("rows", rows), weight("lowest", np.float32(-3e38)), weight("axes", [0])])
    made = fix(given, FEEDS, repairs="none")
    assert made.met and not made.fp32_nodes and infinities(made) == []
    assert not {NoteKind.OVERFLOW_HEALED, NoteKind.OVERFLOW_LEFT} & set(kinds(made.notes))


def masked() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """Scores of which a mask hides some, computed as exporters write it, beside hidden values beyond FP16."""
    rng, shown = np.random.default_rng(9), np.arange(WIDTH)[None] < 20
    nodes = [
        node("Cast", "m", "f", to=1), node("Sub", "one f", "hide"), node("Mul", "hide lowest", "mask"),
        node("MatMul", "x q", "scores"), node("Add", "scores mask", "seen"), node("Softmax", "seen", "p", axis=-1),
        node("MatMul", "x up", "u"), node("Relu", "u", "r"), node("MatMul", "r down", "d"), node("Mul", "p d", "y"),
    ]  # fmt: skip
    square = (WIDTH, WIDTH)
    held = {
        "one": 1.0, "lowest": np.finfo(np.float32).min, "q": rng.standard_normal(square),
        "up": 3e4 * rng.standard_normal(square), "down": 1e-5 * rng.standard_normal(square),
    }  # fmt: skip
    weights = [weight(name, np.asarray(array, dtype=np.float32)) for name, array in held.items()]
    given = [value("x", shape=(4, WIDTH)), value("m", onnx.TensorProto.INT64, (1, WIDTH))]
    feeds = [{**feed, "m": (shown | (index % 2 == 0)).astype(np.int64)} for index, feed in enumerate(FEEDS)]
    return model(nodes, given, [value("y", shape=(4, WIDTH))], weights), feeds


def test_a_repair_that_only_keeps_values_from_being_lost_inside_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It saves no FP32 node; left out, a second search would take it again."""
    proto, feeds = masked()
    told: list[str] = []
    plain = fix(proto, feeds, notify=told.append)
    assert plain.met and "masks saves no FP32 node" in " ".join(map(str, told))

    def overflows(self: EvaluationContext, sites: Any, *_: Any) -> frozenset[Any]:
        hides = sites.model.node_by_name["n_mask"]
        clipped = any(float(np.min(v.const_value.numpy())) > -1e6 for v in hides.inputs if v.const_value is not None)
        return frozenset() if clipped else frozenset({frozenset({hides})})

    monkeypatch.setattr(EvaluationContext, "overflows", overflows)
    made = fix(proto, feeds)
    rules = [[repair.rule for repair in result.plan.repairs] for result in (plain, made)]
    assert made.met and not made.fp32_nodes and len(rules[1]) == len(rules[0]) + 1
    assert NoteKind.OVERFLOW_HEALED not in kinds(made.notes)
