"""What a report reads of the weights, and what is told meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.told import Told
from halfwise.model import elements, weight_facts
from halfwise.report.html import fix_report
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import encoder


def test_how_much_of_the_weights_was_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is counted twice, for the findings and for the histogram; then nothing is left to look at."""
    monkeypatch.setattr(fix_report, "_EVERY_S", 0.0)
    result, said = fix(encoder().model, encoder().inputs, out=tmp_path), list[str]()
    fix_report.with_report(result, notify=said.append)
    weights = map(onnx.numpy_helper.to_array, encoder().model.graph.initializer)
    values = sum(weight.size for weight in weights if weight.dtype == np.float32)
    stands = [Told.stand_of(text) for text in said]
    assert said[0] == "writing the report" == stands[-1].step
    looked = [int(stand.part.split(" of ")[0].replace(",", "")) for stand in stands if stand.part]
    assert looked == sorted(looked) and 0 < looked[0] < looked[-1] < 2 * values
    assert all(stand.part.endswith(f" of {2 * values:,} values") and stand.left for stand in stands[1:])


def test_each_large_weight_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counts and its powers of two are found while it is in memory; the time is part of what the job took."""
    for name, value in (("_LEAST", 1), ("_LARGE", 1), ("_SETTLED_NS", 0)):
        monkeypatch.setattr(weight_facts, name, value)
    asked = list[str]()
    counted, looked = fix_report.counts_of_weights, fix_report.powers_of_two
    monkeypatch.setattr(
        fix_report, "counts_of_weights", lambda each: asked.append(f"counts of {each[0].name}") or counted(each)
    )
    monkeypatch.setattr(
        fix_report, "powers_of_two", lambda each: asked.append(f"powers of {each.name}") or looked(each)
    )
    onnx.save(encoder().model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    result = fix(tmp_path / "m.onnx", encoder().inputs, out=tmp_path / "out")
    read = list[str]()
    mapped = elements._mapped
    monkeypatch.setattr(elements, "_mapped", lambda file, *span: read.append(file.whose) or mapped(file, *span))
    told = fix_report.with_report(result)
    names = [each.removeprefix("counts of ") for each in asked[::2]]
    assert asked == [f"{what} of {name}" for name in names for what in ("counts", "powers")]
    assert len(names) == len(set(names)) > 5
    assert {read.count(f"initializer {name!r}") for name in names} <= {1, 2}  # the search may have counted some
    assert told.cost.seconds > result.cost.seconds


def test_how_long_the_other_weights_take_is_told_each_second() -> None:
    now, said = [0.0], list[str]()
    told = fix_report._telling(said.append, clock=lambda: now[0])
    for moment, done in ((0.5, 10), (10.0, 25), (10.5, 30), (20.0, 80), (25.0, 100)):
        now[0] = moment
        told(done, 100)
    stands = [Told.stand_of(text) for text in said]
    left = [(stand.part, stand.left.seconds) for stand in stands if stand.left is not None]
    assert left == [("25 of 100 values", 30.0), ("80 of 100 values", 5.0)]
