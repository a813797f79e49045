"""The budget of model runs: by default it ends what saves nodes; a number bounds the whole job, and it can go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.report.answer import way_out
from halfwise.search.journal import Journal
from halfwise.search.run_counter import RunCounter, Untried
from halfwise.verbs.fix.fix import JOURNAL, FixResult, fix
from tests.models.random_nets import feeds, random_net
from tests.support.messages import kinds, only

SEED = 17  # a net that needs nodes in FP32


def fixed(runs: float | None, out: Path | None = None, repairs: str = "none") -> FixResult:
    given = [*feeds(SEED), *feeds(SEED + 1)]
    return fix(random_net(SEED), given, out=out, tolerance="*:rel_l2<=0.003", max_runs=runs, repairs=repairs)


def spent(result: FixResult) -> bool:
    return NoteKind.BEST_SO_FAR in kinds(result.notes)


def test_a_small_budget_gives_the_best_so_far_and_says_what_is_left() -> None:
    little, much = fixed(9), fixed(1000)
    assert little.met and much.met
    assert spent(little) and not spent(much)
    assert "reverting single nodes" in only(little.notes, NoteKind.BEST_SO_FAR).values["untried"]
    assert len(little.fp32_nodes) >= len(much.fp32_nodes) > 0
    assert little.cost.model_runs < much.cost.model_runs


@pytest.mark.parametrize("runs", [16, 20, 30])
def test_a_budget_bounds_all_runs_of_the_job(runs: float) -> None:
    """Of the FP32 answers, the search, the repairs and the verdict."""
    result = fixed(runs, repairs="all")
    assert result.cost.model_runs <= runs
    assert NoteKind.RUNS_RAISED not in kinds(result.notes)


def test_an_interrupted_job_spends_its_budget_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After whichever measurement: beside the verdict, what it has to run again does not count twice."""
    whole, entries = _kept(monkeypatch, lambda: fixed(24, tmp_path / "whole"))
    assert whole is not None and entries > 5
    for stop in range(1, entries + 1):
        again = _interrupted(monkeypatch, stop, partial(fixed, 24, tmp_path / str(stop)))
        assert again.plan.text() == whole.plan.text()
        assert again.cost.model_runs <= whole.cost.model_runs + 4


def test_an_interrupted_job_looks_where_it_would_have_looked(
    shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the walks saw of tensors is known again."""
    folder = shared_models / "gtcrn_stream"
    model, inputs = folder / "model.onnx", sorted(folder.glob("inputs_*.npz"))
    whole = fix(model, inputs, out=tmp_path / "whole")
    again = _interrupted(monkeypatch, 3, lambda: fix(model, inputs, out=tmp_path / "again"))
    assert again.plan.text() == whole.plan.text()
    assert again.notes == whole.notes
    assert not (tmp_path / "again" / JOURNAL).exists()


def _kept(
    monkeypatch: pytest.MonkeyPatch, job: Callable[[], FixResult], stop: int = -1
) -> tuple[FixResult | None, int]:
    """A job, interrupted behind so many measurements, and how many it keeps."""
    put, kept = Journal.put, list[str]()

    def interrupted(journal: Journal, key: str, entry: Any) -> None:
        put(journal, key, entry)
        kept.append(key)
        if len(kept) == stop:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Journal, "put", interrupted)
        return job(), len(kept)
    return None, len(kept)


def _interrupted(monkeypatch: pytest.MonkeyPatch, stop: int, job: Callable[[], FixResult]) -> FixResult:
    """The same command again."""
    assert _kept(monkeypatch, job, stop) == (None, stop)
    return job()


def test_what_is_run_again_does_not_count_twice() -> None:
    """Of the runs that a job makes itself; of those that are remembered each counts."""
    counter = RunCounter()
    counter.add(4)
    counter.remember(2, 6)
    counter.add(3)  # seen again: the earlier job went on at once
    counter.remember(10, 16)
    assert (counter.samples, counter.remembered) == (16, 12)
    counter.remember(1, 2)  # of a job that took another way; 4 were run here, and those may have been among its own
    assert counter.samples == 13
    counter.add(5)
    assert counter.samples == 18


def test_where_a_budget_is_less_than_the_least_answer_that_is_given_and_counted() -> None:
    least = fixed(1)
    assert only(least.notes, NoteKind.RUNS_RAISED).values == {"asked": 1.0, "runs": round(least.cost.model_runs, 1)}
    assert fixed(least.cost.model_runs + 1).cost.model_runs <= least.cost.model_runs + 1


def test_without_a_budget_what_keeps_the_tolerance_has_no_bound() -> None:
    assert {NoteKind.BEST_SO_FAR, NoteKind.RUNS_RAISED}.isdisjoint(kinds(fixed(None).notes))


def test_a_large_budget_leaves_runs_for_sets_that_held_out_inputs_need() -> None:
    """Without them the next set after one that misses was every node."""
    counter = RunCounter(budget=100)
    counter.over(2)
    counter.plan(verdict=10, overflows=2, answer=20, larger=14)
    counter.expect(0)
    assert counter.free(174, Untried.SETS) and not counter.free(175, Untried.SETS)
    counter.found()
    assert counter.free(188, Untried.SETS) and not counter.free(189, Untried.SETS)


@pytest.mark.parametrize(("budget", "kept_back"), [(40, 0), (60, 5), (200, 40), (400, 40)])
def test_a_large_budget_leaves_runs_for_searches_by_more_profiles(budget: int, kept_back: int) -> None:
    """Without them a first answer that misses with less rounding was the last one."""
    counter = RunCounter(budget=budget)
    counter.over(3)
    counter.plan(verdict=10, overflows=2, answer=20)
    for later in (2, 1, 0):
        left = 3 * (budget - later * kept_back) - 12
        assert counter.free(left, Untried.SETS) and not counter.free(left + 1, Untried.SETS)
        counter.expect(max(later - 1, 0))
    assert counter.free(3 * budget - 12, Untried.SETS)


def test_a_small_budget_is_all_for_the_search() -> None:
    counter = RunCounter(budget=40)
    counter.over(2)
    counter.plan(verdict=10, overflows=2, answer=20, larger=14)
    assert counter.free(68, Untried.SETS)


def test_other_inputs_are_looked_at_within_the_runs_of_the_search() -> None:
    counter = RunCounter(40)
    counter.over(2)
    counter.add(78.5)
    assert counter.within(1.5) and not counter.within(2)


def test_a_miss_for_want_of_runs_leads_to_more_of_them(tmp_path: Path) -> None:
    onnx.save(random_net(SEED), tmp_path / "m.onnx")
    found = fix(tmp_path / "m.onnx", feeds(SEED), tolerance="*:rel_l2<=0.003", max_runs=1, repairs="none")
    verdict = replace(found.verdict, met=False, ratio=2.0)
    missed = replace(found, measured=replace(found.measured, verdict=verdict))
    assert not missed.good and spent(missed)
    step = way_out(missed).step
    assert step is not None and "--max-runs 4" in step.command


def test_with_a_larger_budget_the_same_command_goes_on(tmp_path: Path) -> None:
    fixed(8, tmp_path / "on")
    assert (tmp_path / "on" / JOURNAL).exists()
    on, fresh = fixed(1000, tmp_path / "on"), fixed(1000, tmp_path / "fresh")
    assert not (tmp_path / "on" / JOURNAL).exists()
    assert on.fp32_nodes == fresh.fp32_nodes
    assert on.cost.model_runs <= fresh.cost.model_runs + 2  # which counts what was measured before, and little anew


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="--max-runs 0"):
        fixed(0)
