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
# Where FP32 itself may differ, by its order of addition or in a function: the share of equal results, and what may be
# left over. Of a sum that is so much of all results (rms), or of the error that is explained; else so much of each.
_NEARLY, _ORDER, _EXPLAINED, _NOISE = 0.9, 5e-5, 0.2, 2e-6
_WON, _WINS = (
    0.9,
    8,
)  # of the results that tell two hypotheses apart: the share that the better one has right, the least
_ALL_PARTS = 1 << 30  # a probe's sums are emulated part by part, however many there are
_NAN = 1 << 17  # in the place of a number

# By operator, what forms of single nodes have taught already: those that fuse are judged with it.
Taught = Mapping[str, Sequence[FormRecord]]


@dataclass(frozen=True, eq=False)
class _Results:
    """All results of a form: which FP16 number each is, counted from 0, and its value."""

    places: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, outputs: Sequence[Array]) -> _Results:
        places = [_places(each) if _floats(each) else each.astype(np.int64) << 17 for each in outputs]
        values = [np.ravel(each).astype(np.float64) for each in outputs]
        return cls(np.concatenate([np.ravel(each) for each in places]), np.concatenate(values))

    def differ(self, other: _Results, noise: float) -> NDArray[np.bool_]:
        """Where two differ by more than FP32 may."""
        differ: NDArray[np.bool_] = self.places != other.places
        if noise:
            with np.errstate(invalid="ignore"):
                differ &= ~(np.abs(self.values - other.values) <= noise)
        return differ


@dataclass(frozen=True, eq=False)
class _Predicted:
    """What a hypothesis makes of a form."""

    name: str
    results: _Results
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
    got, noise = _Results.of(outputs), 0.0 if form.length else _NOISE
    held = [each for each in _undefeated(candidates, got, noise) if _fits(each, got, noise)]
    different = any(held[0].results.differ(each.results, noise).any() for each in held[1:])
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
        len(got.places),
        all(np.array_equal(got.places, _Results.of(again).places) for again in runs[1:]),
        error,
        {each.name: each.evidence for each in candidates},
        sizes=seen.sizes,
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
    outputs = [_narrow(each, got) for each, got in zip(made, seen, strict=True)]
    results = _Results.of(outputs)
    apart = np.abs(results.places - _Results.of(seen).places)
    evidence = Evidence(
        float(np.mean(apart == 0)) if len(apart) else 1.0,
        int(apart.max(initial=0)),
        _error(seen, outputs),
        _error(outputs, wide),
    )
    return _Predicted(name, results, evidence)


def _floats(array: Array) -> bool:
    return array.dtype.kind == "f"


def _narrow(made: Array, seen: Array) -> Array:
    if not _floats(made):
        return made
    with np.errstate(all="ignore"):
        return made.astype(np.float16)


def _places(array: Array) -> NDArray[np.int64]:
    """Which FP16 number each is, in the order of their size; a NaN is far from every number."""
    bits = np.asarray(array, dtype=np.float16).view(np.uint16).astype(np.int64)
    places: NDArray[np.int64] = np.where(bits & 0x8000, -(bits & 0x7FFF), bits)
    places[np.isnan(array)] = _NAN
    return places


def distance(one: Array, other: Array) -> NDArray[np.int64]:
    """How many FP16 numbers lie between; 0 for two NaN, and a NaN is far from every number."""
    apart: NDArray[np.int64] = np.abs(_places(one) - _places(other))
    return np.minimum(apart, 1 << 16)


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


def _fits(each: _Predicted, got: _Results, noise: float) -> bool:
    """Whether a hypothesis explains the results, but for what FP32 kernels themselves differ by."""
    evidence = each.evidence
    if evidence.equal >= EQUAL or evidence.largest_ulp <= 1:
        return True
    if evidence.equal < _NEARLY:
        return False
    apart = each.results.differ(got, noise) & (np.abs(each.results.places - got.places) > (1 if noise else 2))
    left = max(0.0 if noise else _ORDER, _EXPLAINED * evidence.error)
    return evidence.difference <= left or not bool(apart.any())


def _undefeated(candidates: Sequence[_Predicted], got: _Results, noise: float) -> list[_Predicted]:
    """Those that no other beats: of the results that two predict differently, one of them has nearly all."""
    beaten = set()
    for place, one in enumerate(candidates):
        for rival, other in enumerate(candidates[:place]):
            where = np.flatnonzero(one.results.differ(other.results, noise))
            errors = [np.abs(got.places[where] - each.results.places[where]) for each in (one, other)]
            wins, losses = int((errors[0] < errors[1]).sum()), int((errors[1] < errors[0]).sum())
            if max(wins, losses) >= max(_WON * (wins + losses), 1 if noise else _WINS):
                beaten.add(rival if wins > losses else place)
    return [each for place, each in enumerate(candidates) if place not in beaten]


def _nearest(candidates: Sequence[_Predicted], error: float) -> list[str]:
    """Of a form that none fits: the nearest, and the next that errs at least as much as the machine does; where none
    does, the one that errs most."""
    nearest = min(candidates, key=lambda each: each.evidence.difference)
    worse = [each for each in candidates if each.evidence.error >= error]
    pessimistic = (min if worse else max)(worse or candidates, key=lambda each: each.evidence.error)
    return list(dict.fromkeys((nearest.name, pessimistic.name)))
