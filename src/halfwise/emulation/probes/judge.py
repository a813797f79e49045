"""Which hypotheses of a form its results bear out, and by what evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.probes.form import Form
from halfwise.emulation.profiles.hypotheses import APART, CONVERSION, hypotheses_of, kernels_of
from halfwise.emulation.profiles.learned import LearnedFusions, kernels_by
from halfwise.emulation.profiles.machine import Evidence, FormRecord, Status
from halfwise.emulation.profiles.profile import Profile
from halfwise.emulation.profiles.shape_class import ShapeClass, shape_class
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["EQUAL", "Taught", "distance", "form_assignment", "judged", "learned_kernels"]

Array = NDArray[Any]
EQUAL = 0.999  # share of results that must be the same to the bit, unless none is more than one number away
_NEARLY, _ORDER = 0.99, 5e-5  # of a sum: where FP32's order of addition may show, and by how much (rms)
_WON = 0.9  # share of the results that tell two hypotheses apart which the better one must have right
_ALL_PARTS = 1 << 30  # a probe's sums are emulated part by part, however many there are

# By operator, what forms of single nodes have taught already: those that fuse are judged with it.
Taught = Mapping[str, Sequence[FormRecord]]


@dataclass(frozen=True, eq=False)
class _Predicted:
    """What a hypothesis makes of a form's outputs, in FP16."""

    name: str
    outputs: tuple[Array, ...]
    evidence: Evidence


def form_assignment(form: Form) -> Assignment:
    """The form with every tensor in FP16; its inputs and outputs as the form has them."""
    return Assignment.all_narrow(Sites(load(form.model())), io=form.io)


def learned_kernels(forms: Iterable[FormRecord]) -> Taught:
    """By operator, the forms that say how it computes."""
    found: dict[str, list[FormRecord]] = {}
    for form in forms:
        if form.hypotheses and not form.rule.startswith("fusion:") and form.rule != CONVERSION:
            found.setdefault(form.rule, []).append(form)
    return found


def judged(form: Form, runs: Sequence[Sequence[Array]], taught: Taught) -> FormRecord:
    """The answer of a form that ran, from its outputs in all runs on the same inputs; the first is judged."""
    outputs = runs[0]
    assignment = form_assignment(form)
    seen = _class_of(form, assignment)
    feed = form.feed()
    wide = list(Emulator().session(Assignment(assignment.sites, {})).run(feed).values())
    candidates = [
        _predicted(name, profile, assignment, feed, wide, outputs) for name, profile in _profiles(form, taught)
    ]
    held = [each for each in _undefeated(candidates, outputs) if _fits(each.evidence, form)]
    different = any(not _same(held[0], each) for each in held[1:])
    status: Status = "loose" if not held else "several" if different else "proven"
    error = _error(outputs, wide)
    names = [each.name for each in held] or _nearest(candidates, error)
    return FormRecord(
        form.name,
        form.rule,
        status,
        names,
        seen.variant,
        seen.length or 0,
        sum(int(np.size(each)) for each in outputs),
        all(_alike(outputs, again) for again in runs[1:]),
        error,
        {each.name: each.evidence for each in candidates},
    )


def _class_of(form: Form, assignment: Assignment) -> ShapeClass:
    if form.fused:
        return ShapeClass("", form.length)
    node = next(site.node for site in assignment.sites.all if site.node.op_type == form.op)
    return shape_class(node)


# -- predicting -------------------------------------------------------------------------------------------------------


def _profiles(form: Form, taught: Taught) -> Iterable[tuple[str, Profile]]:
    for name in hypotheses_of(form.rule):
        if form.rule == CONVERSION:
            yield name, Profile(name, conversion=name)
        elif form.fused:
            kernels = {op: kernels_by(op, forms) for op, forms in taught.items()}
            fusions = LearnedFusions({form.kind: name}, taught)
            yield name, Profile(name, kernels, fusion="" if name == APART else fusions)
        else:
            kernel = kernels_of(form.op, _ALL_PARTS)[name]
            yield name, Profile(name, {} if kernel is None else {form.op: kernel})


