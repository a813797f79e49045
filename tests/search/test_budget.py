"""The budget of model runs: what saves nodes ends with it, what keeps the tolerance does not, and it can go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.verbs.fix.fix import JOURNAL, FixResult, fix
from tests.models.random_nets import feeds, random_net

SEED = 17  # a net that needs nodes in FP32


def fixed(runs: float, out: Path | None = None) -> FixResult:
    given = [*feeds(SEED), *feeds(SEED + 1)]
    return fix(random_net(SEED), given, out=out, tolerance="*:rel_l2<=0.003", max_runs=runs, repairs="none")


def spent(result: FixResult) -> bool:
    return any(note.kind is NoteKind.RUNS_SPENT for note in result.notes)


def test_a_small_budget_gives_the_best_so_far_and_says_so() -> None:
    little, much = fixed(8), fixed(1000)
    assert little.met and much.met
    assert spent(little) and not spent(much)
    assert len(little.fp32_nodes) >= len(much.fp32_nodes) > 0
    assert little.cost.model_runs < much.cost.model_runs


def test_with_a_larger_budget_the_same_command_goes_on(tmp_path: Path) -> None:
    fixed(8, tmp_path / "on")
    assert (tmp_path / "on" / JOURNAL).exists()
    on, fresh = fixed(1000, tmp_path / "on"), fixed(1000, tmp_path / "fresh")
    assert not (tmp_path / "on" / JOURNAL).exists()
    assert on.fp32_nodes == fresh.fp32_nodes
    assert on.cost.model_runs <= fresh.cost.model_runs + 2  # which counts what was measured before, and little anew


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="max_runs 0"):
        fixed(0)
