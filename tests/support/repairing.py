"""What the tests of repair rules share: ranges as a search sees them, and repairs with their effect."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.core.counting import count
from halfwise.core.document import read
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan_document import RepairRecord
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges, Repair, Rule, repaired
from halfwise.search.judge import Judge, Question
from halfwise.search.tensor_statistics import channels_of

Feed = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Effect:
    """A model before and after a rule; loads are of the all-FP16 model, in units of the tolerance."""

    model: Model
    repaired: Model
    repairs: tuple[Repair, ...]
    references: list[dict[str, NDArray[Any]]]
    answers: list[dict[str, NDArray[Any]]]  # of the repaired model, in FP32
    before: float
    after: float

    @property
    def bit_identical(self) -> bool:
        pairs = [(one[name], other[name]) for one, other in self._pairs for name in one]
        return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)

    @property
    def deviation(self) -> float:
        """The largest relative deviation of any FP32 output; infinite where other places are finite."""
        worst = 0.0
        for one, other in self._pairs:
            for name, array in one.items():
                a, b = array.astype(np.float64), other[name].astype(np.float64)
                finite = np.isfinite(a)
                if a.shape != b.shape or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                    return math.inf
                size = float(np.linalg.norm(a[finite]))
                error = float(np.linalg.norm(a[finite] - b[finite]))
                worst = max(worst, error / size if size else (math.inf if error else 0.0))
        return worst

    @property
    def _pairs(self) -> list[tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]]:
        return list(zip(self.references, self.answers, strict=True))

    def ops(self) -> list[str]:
        return [node.op_type for node in self.repaired.nodes]


def ranges_of(model: Model, feeds: Sequence[Feed]) -> Ranges:
    """What every FP32 tensor held."""
    high: dict[str, float] = {}
    low: dict[str, float] = {}
    size: dict[str, int] = {}
    channels: dict[str, NDArray[Any]] = {}
    stepper, sites = Stepper(Emulator()), Sites(model)
    for feed in feeds:
        store = Store(stepper.emulator, Assignment(sites, {}), widen_feeds(feed))
        seen = {value: store.read(value, None) for value in model.graph.inputs if value in store}
        for value, array in seen.items():
            if (held := channels_of(value, array)) is not None:
                channels[value.name or ""] = np.maximum(channels.get(value.name or "", 0.0), held)
        for step in stepper.walk(store):
            seen.update(step.outputs)
        for value, array in seen.items():
            if not isinstance(array, np.ndarray) or array.dtype != np.float32:
                continue
            counts, name = count(array), value.name or ""
            size[name] = array.size
            high[name] = max(high.get(name, 0.0), counts.max_abs)
            if counts.min_abs:
                low[name] = min(low.get(name, math.inf), counts.min_abs)
    return Ranges(high, low, size, channels)


def effect(
    rule: Rule, proto: onnx.ModelProto | Model | Path, feeds: Sequence[Feed], tolerance: float = 0.01, searched: int = 3
) -> Effect:
    """Find with the ranges of the first feeds, read the repairs back from JSON, apply them, measure on all feeds."""
    model = proto if isinstance(proto, Model) else load(proto)
    found = rule.find(model, ranges_of(model, feeds[:searched]))
    written = [json.loads(json.dumps(one.document().to_json())) for one in found]
    again = [Repair.planned(read(entry, RepairRecord, "it")) for entry in written]
    after, done = repaired(model, [(rule, one) for one in again])
    assert done == tuple(again)
    judges = [_judge(each, feeds, tolerance) for each in (model, after)]
    references, answers = judges[0].references, judges[1].references
    judges[1]._references = references
    loads = [judge.measure(Assignment.all_narrow(judge.sites)).ratio for judge in judges]
    return Effect(model, after, tuple(found), references, answers, *loads)


def _judge(model: Model, feeds: Sequence[Feed], tolerance: float) -> Judge:
    question = Question(Tolerance((Bound.of("*", "rel_l2", tolerance),)))
    return Judge(Sites(model), Emulator(), question, feeds)