def _predicted(
    name: str,
    profile: Profile,
    assignment: Assignment,
    feed: Mapping[str, Array],
    wide: Sequence[Array],
    seen: Sequence[Array],
) -> _Predicted:
    made = Emulator(profile).session(assignment).run(feed).values()
    outputs = tuple(_narrow(each, got) for each, got in zip(made, seen, strict=True))
    apart = [distance(got, each) for got, each in zip(seen, outputs, strict=True)]
    count = sum(each.size for each in apart)
    evidence = Evidence(
        sum(int((each == 0).sum()) for each in apart) / max(count, 1),
        max((int(each.max(initial=0)) for each in apart), default=0),
        _error(seen, outputs),
        _error(outputs, wide),
    )
    return _Predicted(name, outputs, evidence)


def _floats(array: Array) -> bool:
    return array.dtype.kind == "f"


def _alike(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return all(np.array_equal(a, b, equal_nan=_floats(a)) for a, b in zip(one, other, strict=True))


def _narrow(made: Array, seen: Array) -> Array:
    if not _floats(made):
        return made
    with np.errstate(all="ignore"):
        return made.astype(np.float16)


def distance(one: Array, other: Array) -> NDArray[np.int64]:
    """How many FP16 numbers lie between; 0 for two NaN, and a NaN is far from every number."""
    if not _floats(one):
        differ: NDArray[np.int64] = (one != other).astype(np.int64) << 16
        return differ
    places = []
    for array in (one, other):
        bits = np.asarray(array, dtype=np.float16).view(np.uint16).astype(np.int64)
        places.append(np.where(bits & 0x8000, -(bits & 0x7FFF), bits))
    both = np.isnan(one) & np.isnan(other)
    either = np.isnan(one) != np.isnan(other)
    apart: NDArray[np.int64] = np.where(both, 0, np.where(either, 1 << 16, np.abs(places[0] - places[1])))
    return apart


def _error(seen: Sequence[Array], right: Sequence[Array]) -> float:
    """Relative, of all outputs that are finite in both; 1 and more where some are not finite in one only."""
    error = size = 0.0
    for got, wanted in zip(seen, right, strict=True):
        if not _floats(got):
            continue
        fine = np.isfinite(got) & np.isfinite(wanted) & (np.abs(wanted) <= 65504)
        a, b = got[fine].astype(np.float64), wanted[fine].astype(np.float64)
        error, size = error + float(((a - b) ** 2).sum()), size + float((b**2).sum())
    return float(np.sqrt(error / size)) if size else 0.0


# -- choosing ---------------------------------------------------------------------------------------------------------


def _fits(evidence: Evidence, form: Form) -> bool:
    if evidence.equal >= EQUAL or evidence.largest_ulp <= 1:
        return True
    return form.length > 0 and evidence.equal >= _NEARLY and evidence.difference <= _ORDER


def _same(one: _Predicted, other: _Predicted) -> bool:
    return all(not distance(a, b).any() for a, b in zip(one.outputs, other.outputs, strict=True))


def _undefeated(candidates: Sequence[_Predicted], seen: Sequence[Array]) -> list[_Predicted]:
    """Those that no other beats: of the results that two predict differently, one of them has nearly all."""
    flat = [np.concatenate([np.ravel(a) for a in each.outputs]) for each in candidates]
    got = np.concatenate([np.ravel(a) for a in seen])
    beaten = set()
    for one in flat:
        for place, other in enumerate(flat):
            differ = distance(one, other) != 0
            right, wrong = distance(got, one)[differ], distance(got, other)[differ]
            wins, losses = int((right < wrong).sum()), int((wrong < right).sum())
            if wins and wins >= _WON * (wins + losses):
                beaten.add(place)
    return [each for place, each in enumerate(candidates) if place not in beaten]


def _nearest(candidates: Sequence[_Predicted], error: float) -> list[str]:
    """Of a form that none fits: the nearest, and the next that errs at least as much as the machine does."""
    nearest = min(candidates, key=lambda each: each.evidence.difference)
    worse = [each for each in candidates if each.evidence.error >= error]
    pessimistic = min(worse, key=lambda each: each.evidence.error) if worse else candidates[-1]
    return list(dict.fromkeys((nearest.name, pessimistic.name)))
