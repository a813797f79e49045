"""A verdict is the worst over the profiles that the target may meet, and the search aims lower by what they are off."""

from __future__ import annotations

import pytest

from halfwise import InputError, fix
from halfwise.core.notes import NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import worst_case_profiles
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Question
from tests.models.zoo import SHAPES, encoder
from tests.support.messages import kinds, only

NORM = encoder(layers=1)


@pytest.mark.parametrize(
    ("target", "profiles"),
    [
        ("onnx", {"strict", "wide"}),
        ("trt-8.6", {"strict", "wide", "tensorrt"}),
        ("ort-cuda", {"strict", "wide", "ort-cuda", "ort-cuda-unfused"}),
    ],
)
def test_a_norm_that_only_a_fused_kernel_survives_is_not_left_to_fusion(target: str, profiles: set[str]) -> None:
    """Written in small steps it overflows unless the compiler makes one kernel of it, which it may or may not do."""
    result = fix(NORM.model, NORM.inputs[:4], target=target, repairs="none")
    assert result.met and result.plan.nodes
    assert set(result.by_profile) == profiles
    assert all(load <= 1 for load in result.by_profile.values())
    assert set(result.to_json().get("profiles", {})) == profiles
    assert (NoteKind.WORST_OF_PROFILES in kinds(result.notes)) == (target != "onnx")


def test_what_each_profile_says_is_run_once() -> None:
    model = load(NORM.model)
    profiles = worst_case_profiles("ort-cuda")
    emulators = [Emulator(profile) for profile in profiles]
    judge = Judge(Sites(model), emulators[-1], Question(Tolerance.default()), NORM.inputs[:2], also=emulators[:-1])
    decision = Assignment.all_narrow(judge.sites)
    worst, runs = judge.measure(decision), judge.counter.samples
    each = judge.by_profile(decision)
    assert judge.counter.samples == runs and judge.measure(decision).ratios == worst.ratios
    assert set(each) == {profile.name for profile in profiles}
    assert worst.ratio == max(seen.ratio for seen in each.values()) > 1 > each["ort-cuda"].ratio


def test_a_margin_aims_lower() -> None:
    zoo = SHAPES["large_coordinates"]()
    plain = fix(zoo.model, zoo.inputs[:4], tolerance=f"rel_l2<={zoo.tolerance}", repairs="none", margin=0.0)
    wide = fix(zoo.model, zoo.inputs[:4], tolerance=f"rel_l2<={zoo.tolerance}", repairs="none", margin=1.0)
    assert wide.verdict.ratio <= 0.5
    assert len(wide.plan.nodes) >= len(plain.plan.nodes)


@pytest.mark.parametrize("margin", [-0.1, float("inf"), float("nan")])
def test_a_margin_that_is_none_is_refused(margin: float) -> None:
    with pytest.raises(InputError, match="give 0 or more"):
        fix(NORM.model, NORM.inputs[:4], margin=margin)


def test_a_margin_that_was_asked_for_is_not_said_to_be_what_was_seen() -> None:
    made = fix(NORM.model, NORM.inputs[:4], target="ort-cuda", margin=0.5)
    assert only(made.notes, NoteKind.WORST_OF_PROFILES).values["margin"] == 0.5
