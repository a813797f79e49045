"""ONNX's own node cases through load, emulate and emit: right answers, or a refusal that the list names."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import onnx
import onnxruntime
import pytest
from hypothesis import settings

from halfwise.core.errors import HalfwiseError
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites, native_format
from halfwise.precision.typed_onnx import typed_proto
from tests.conftest import EXPLORE
from tests.support.backend_cases import (
    MORE_UNITS,
    MOVED_BY_ONE,
    ON_ROUNDED_INPUTS,
    UNITS,
    Case,
    differs,
    float_cases,
    rounded,
    same_bits,
)
from tests.support.paths import DATA

BATCHES = 24
STAGES = ("checked", "emulated", "typed", "answer")


@cache
def refusals() -> dict[str, dict[str, str]]:
    """By stage and case, why it is refused."""
    content = json.loads((DATA / "backend_refusals.json").read_text())
    return {stage: {case: reason for reason, cases in content[stage].items() for case in cases} for stage in STAGES}


def versions_match() -> bool:
    """Whether the list was made with the packages that are installed; other versions refuse other cases."""
    content = json.loads((DATA / "backend_refusals.json").read_text())
    return content["made_with"] == {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}


def batch_of(number: int, part: int = 1) -> tuple[Case, ...]:
    """A part of one batch: one case in `part`; a run that explores takes all."""
    every = settings.get_current_profile_name() == EXPLORE
    return float_cases()[number::BATCHES][:: 1 if every else part]


def ran(proto: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any] | None:
    """Outputs by name; None where ONNX Runtime refuses."""
    try:
        return Session(proto).run(feeds)
    except HalfwiseError:
        return None


def ran_by_default(proto: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any] | None:
    """The same as a user runs it. Older runtimes refuse Casts from FP16 to FP16 where they optimise nothing."""
    if (answer := ran(proto, feeds)) is not None or versions_match():
        return answer
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        return dict(zip((each.name for each in session.get_outputs()), session.run(None, feeds), strict=True))
    except Exception:
        return None


def complaints(case: Case, emulator: Emulator, fmt: Format) -> list[str]:
    """All that is wrong with one case, and every surprise about its refusal."""
    sites = Sites(load(case.model), fmt)
    whole = Assignment.all_narrow(sites)
    keep_half = case.half()
    half = Assignment.all_narrow(sites, frozenset(s.node for s in sites.free if keep_half.random() < 0.5))
    found = []
    given = ran(case.model, case.feeds)
    for label, assignment in (("all narrow", whole), ("half narrow", half)):
        if assignment is half and len(sites.free) < 2:
            continue
        typed = typed_proto(assignment)
        found += _checker_complaints(case, typed)
        emulated = _emulated(emulator, assignment, case.feeds)
        found += _refusal_complaints("emulated", case, emulated is None, given)
        if emulated is None:
            continue
        found += [f"{label}, {text}" for text in _answer_complaints(case, emulated, fmt, given)]
        if len(sites.all) == 1 and given is not None:
            found += _single_node_complaints(case, sites, emulated, fmt)
        reloaded = Emulator().session(Assignment(Sites(load(typed), fmt), {})).run(widen_feeds(case.feeds))
        if not all(same_bits(emulated[name], reloaded[name]) for name in emulated):
            found.append(f"{label}: the typed model, read back and emulated, answers otherwise")
        if fmt is Format.FP16:
            answer = ran_by_default(typed, case.feeds)
            found += _refusal_complaints("typed", case, answer is None, given)
            if answer is not None:
                found += [f"{label}, typed, {text}" for text in _answer_complaints(case, answer, fmt, given)]
    return [f"{case.name}: {text}" for text in found]


def _checker_complaints(case: Case, typed: onnx.ModelProto) -> list[str]:
    refused = [_checker_says(proto) for proto in (typed, case.model)]
    if case.name in refusals()["checked"]:
        return [] if all(refused) else ["checked: the list says that the checker refuses it as given; it does not"]
    return [f"checked: {refused[0]}"] if refused[0] and (versions_match() or not refused[1]) else []


def _checker_says(proto: onnx.ModelProto) -> str | None:
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception as error:
        return str(error)
    return None


def _emulated(emulator: Emulator, assignment: Assignment, feeds: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return emulator.session(assignment).run(widen_feeds(feeds))
    except HalfwiseError:
        return None


def _refusal_complaints(stage: str, case: Case, refused: bool, given: dict[str, Any] | None) -> list[str]:
    reason = refusals()[stage].get(case.name)
    if not versions_match():  # then only a case that runs as given has to run
        return (
            [f"{stage}: refused, and the list does not say so"] if refused and given is not None and not reason else []
        )
    if refused and reason is None:
        return [f"{stage}: refused, and the list does not say so"]
    if not refused and reason is not None:
        return [f"{stage}: runs, though the list says {reason!r}"]
    if reason is not None and reason.endswith("not even as given") and given is not None:
        return [f"{stage}: runs as given, though the list says {reason!r}"]
    return []


def _answer_complaints(case: Case, answer: dict[str, Any], fmt: Format, given: dict[str, Any] | None) -> list[str]:
    bound = Format.BF16 if Format.BF16 in (fmt, case.narrow_inside) else fmt
    right = [case.expected]
    if case.name.startswith(ON_ROUNDED_INPUTS):
        right.append(ran(case.model, rounded(case.feeds, fmt)) or {})
    followed = case.name in refusals()["answer"] or not versions_match()  # the runtime, not the case
    if followed and given is not None:
        right.append(given)
    wrong = [_wrong_outputs(case, answer, expected, bound) for expected in right]
    return [] if not all(wrong) else wrong[-1]


def _wrong_outputs(case: Case, answer: dict[str, Any], expected: dict[str, Any], bound: Format) -> list[str]:
    units, steps = MORE_UNITS.get(case.name, UNITS), (case.name in MOVED_BY_ONE) * (1 + (bound is Format.BF16))
    found = ((name, differs(answer[name], value, bound, units, steps)) for name, value in expected.items())
    return [f"{name}: {text}" for name, text in found if text]


def _single_node_complaints(case: Case, sites: Sites, emulated: dict[str, Any], fmt: Format) -> list[str]:
    """One node is its inputs rounded, the operator in FP32, its outputs rounded: to the bit."""
    site = sites.all[0]
    kinds = {native_format(v) for v in (*site.node.inputs, *site.node.outputs) if v is not None}
    if kinds & {Format.FP16, Format.BF16}:  # the runtime computes that in its own way
        return []
    if site.node.op_type == "Attention":  # its steps store their results, too
        return []
    narrowed = {v.name for v, narrow in zip(site.node.inputs, site.inputs, strict=True) if v is not None and narrow}
    exact = ran(case.model, rounded(case.feeds, fmt, {name for name in narrowed if name}))
    if exact is None:
        return ["runs as given, but not on rounded inputs"]
    slots = {v.name for v, narrow in zip(site.node.outputs, site.outputs, strict=True) if narrow}
    exact = rounded(exact, fmt, {name for name in slots if name})
    return [
        f"{name}: not the operator between two roundings"
        for name, value in emulated.items()
        if not same_bits(value, widen_feeds({name: exact[name]})[name])
    ]


@pytest.mark.parametrize("number", range(BATCHES))
def test_node_cases_in_fp16(number: int) -> None:
    emulator = Emulator()
    found = [text for case in batch_of(number, 2) for text in complaints(case, emulator, Format.FP16)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("number", range(BATCHES))
def test_node_cases_in_bf16(number: int) -> None:
    emulator = Emulator()
    found = [text for case in batch_of(number, 4) for text in complaints(case, emulator, Format.BF16)]
    assert not found, "\n".join(found)


listed_here = pytest.mark.skipif(not versions_match(), reason="the list was made with other versions")


@listed_here
def test_the_list_of_refusals_names_existing_cases_only() -> None:
    known = {case.name for case in float_cases()}
    listed = {case for stage in STAGES for case in refusals()[stage]}
    assert listed <= known


@listed_here
def test_refusals_are_few() -> None:
    listed = {case for stage in STAGES for case in refusals()[stage]}
    assert len(listed) <= len(float_cases()) // 10


def test_most_cases_have_something_to_narrow() -> None:
    """The cases would pass if nothing ever narrowed, too."""
    some = float_cases()[::4]
    free = sum(bool(Sites(load(case.model)).free) for case in some)
    assert free >= 0.75 * len(some)
