"""A large model that overflows is repaired before sets of FP32 nodes are tried, each of which takes a walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.zoo.decoder import Sizes, feeds, write_decoder
from halfwise import fix
from halfwise.core.formats import Format
from halfwise.emulation import emulate, streamed
from halfwise.model.model import load
from halfwise.search.repair_selector import RepairSelector
from halfwise.verbs.fix.result import FixResult
from tests.models.decoders import decoder, decoder_inputs
from tests.support.repairing import ranges_of

SIZES = Sizes(layers=4, width=320, heads=5, shared=5, inner=896, vocabulary=300)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as large."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)


def compared(monkeypatch: pytest.MonkeyPatch, *given: object, **options: object) -> tuple[FixResult, FixResult]:
    """The answer, and that of a search which tries FP32 nodes first."""
    now = fix(*given, **options)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(RepairSelector, "_at_once", lambda *_: None)
        return now, fix(*given, **options)  # type: ignore[arg-type]


def test_the_same_answer_in_fewer_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, inputs = write_decoder(tmp_path, SIZES, planted=("massive",)), feeds(SIZES, tokens=8)
    now, before = compared(monkeypatch, path, inputs)
    assert now.met and before.met
    assert now.fp32_nodes == before.fp32_nodes == ()
    assert {each.rule for each in now.plan.repairs} == {each.rule for each in before.plan.repairs}
    assert now.cost.model_runs < 0.7 * before.cost.model_runs
    assert now.measured.diagnosis.breaking and now.measured.diagnosis.breaking <= before.measured.diagnosis.breaking
    saved = {name for repair in now.plan.repairs for name in repair.saved}
    high, nodes = ranges_of(load(path), inputs).high, load(path).node_by_name
    around = [{v.name or "" for v in (*nodes[name].inputs, *nodes[name].outputs) if v is not None} for name in saved]
    assert saved and all(any(high.get(name, 0.0) > Format.FP16.max for name in values) for values in around)


@pytest.mark.parametrize("rule", ["HW401", "HW402"])
def test_where_repairs_are_not_enough_nodes_are_searched(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now, before = compared(monkeypatch, decoder("power"), decoder_inputs(), repairs=(rule,))
    assert now.met and now.fp32_nodes == before.fp32_nodes != ()


def test_without_rules_nothing_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    now, before = compared(monkeypatch, decoder("power"), decoder_inputs(), repairs=("none",))
    assert now.met and now.fp32_nodes == before.fp32_nodes != ()
    assert now.cost.model_runs == pytest.approx(before.cost.model_runs)
